"""Devices and resources: spellings of all generations, shapes and counts, defaults."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from fray.errors import InvalidRequestError, UnknownAcceleratorError
from fray.types import CpuConfig, DeviceConfig, GangShape, GpuConfig, ResourceConfig, TpuConfig


def test_the_defaults() -> None:
    resources = ResourceConfig()
    assert (resources.cpu, resources.ram, resources.disk) == (1, "4g", "10g")
    assert resources.device == CpuConfig()
    assert (resources.replicas, resources.count, resources.preemptible) == (1, 1, True)
    assert resources.regions is resources.zones is resources.image is None
    assert ResourceConfig.with_cpu() == resources


@pytest.mark.parametrize(
    "config",
    [
        TpuConfig("v5p-16"),
        TpuConfig(type="v5p-16"),
        TpuConfig(variant="v5p-16"),
        TpuConfig(tpu_type="v5p-16"),
        TpuConfig("v5p-16", variant="v5p-16"),
    ],
)
def test_every_spelling_of_a_tpu(config: TpuConfig) -> None:
    assert config == TpuConfig("v5p-16")
    assert (config.type, config.variant, config.kind) == ("v5p-16", "v5p-16", "tpu")
    assert (config.chip_count(), config.vm_count()) == (8, 2)


@pytest.mark.parametrize(
    "config", [GpuConfig("H100", 8), GpuConfig(variant="H100", count=8), GpuConfig(gpu_type="H100", count=8)]
)
def test_every_spelling_of_a_gpu(config: GpuConfig) -> None:
    assert config == GpuConfig(type="H100", count=8)
    assert (config.type, config.variant, config.kind, config.gke_type) == ("H100",) * 2 + (
        "gpu",
        "nvidia-h100-80gb",
    )
    assert config.chip_count() == 8


def test_a_number_of_chips_beside_a_tpu_is_kept_and_means_nothing() -> None:
    config = TpuConfig(type="v5e-16", count=8)
    assert config.count == 8
    assert config.chip_count() == 16


def test_the_kind_and_variant_of_cpu() -> None:
    assert (CpuConfig().kind, CpuConfig().variant, CpuConfig().chip_count()) == ("cpu", "cpu", 0)


def test_any_gpu() -> None:
    resources = ResourceConfig.with_gpu()
    assert resources.device == GpuConfig("auto", 1)
    assert GpuConfig("auto", 3).gke_type is GpuConfig("AUTO").gke_type is None


@pytest.mark.parametrize(
    ("resources", "shape", "chips"),
    [
        (ResourceConfig(replicas=3), (1, 3, 0), 0),
        (ResourceConfig(count=3), (1, 3, 0), 0),
        (ResourceConfig.with_gpu("H100", 8, replicas=2), (1, 2, 8), 16),
        (ResourceConfig.with_tpu("v5p-16"), (1, 2, 4), 8),
        (ResourceConfig.with_tpu("v5p-16", 2), (2, 2, 4), 16),
        (ResourceConfig.with_tpu("v5litepod-16", slice_count=2), (2, 4, 4), 32),
        (ResourceConfig.with_tpu("v6e-8"), (1, 1, 8), 8),
        (ResourceConfig.with_tpu("v6e-8", chips_per_host=4), (1, 2, 4), 8),
        (ResourceConfig.with_tpu("v5p-512", topology="4x4x16"), (1, 64, 4), 256),
    ],
)
def test_shapes_and_chips(resources: ResourceConfig, shape: tuple[int, int, int], chips: int) -> None:
    assert resources.gang_shape() == GangShape(*shape)
    assert resources.chip_count() == chips


def test_other_resources_go_through_the_short_forms() -> None:
    resources = ResourceConfig.with_tpu("v5p-8", ram="64g", cpu=32, preemptible=False, regions=["us-east5"])
    assert resources == ResourceConfig(32, "64g", "10g", TpuConfig("v5p-8"), 1, False, ["us-east5"])
    assert resources.regions == ("us-east5",)


def test_spot_nodes_only_excludes_no_spot_nodes() -> None:
    assert ResourceConfig.with_tpu("v5p-8", spot=True).spot
    with pytest.raises(InvalidRequestError, match="spot: is True and preemptible is False"):
        ResourceConfig(spot=True, preemptible=False)
    with pytest.raises(InvalidRequestError, match="spot: is 'yes'"):
        ResourceConfig(spot="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "device", [CpuConfig(), GpuConfig("L4"), TpuConfig("v6e-8", chips_per_host=4)], ids=lambda d: d.kind
)
def test_they_can_be_copied_compared_hashed_and_pickled(device: DeviceConfig) -> None:
    resources = ResourceConfig(device=device, zones=["us-east5-a"], count=2)
    assert replace(device) == device
    assert replace(resources, replicas=4).count == 4
    assert pickle.loads(pickle.dumps(resources)) == resources
    assert len({resources, replace(resources)}) == 1
    with pytest.raises(AttributeError):
        resources.replicas = 3  # type: ignore[misc]


def test_an_unknown_accelerator_is_a_value_error_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="v5p-16") as error:
        TpuConfig("v5p-15")
    assert isinstance(error.value, UnknownAcceleratorError)
