"""What means nothing is refused in the line that holds it, by an error that says what to write."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from fray.errors import AcceleratorShapeError, InvalidRequestError, RequestError, UnknownAcceleratorError
from fray.types import (
    CallableEntrypoint,
    CpuConfig,
    Entrypoint,
    EnvironmentConfig,
    GpuConfig,
    JobRequest,
    ResourceConfig,
    TpuConfig,
    create_environment,
)


def main() -> None:
    return None


def request(**parts: Any) -> JobRequest:
    return JobRequest(**{"name": "train", "entrypoint": main, **parts})


def environment(**parts: Any) -> EnvironmentConfig:
    return create_environment(docker_image="x", **parts)


Bad = tuple[Callable[[], object], str]

BAD_REQUESTS: list[Bad] = [
    (lambda: request(name="train lm"), "Job name must not contain spaces"),
    (lambda: request(name="train lm"), "Use 'train-lm'"),
    (lambda: request(name=""), "JobRequest.name: is empty"),
    (lambda: request(name=7), "is of type int, not text"),
    (lambda: request(name="a\nb"), "can't be printed"),
    (lambda: request(name="a\ud800b"), "UTF-8"),
    (lambda: request(name="a" * 254), "254 characters"),
    (lambda: request(entrypoint=None), "is of type NoneType"),
    (lambda: request(entrypoint="python train.py"), "from_command\\(\\['python', 'train.py'\\]\\)"),
    (lambda: request(entrypoint="train.py"), "a file\nRun a file with"),
    (lambda: request(entrypoint="my-module"), "no module's name"),
    (lambda: request(entrypoint=""), "is empty"),
    (lambda: request(entrypoint_args=["--fast"]), "belong to the name of a module"),
    (lambda: request(entrypoint="train", entrypoint_args="--fast"), "is of type str, not a list"),
    (lambda: request(entrypoint="train", entrypoint_args=[1]), "numbers as str\\(10\\)"),
    (lambda: request(entrypoint="train", entrypoint_args=5), "is of type int, not a list"),
    (lambda: request(resources={"cpu": 1}), "Give a ResourceConfig"),
    (lambda: request(resources=TpuConfig("v5p-8")), "is of type TpuConfig"),
    (lambda: request(environment={"A": "1"}), "Give create_environment"),
    (lambda: request(max_retries_failure=-1), "whole number from 0"),
    (lambda: request(max_retries_preemption=1.5), "whole number from 0"),
    (lambda: request(max_retries_preemption=True), "is True"),
    (lambda: request(replicas=0), "whole number from 1"),
    (lambda: request(timeout=0), "seconds above 0"),
    (lambda: request(timeout="1h"), "is '1h'"),
    (lambda: request(timeout=float("nan")), "seconds above 0"),
    (lambda: request(timeout=float("inf")), "seconds above 0"),
    (lambda: request(queue=""), "JobRequest.queue: is empty"),
    (lambda: request(service_account=3), "JobRequest.service_account"),
]
BAD_RESOURCES: list[Bad] = [
    (lambda: ResourceConfig(cpu=0), "ResourceConfig.cpu: is 0"),
    (lambda: ResourceConfig(cpu="many"), "no number of cores"),
    (lambda: ResourceConfig(ram="plenty"), "ResourceConfig.ram: is 'plenty'"),
    (lambda: ResourceConfig(disk="-1g"), "ResourceConfig.disk"),
    (lambda: ResourceConfig(device="v5p-8"), "with_tpu"),  # type: ignore[arg-type]
    (lambda: ResourceConfig(device=TpuConfig), "no device"),  # type: ignore[arg-type]
    (lambda: ResourceConfig(replicas=0), "whole number from 1"),
    (lambda: ResourceConfig(replicas=2, count=3), "both replicas and count"),
    (lambda: ResourceConfig(preemptible="no"), "keep off them"),  # type: ignore[arg-type]
    (lambda: ResourceConfig(regions="us-east5"), "is of type str, not a list"),
    (lambda: ResourceConfig(regions=[]), "could run nowhere"),
    (lambda: ResourceConfig(regions=["*", "us-east5"]), "beside others"),
    (lambda: ResourceConfig(zones=[None]), "zones\\[0\\]"),  # type: ignore[list-item]
    (lambda: ResourceConfig(image=" "), "Name an image"),
    (lambda: ResourceConfig.with_tpu("v5p-8", replicas=2), "Use slice_count"),
    (lambda: ResourceConfig.with_tpu("v5p-8", device=CpuConfig()), "Use tpu_type"),
    (lambda: ResourceConfig.with_tpu("v5p-8", 0), "replicas: is 0"),
    (lambda: ResourceConfig.with_tpu(["v5p-8", "v6e-8"]), "Choose one, such as 'v5p-8'"),  # type: ignore[arg-type]
    (lambda: ResourceConfig.with_gpu("L4", device=CpuConfig()), "Use gpu_type"),
    (lambda: ResourceConfig.with_cpu(device=GpuConfig("L4")), "with_tpu or with_gpu"),
    (TpuConfig, "Name a slice type"),
    (lambda: TpuConfig("v5p-8", variant="v5p-16"), "both type and variant"),
    (lambda: TpuConfig("v5p-8", count=0), "TpuConfig.count"),
    (lambda: TpuConfig("v6e-8", chips_per_host=9), "whole number from 1 to 8"),
    (lambda: TpuConfig("v5p-8", topology=4), "'4x4'"),  # type: ignore[arg-type]
    (GpuConfig, "Name a GPU type"),
    (lambda: GpuConfig("L4", count=0), "GpuConfig.count"),
]
BAD_SURROUNDINGS: list[Bad] = [
    (lambda: EnvironmentConfig(workspace=".", docker_image="x"), "Cannot specify both workspace and docker"),
    (EnvironmentConfig, "Must specify either workspace or docker_image"),
    (lambda: EnvironmentConfig(workspace=""), "Give a directory"),
    (lambda: EnvironmentConfig(workspace=3), "is of type int, not text"),  # type: ignore[arg-type]
    (lambda: EnvironmentConfig(docker_image=""), "Name an image"),
    (lambda: environment(pip_packages="numpy"), "is of type str, not a list"),
    (lambda: environment(pip_packages=["numpy", ""]), "pip_packages\\[1\\]: is empty"),
    (lambda: environment(extras={"tpu": 1}), "is of type dict"),
    (lambda: environment(extras=["tpu"], extra_dependency_groups=["gpu"]), "both extras and extra_dep"),
    (lambda: environment(env_vars={"A": 1}), "env_vars\\['A'\\]: is of type int, not text"),
    (lambda: environment(env_vars={"A=B": "1"}), "without '='"),
    (lambda: environment(env_vars={"": "1"}), "has the name ''"),
    (lambda: environment(env_vars={"A": "s3\0cret"}), "no variable can\nTake it out"),
    (lambda: environment(env_vars=["A=1"]), "is of type list, not a mapping"),
    (lambda: environment(setup="make"), "Give a list of shell commands"),
    (lambda: environment(secrets=[""]), "names of Secrets"),
    (lambda: environment(cache_volume=""), "PersistentVolumeClaim"),
]
BAD_ENTRYPOINTS: list[Bad] = [
    (Entrypoint, "names nothing to run"),
    (lambda: Entrypoint(binary="a", callable=main), "more than one thing"),
    (lambda: Entrypoint(callable=main, args=["a"]), "needs binary"),
    (lambda: Entrypoint(binary="a", function_args={}), "needs callable"),
    (lambda: Entrypoint(callable=main, function_args=[1]), "by name"),  # type: ignore[arg-type]
    (lambda: Entrypoint(callable=main, function_args={1: 2}), "by name"),  # type: ignore[dict-item]
    (lambda: Entrypoint.from_callable(main()), "not what it returns"),  # type: ignore[func-returns-value]
    (lambda: CallableEntrypoint(main, args="abc"), "as a list"),
    (lambda: CallableEntrypoint(main, args=5), "as a list"),  # type: ignore[arg-type]
    (lambda: Entrypoint.from_command("python train.py"), "\\['python', 'train.py'\\]"),
    (lambda: Entrypoint.from_command([]), "is empty"),
    (lambda: Entrypoint.from_command([""]), "Name a program"),
    (lambda: Entrypoint.from_command(["echo", "a\0b"]), "args\\[1\\]"),
    (lambda: Entrypoint.from_binary("train", "--fast"), "is of type str"),
    (lambda: Entrypoint.from_binary("train", [b"x"]), "is of type bytes"),  # type: ignore[list-item]
    (lambda: Entrypoint.from_module("a..b"), "no module's name"),
]
ALL_BAD = [*BAD_REQUESTS, *BAD_RESOURCES, *BAD_SURROUNDINGS, *BAD_ENTRYPOINTS]


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
