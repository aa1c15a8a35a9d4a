"""How many slices and hosts a job means, in numbers and in words."""

from __future__ import annotations

from typing import Any

import pytest

from fray.errors import AcceleratorShapeError, UnknownAcceleratorError
from fray.plan.gang import GangKind, derive_gang
from fray.testing import build_frayjob


@pytest.mark.parametrize(
    ("resources", "replicas", "shape", "words"),
    [
        ({}, 1, (1, 1), "1 copy on CPU"),
        ({}, 3, (1, 3), "3 copies on CPU"),
        ({"gpu": {"type": "nvidia-l4"}}, 1, (1, 1), "1 host with 1 nvidia-l4 each"),
        ({"gpu": {"type": "nvidia-b200", "count": 8}}, 2, (1, 2), "2 hosts with 8 nvidia-b200 each"),
        ({"tpu": {"type": "v6e-8"}}, 1, (1, 1), "1 slice of v6e-8 (1 host x 8 chips each)"),
        (
            {"tpu": {"type": "v6e-8", "chipsPerHost": 4}},
            1,
            (1, 2),
            "1 slice of v6e-8 (2 hosts x 4 chips each)",
        ),
        ({"tpu": {"type": "v5e-4"}}, 4, (4, 1), "4 slices of v5litepod-4 (1 host x 4 chips each)"),
        ({"tpu": {"type": "v5p-16"}}, 2, (2, 2), "2 slices of v5p-16 (2 hosts x 4 chips each)"),
    ],
)
def test_shapes(resources: dict[str, Any], replicas: int, shape: tuple[int, int], words: str) -> None:
    gang = derive_gang(build_frayjob(replicas=replicas, resources=resources).spec)
    assert (gang.slices, gang.hosts_per_slice) == shape
    assert gang.hosts == shape[0] * shape[1]
    assert gang.describe() == words
    assert gang.multi_host_slices == (gang.kind is GangKind.TPU and shape[1] > 1)
    assert gang.multislice == (gang.kind is GangKind.TPU and shape[0] > 1 and shape[1] > 1)


@pytest.mark.parametrize(
    ("resources", "error"),
    [
        ({"tpu": {"type": "v5p-17"}}, UnknownAcceleratorError),
        ({"tpu": {"type": "v5p-16", "topology": "4x4"}}, AcceleratorShapeError),
        ({"gpu": {"type": "h100"}}, UnknownAcceleratorError),
        ({"gpu": {"type": "nvidia-gb200", "count": 8}}, AcceleratorShapeError),
    ],
)
def test_hardware_that_does_not_exist_is_a_typed_error(
    resources: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        derive_gang(build_frayjob(resources=resources).spec)
