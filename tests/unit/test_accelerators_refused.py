"""What is said about TPU names and shapes that don't exist."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fray.accelerators as acc
from fray.errors import AcceleratorShapeError, RequestError, UnknownAcceleratorError


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        # case, blanks, separators: what was meant is plain
        ("V5P-16", ("v5p-16",)),
        (" v5p-16", ("v5p-16",)),
        ("v5p-16\n", ("v5p-16",)),
        ("v5p_16", ("v5p-16",)),
        ("v5p16", ("v5p-16",)),
        ("v5p-016", ("v5p-16",)),
        # wrong size
        ("v5p-10", ("v5p-8", "v5p-16")),
        ("v5p-0", ("v5p-8",)),
        ("v5p-12416", ("v5p-12288",)),
        ("v5p-" + "9" * 5000, ("v5p-12288",)),
        ("v5e-10", ("v5e-8", "v5e-16")),
        ("v5lite-2", ("v5lite-1", "v5lite-4")),
        ("v5litepod-2", ("v5litepod-1", "v5litepod-4")),
        ("v3-16", ("v3-8", "v3-32")),
        ("v4-2", ("v4-8",)),
        ("v4-640", ("v4-512", "v4-768")),
        ("tpu7x-4", ("tpu7x-2", "tpu7x-8")),
        ("tpu7-640", ("tpu7-512",)),
        # wrong topology
        ("v5p-8x4x4", ("v5p-4x4x8",)),
        ("tpu7x-2x1x2", ("tpu7x-2x2x1",)),
        ("v6e-8x4", ("v6e-4x8",)),
        ("v5p-4x4", ("v5p-2x2x4", "v5p-2x2x2", "v5p-2x4x4")),
        ("v6e-2x2x2", ("v6e-2x4", "v6e-2x2", "v6e-4x4")),
        ("v5p-0x0x0", ("v5p-2x2x1", "v5p-2x2x2", "v5p-2x2x4")),
        # wrong generation
        ("v5ep-16", ("v5p-16", "v5e-16")),
        ("v5pod-16", ("v5p-16", "v5litepod-16")),
        ("v7x-8", ("tpu7-8", "tpu7x-8")),
        # a generation only
        ("v5p", ("v5p-8", "v5p-16", "v5p-32", "v5p-64", "v5p-128")),
        ("v6e-", ("v6e-1", "v6e-4", "v6e-8", "v6e-16", "v6e-32")),
        ("v6e-large", ("v6e-1", "v6e-4", "v6e-8", "v6e-16", "v6e-32")),
        # GKE's own words for something else
        ("tpu-v5p-slice", ("v5p-8", "v5p-16", "v5p-32", "v5p-64", "v5p-128")),
        ("tpu-v3-device", ("v3-8",)),
        ("ct6e-standard-8t", ("v6e-8",)),
        # nothing like it
        ("", ("v5litepod-1", "v5p-8", "v6e-1", "tpu7-2", "tpu7x-2")),
        ("nvidia-l4", ("v5litepod-1", "v5p-8", "v6e-1", "tpu7-2", "tpu7x-2")),
        ("x" * 100_000, ("v5litepod-1", "v5p-8", "v6e-1", "tpu7-2", "tpu7x-2")),
    ],
    ids=lambda value: repr(value)[:30] if isinstance(value, str) else None,
)
def test_unknown_tpu_name_lists_the_nearest(name: str, nearest: tuple[str, ...]) -> None:
    with pytest.raises(UnknownAcceleratorError) as caught:
        acc.lookup_tpu(name)
    assert (caught.value.kind, caught.value.name, caught.value.nearest) == ("TPU", name, nearest)
    with pytest.raises(UnknownAcceleratorError):
        acc.legal_topologies(name)


def test_the_message_of_an_unknown_name_can_be_acted_on() -> None:
    with pytest.raises(
        RequestError, match=r"^unknown TPU type 'v5p-10'\n.*; nearest legal: v5p-8, v5p-16\.$"
    ):
        acc.lookup_tpu("v5p-10")


@pytest.mark.parametrize(
    ("name", "topology", "legal"),
    [
        ("v5p-128", "2x2x2", ("4x4x4",)),
        ("v5p-512", "8x8x4", ("4x8x8", "4x4x16")),
        ("v5p-512", "2x8x16", ("4x8x8", "4x4x16")),
        ("v5p-4x4x8", "4x4x16", ("4x4x8",)),
        ("v5p-4x4x16", "4x8x8", ("4x4x16",)),
        ("v5p-8", "2x2", ("2x2x1",)),
        ("v4-2048", "4x4x64", ("8x8x16", "4x16x16")),
        ("v5e-16", "2x8", ("4x4",)),
        ("v6e-8", "", ("2x4",)),
        ("v6e-8", "2X4", ("2x4",)),
        ("v6e-8", "2x4 ", ("2x4",)),
    ],
)
def test_topology_that_a_type_does_not_come_in(name: str, topology: str, legal: tuple[str, ...]) -> None:
    with pytest.raises(AcceleratorShapeError) as caught:
        acc.lookup_tpu(name, topology=topology)
    error = caught.value
    assert (error.type, error.field, error.value, error.legal) == (name, "topology", topology, legal)


@pytest.mark.parametrize(
    ("name", "chips_per_host", "legal"),
    [
        ("v6e-8", 2, ("8", "4")),
        ("v5e-8", 1, ("8", "4")),
        ("v5litedevice-8", 4, ("8",)),
        ("v6e-16", 8, ("4",)),
        ("v6e-1", 4, ("1",)),
        ("v5p-8", 1, ("4",)),
        ("v5p-8", 0, ("4",)),
        ("v5p-8", -4, ("4",)),
        ("tpu7x-2", 2, ("1",)),
    ],
)
def test_chips_per_host_that_no_machine_has(name: str, chips_per_host: int, legal: tuple[str, ...]) -> None:
    with pytest.raises(AcceleratorShapeError) as caught:
        acc.lookup_tpu(name, chips_per_host=chips_per_host)
    error = caught.value
    assert (error.field, error.value, error.legal) == ("chipsPerHost", str(chips_per_host), legal)


def test_the_message_of_a_wrong_shape_can_be_acted_on() -> None:
    with pytest.raises(RequestError, match=r"^v6e-8 has no chipsPerHost 2\n.*; legal: 8, 4\.$"):
        acc.lookup_tpu("v6e-8", chips_per_host=2)


def test_errors_survive_pickling() -> None:
    with pytest.raises(UnknownAcceleratorError) as unknown:
        acc.lookup_tpu("v5p-10")
    with pytest.raises(AcceleratorShapeError) as shape:
        acc.lookup_gpu("nvidia-b200", count=1)
    for error in (unknown.value, shape.value):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy)) == (type(error), str(error))


NEAR_MISSES = st.from_regex(r"(v5p|v6e|tpu7x?|v5e)-?[0-9x]{0,12}", fullmatch=True)


@given(name=st.one_of(st.text(max_size=60), NEAR_MISSES))
def test_any_text_that_is_no_name_is_refused_with_legal_names(name: str) -> None:
    spelling, _, rest = name.partition("-")
    generation = acc.generations_by_spelling().get(spelling)
    assume(generation is None or rest not in {*generation.topologies, *map(str, generation.sizes)})

    with pytest.raises(UnknownAcceleratorError) as caught:
        acc.lookup_tpu(name)

    nearest = caught.value.nearest
    assert 1 <= len(nearest) <= 5
    assert len(set(nearest)) == len(nearest)
    for near in nearest:
        acc.lookup_tpu(near)
