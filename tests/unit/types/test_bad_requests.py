"""What means nothing is refused in the line that holds it, by an error that says what to write."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from fray.errors import AcceleratorShapeError, InvalidRequestError, RequestError, UnknownAcceleratorError
from fray.types import GpuConfig, ResourceConfig, TpuConfig
from tests.bad_requests import ALL_BAD


@pytest.mark.parametrize(("make", "told"), ALL_BAD, ids=[f"{index}" for index in range(len(ALL_BAD))])
def test_it_is_refused_with_what_to_write(make: Callable[[], object], told: str) -> None:
    with pytest.raises(InvalidRequestError, match=told) as caught:
        make()
    error = caught.value
    assert isinstance(error, RequestError)
    assert isinstance(error, ValueError)
    assert error.next_step.endswith((".", ".)"))
    assert str(error) == f"{error.message}\n{error.next_step}"
    assert "s3" not in str(error), "values of variables are shown nowhere"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: TpuConfig("v5p-15"), "v5p-16"),
        (lambda: TpuConfig("v5litepod-2"), "v5litepod-1, v5litepod-4"),
        (lambda: TpuConfig("H100"), "nearest legal"),
        (lambda: ResourceConfig.with_tpu(tpu_type="V5P-8"), "v5p-8"),
        (lambda: GpuConfig("H1000"), "nvidia-h"),
        (lambda: GpuConfig("A10G"), "nearest legal"),
    ],
)
def test_accelerators_that_do_not_exist(make: Callable[[], object], told: str) -> None:
    with pytest.raises(UnknownAcceleratorError, match=told) as caught:
        make()
    assert isinstance(caught.value, ValueError)
    assert caught.value.nearest


@pytest.mark.parametrize(
    ("make", "legal"),
    [
        (lambda: TpuConfig("v5p-16", topology="4x4"), ("2x2x2",)),
        (lambda: TpuConfig("v5p-16", chips_per_host=8), ("4",)),
        (lambda: GpuConfig("H100", 3), ("1", "2", "4", "8")),
        (lambda: GpuConfig("B200"), ("8",)),
    ],
)
def test_shapes_that_accelerators_do_not_have(make: Callable[[], object], legal: tuple[str, ...]) -> None:
    with pytest.raises(AcceleratorShapeError) as caught:
        make()
    assert isinstance(caught.value, ValueError)
    assert caught.value.legal == legal
