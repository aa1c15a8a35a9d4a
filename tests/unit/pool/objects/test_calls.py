"""Arguments come back with values in the places of references; large ones become objects of their own."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fray.errors import SerializationError
from fray.runtime.pool.objects.calls import decode_call, encode_call
from fray.runtime.pool.objects.flat_format import Encoded
from fray.runtime.pool.objects.values import decode
from tests.unit.pool.objects.samples import Ref, plain


def test_arguments_come_back_with_values_in_the_places_of_references(read: list[int]) -> None:
    call = encode_call((1, Ref(7), [Ref(8)]), {"k": Ref(9), "z": "text", "again": Ref(7)})
    assert call.deps == (7, 9, 7)
    assert call.holds == (7, 9, 8)
    args, kwargs = decode_call(call.args, ["seven", "nine", "seven"])
    assert args[:2] == (1, "seven")
    assert args[2][0].object_id == 8
    assert kwargs == {"k": "nine", "z": "text", "again": "seven"}
    assert read == [8]


@given(st.lists(plain).map(tuple), st.dictionaries(st.text(), plain))
def test_any_arguments_come_back(args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    call = encode_call(args, kwargs)
    assert decode_call(call.args, ()) == (args, kwargs)
    assert call.deps == call.holds == ()


def test_the_largest_arguments_become_objects_until_the_rest_is_small(read: list[int]) -> None:
    stored: dict[int, object] = {}

    def put(encoded: Encoded) -> int:
        stored[100 + len(stored)] = decode(encoded.to_bytes())
        return 99 + len(stored)

    args = (b"a" * 60_000, b"b" * 30_000, "small", [b"c" * 50_000, Ref(4)])
    call = encode_call(args, {"d": np.zeros(20_000)}, put=put, limit=64 * 1024)
    assert len(call.args) <= 64 * 1024
    assert len(stored) == 3
    assert set(call.deps) == set(stored)
    assert set(call.holds) == {*stored, 4}
    back, named = decode_call(call.args, [stored[dep] for dep in call.deps])
    assert back[:3] == args[:3]
    assert named["d"].nbytes == 160_000
    assert encode_call(args, {}).deps == ()


def test_a_scalar_argument_above_the_limit_becomes_an_object() -> None:
    call = encode_call((b"x" * 100_000,), {}, put=lambda _: 55)
    assert call.deps == (55,)
    assert len(call.args) < 1000


@pytest.mark.parametrize(
    ("args", "kwargs", "path"),
    [((1, [threading.Lock()]), {}, "args[1][0]"), ((), {"a": threading.Lock()}, "kwargs['a']")],
)
def test_an_argument_that_cannot_be_pickled_is_named(
    args: tuple[object, ...], kwargs: dict[str, object], path: str
) -> None:
    with pytest.raises(SerializationError) as raised:
        encode_call(args, kwargs)
    assert raised.value.path == path


def test_as_many_values_as_placeholders_are_needed() -> None:
    call = encode_call((Ref(1),), {})
    with pytest.raises(ValueError, match="zip"):
        decode_call(call.args, [1, 2])
