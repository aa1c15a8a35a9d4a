"""Every TPU name of XPK, Google's own tool, means the same here, but for the listed differences.

XPK's names come from a reference file that is kept beside the checkout, not in it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fray.accelerators import lookup_tpu
from fray.errors import UnknownAcceleratorError

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "xpk_tpu_types.json"
NAMES_IN_REFERENCE = 349


class Shape(NamedTuple):
    """What a name means; the fields are in the order of the reference file's values."""

    topology: str
    hosts: int
    machine_type: str
    chips_per_host: int
    accelerator_label: str


class Difference(NamedTuple):
    """Where Fray deliberately departs from XPK: the fields that differ (none: the name is refused)."""

    ours: dict[str, Any] | None
    reason: str


V4_SIDE = Difference(None, "no arrangement of as many v4 chips has sides of at most 16, GKE's largest")
V5P_CHIPS = Difference(None, "GKE's largest v5p slice has 6144 chips, 12288 TensorCores")
COMPACT_V4 = "XPK makes every v4 slice 4x4xN; with sides of at most 16 only a compact one is legal"
COMPACT_TPU7X = "above 12288 TensorCores XPK takes the first arrangement that it finds; Fray the most compact"
SINGLE_HOST_2X4 = "one host of 8 chips, as Marin's Fray has it; XPK's two of 4 need chipsPerHost: 4"

V4_REFUSED = """
    v4-640 v4-896 v4-1280 v4-1408 v4-1664 v4-1792 v4-1920 v4-2176 v4-2432 v4-2560 v4-2688 v4-2816
    v4-2944 v4-3200 v4-3328 v4-3584 v4-3712 v4-3840 v4-3968 v4-4224 v4-4352 v4-4480 v4-4736 v4-4864
    v4-4992 v4-5120 v4-5248 v4-5376 v4-5504 v4-5632 v4-5760 v4-5888 v4-6016 v4-6272 v4-6400 v4-6528
    v4-6656 v4-6784 v4-6912 v4-7040 v4-7168 v4-7296 v4-7424 v4-7552 v4-7680 v4-7808 v4-7936 v4-8064
"""
V5P_REFUSED = """
    v5p-12544 v5p-12672 v5p-12800 v5p-13056 v5p-13312 v5p-13440 v5p-13568 v5p-13824 v5p-14080
    v5p-14208 v5p-14336 v5p-14592 v5p-14720 v5p-14848 v5p-14976 v5p-15104 v5p-15232 v5p-15360
    v5p-15488 v5p-15616 v5p-15744 v5p-15872 v5p-16000 v5p-16128 v5p-16384 v5p-16512 v5p-16640
    v5p-16896 v5p-17024 v5p-17280 v5p-17408 v5p-17664 v5p-17920
"""
V4_COMPACT = {
    "v4-768": "4x8x12",
    "v4-1152": "4x12x12",
    "v4-2304": "8x12x12",
    "v4-3072": "8x12x16",
    "v4-3456": "12x12x12",
    "v4-4608": "12x12x16",
    "v4-6144": "12x16x16",
    "v4-8192": "16x16x16",
}
TPU7X_COMPACT = {
    "tpu7x-12544": "8x28x28",
    "tpu7x-12672": "12x12x44",
    "tpu7x-12800": "16x20x20",
    "tpu7x-13056": "8x12x68",
    "tpu7x-13312": "8x16x52",
    "tpu7x-13440": "12x20x28",
    "tpu7x-14080": "8x20x44",
    "tpu7x-14336": "16x16x28",
    "tpu7x-14592": "8x12x76",
    "tpu7x-14848": "8x8x116",
    "tpu7x-14976": "12x12x52",
    "tpu7x-15360": "16x20x24",
    "tpu7x-15872": "8x8x124",
    "tpu7x-16000": "20x20x20",
    "tpu7x-16128": "12x24x28",
    "tpu7x-16640": "8x20x52",
    "tpu7x-16896": "12x16x44",
    "tpu7x-17280": "12x20x36",
    "tpu7x-17408": "8x16x68",
    "tpu7x-17664": "8x12x92",
}
DIFFERENCES: dict[str, Difference] = {
    **dict.fromkeys(V4_REFUSED.split(), V4_SIDE),
    **dict.fromkeys(V5P_REFUSED.split(), V5P_CHIPS),
    **{name: Difference({"topology": topology}, COMPACT_V4) for name, topology in V4_COMPACT.items()},
    **{name: Difference({"topology": topology}, COMPACT_TPU7X) for name, topology in TPU7X_COMPACT.items()},
    "v5litepod-8": Difference(
        {"hosts": 1, "machine_type": "ct5lp-hightpu-8t", "chips_per_host": 8}, SINGLE_HOST_2X4
    ),
    "v6e-8": Difference(
        {"hosts": 1, "machine_type": "ct6e-standard-8t", "chips_per_host": 8}, SINGLE_HOST_2X4
    ),
}


@pytest.fixture(scope="module")
def xpk() -> dict[str, Shape]:
    if not REFERENCE.is_file():
        missing = f"XPK's names are not at {REFERENCE}"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{missing}; put the reference file there, a CI run must compare with it")
        pytest.skip(missing)
    return {name: Shape(*value) for name, value in json.loads(REFERENCE.read_text(encoding="utf-8")).items()}


def lookup_shape(name: str, *, chips_per_host: int | None = None) -> Shape | None:
    try:
        found = lookup_tpu(name, chips_per_host=chips_per_host)
    except UnknownAcceleratorError:
        return None
    return Shape(
        found.topology, found.hosts, found.machine_type, found.chips_per_host, found.accelerator_label
    )


def test_every_name_of_xpk_that_is_not_listed_means_the_same(xpk: dict[str, Shape]) -> None:
    assert len(xpk) == NAMES_IN_REFERENCE
    compared = {name: shape for name, shape in xpk.items() if name not in DIFFERENCES}
    assert {name: lookup_shape(name) for name in compared} == compared


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_listed_difference_is_exactly_that(name: str, xpk: dict[str, Shape]) -> None:
    theirs, ours = xpk[name], lookup_shape(name)
    listed = DIFFERENCES[name].ours
    assert ours != theirs, f"{name} no longer differs: take it off the list"
    if listed is None:
        assert ours is None
    else:
        assert ours == theirs._replace(**listed)


@pytest.mark.parametrize("name", ["v5litepod-8", "v6e-8"])
def test_chips_per_host_gives_xpks_two_hosts(name: str, xpk: dict[str, Shape]) -> None:
    assert lookup_shape(name, chips_per_host=4) == xpk[name]
