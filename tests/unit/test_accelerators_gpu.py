"""What every GPU type and count means, and what is said about those that don't exist."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fray.accelerators as acc
from fray.errors import AcceleratorShapeError, UnknownAcceleratorError


@pytest.mark.parametrize(
    ("gpu", "count", "machine_types", "architecture", "most"),
    [
        ("nvidia-tesla-k80", 8, (), "amd64", 8),
        ("nvidia-tesla-p4", 2, (), "amd64", 4),
        ("nvidia-tesla-p100", 4, (), "amd64", 4),
        ("nvidia-tesla-t4", 1, (), "amd64", 4),
        ("nvidia-tesla-v100", 8, (), "amd64", 8),
        (
            "nvidia-l4",
            1,
            ("g2-standard-4", "g2-standard-8", "g2-standard-12", "g2-standard-16", "g2-standard-32"),
            "amd64",
            8,
        ),
        ("nvidia-l4", 2, ("g2-standard-24",), "amd64", 8),
        ("nvidia-l4", 4, ("g2-standard-48",), "amd64", 8),
        ("nvidia-l4", 8, ("g2-standard-96",), "amd64", 8),
        ("nvidia-tesla-a100", 1, ("a2-highgpu-1g",), "amd64", 16),
        ("nvidia-tesla-a100", 16, ("a2-megagpu-16g",), "amd64", 16),
        ("nvidia-a100-80gb", 8, ("a2-ultragpu-8g",), "amd64", 8),
        ("nvidia-h100-80gb", 1, ("a3-highgpu-1g",), "amd64", 8),
        ("nvidia-h100-80gb", 8, ("a3-highgpu-8g",), "amd64", 8),
        ("nvidia-h100-mega-80gb", 8, ("a3-megagpu-8g",), "amd64", 8),
        ("nvidia-h200-141gb", 8, ("a3-ultragpu-8g",), "amd64", 8),
        ("nvidia-b200", 8, ("a4-highgpu-8g",), "amd64", 8),
        ("nvidia-gb200", 4, ("a4x-highgpu-4g", "a4x-highgpu-4g-nolssd"), "arm64", 4),
        ("nvidia-gb300", 4, ("a4x-maxgpu-4g-metal",), "arm64", 4),
        ("nvidia-rtx-pro-6000", 1, ("g4-standard-48",), "amd64", 8),
        ("nvidia-rtx-pro-6000", 8, ("g4-standard-384",), "amd64", 8),
    ],
)
def test_gpu_type_and_count_mean_this_host(
    gpu: str, count: int, machine_types: tuple[str, ...], architecture: str, most: int
) -> None:
    found = acc.lookup_gpu(gpu, count=count)
    assert (found.type, found.count) == (gpu, count)
    assert found.machine_types == machine_types
    assert found.architecture == architecture
    assert max(acc.legal_gpu_counts(gpu)) == most


@pytest.mark.parametrize(
    ("gpu", "count", "size", "for_pods"),
    [
        ("nvidia-h100-80gb", 8, acc.HostSize(208, 1872), acc.HostSize(187, 1684)),
        ("nvidia-l4", 1, acc.HostSize(4, 16), acc.HostSize(3, 12)),
        ("nvidia-l4", 8, acc.HostSize(96, 384), acc.HostSize(86, 345)),
        ("nvidia-tesla-t4", 1, None, None),
        ("nvidia-gb300", 4, None, None),
    ],
)
def test_size_of_the_smallest_host_and_what_it_leaves_to_pods(
    gpu: str, count: int, size: acc.HostSize | None, for_pods: acc.HostSize | None
) -> None:
    found = acc.lookup_gpu(gpu, count=count).size
    assert found == size
    assert (found and found.for_pods) == for_pods


@pytest.mark.parametrize(
    ("gpu", "counts"),
    [
        ("nvidia-tesla-t4", (1, 2, 4)),
        ("nvidia-tesla-v100", (1, 2, 4, 8)),
        ("nvidia-l4", (1, 2, 4, 8)),
        ("nvidia-tesla-a100", (1, 2, 4, 8, 16)),
        ("nvidia-a100-80gb", (1, 2, 4, 8)),
        ("nvidia-h100-80gb", (1, 2, 4, 8)),
        ("nvidia-h200-141gb", (8,)),
        ("nvidia-gb200", (4,)),
    ],
)
def test_legal_gpu_counts_are_what_machines_come_with(gpu: str, counts: tuple[int, ...]) -> None:
    assert acc.legal_gpu_counts(gpu) == counts


def test_every_legal_gpu_and_count_is_a_host() -> None:
    assert len(acc.legal_gpu_types()) == 15
    for gpu in acc.legal_gpu_types():
        for count in acc.legal_gpu_counts(gpu):
            assert acc.lookup_gpu(gpu, count=count).count == count


@pytest.mark.parametrize(
    ("gpu", "count", "legal"),
    [
        ("nvidia-l4", 3, ("1", "2", "4", "8")),
        ("nvidia-tesla-t4", 8, ("1", "2", "4")),
        ("nvidia-h200-141gb", 1, ("8",)),
        ("nvidia-gb200", 8, ("4",)),
        ("nvidia-l4", 0, ("1", "2", "4", "8")),
    ],
)
def test_gpu_count_that_no_machine_has(gpu: str, count: int, legal: tuple[str, ...]) -> None:
    with pytest.raises(AcceleratorShapeError) as caught:
        acc.lookup_gpu(gpu, count=count)
    error = caught.value
    assert (error.type, error.field, error.value, error.legal) == (gpu, "count", str(count), legal)


@pytest.mark.parametrize(
    ("gpu", "nearest"),
    [
        ("h100", ("nvidia-h100-80gb", "nvidia-h100-mega-80gb")),
        ("H100", ("nvidia-h100-80gb", "nvidia-h100-mega-80gb")),
        ("NVIDIA-L4", ("nvidia-l4",)),
        ("nvidia-tesla-l4", ("nvidia-l4",)),
        ("A100-80G", ("nvidia-a100-80gb",)),
        ("a100", ("nvidia-tesla-a100", "nvidia-a100-80gb")),
        ("T4", ("nvidia-tesla-t4",)),
        ("B200", ("nvidia-b200", "nvidia-gb200")),
        ("H101", ("nvidia-h100-80gb", "nvidia-h100-mega-80gb")),
        ("A10G", ("nvidia-tesla-a100", "nvidia-a100-80gb")),
        ("nvidia-tesla-v10", ("nvidia-tesla-v100",)),
    ],
)
def test_unknown_gpu_type_lists_the_nearest(gpu: str, nearest: tuple[str, ...]) -> None:
    with pytest.raises(UnknownAcceleratorError) as caught:
        acc.lookup_gpu(gpu, count=1)
    assert (caught.value.kind, caught.value.name, caught.value.nearest) == ("GPU", gpu, nearest)
    with pytest.raises(UnknownAcceleratorError):
        acc.legal_gpu_counts(gpu)


@given(name=st.text(max_size=60))
def test_any_text_as_gpu_is_refused_with_legal_types(name: str) -> None:
    assume(name not in acc.legal_gpu_types())
    with pytest.raises(UnknownAcceleratorError) as caught:
        acc.lookup_gpu(name, count=1)
    assert 1 <= len(caught.value.nearest) <= 5
    assert set(caught.value.nearest) <= set(acc.legal_gpu_types())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("H100", "nvidia-h100-80gb"),
        ("h100", "nvidia-h100-80gb"),
        ("A100", "nvidia-tesla-a100"),
        ("A100-40G", "nvidia-tesla-a100"),
        ("A100-80G", "nvidia-a100-80gb"),
        ("T4", "nvidia-tesla-t4"),
        ("NVIDIA-L4", "nvidia-l4"),
        ("A100-80GB", "nvidia-a100-80gb"),
        ("A100-40GB", "nvidia-tesla-a100"),
        ("nvidia-a100", "nvidia-tesla-a100"),
        ("tesla-v100", "nvidia-tesla-v100"),
        ("H100-80GB", "nvidia-h100-80gb"),
        ("H100-mega-80GB", "nvidia-h100-mega-80gb"),
        ("H200-141G", "nvidia-h200-141gb"),
        *[(name, name) for name in acc.legal_gpu_types()],
    ],
)
def test_short_names_of_gpus(name: str, expected: str) -> None:
    assert acc.resolve_gpu_type(name) == expected


@pytest.mark.parametrize("name", ["A10G", "H100-40GB", "B100", "GB10", "auto", "", "tesla"])
def test_short_names_that_nothing_on_gke_has(name: str) -> None:
    with pytest.raises(UnknownAcceleratorError) as error:
        acc.resolve_gpu_type(name)
    assert set(error.value.nearest) <= set(acc.legal_gpu_types())


def test_every_gpu_has_a_short_name() -> None:
    families = ["K80", "P4", "P100", "T4", "V100", "L4", "A100", "A100-80G", "H100", "H100-mega", "H200"]
    families += ["B200", "GB200", "GB300", "RTX-PRO-6000"]
    assert {acc.resolve_gpu_type(name) for name in families} == set(acc.legal_gpu_types())
