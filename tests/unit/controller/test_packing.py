"""Objects come out of a packer as they went in, and take little room beside others that are like them."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from fray.testing import build_pod
from fray_operator.packing import Packer

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.lists(st.dictionaries(st.text(), VALUES), min_size=1))
def test_what_was_packed_is_what_is_unpacked(manifests: list[dict[str, object]]) -> None:
    packer = Packer()
    packed = [packer.pack(manifest) for manifest in manifests]
    assert [packer.unpack(each) for each in packed] == manifests
    assert [packer.pack(manifest) for manifest in manifests[1:]] == packed[1:]


def test_the_order_of_keys_makes_no_difference() -> None:
    packer = Packer()
    packer.pack({"first": 0})
    assert packer.pack({"a": 1, "b": 2}) == packer.pack({"b": 2, "a": 1})


def test_what_an_object_shares_with_the_first_takes_no_room() -> None:
    packer = Packer()
    packer.pack(build_pod(0))
    assert len(packer.pack(build_pod(1))) * 4 < len(json.dumps(build_pod(1)))
