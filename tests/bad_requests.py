"""What no request, and no part of one, can be made of, and what the error tells (a regular expression)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

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

__all__ = ["ALL_BAD"]


def main() -> None:
    return None


def request(**parts: Any) -> JobRequest:
    return JobRequest(**{"name": "train", "entrypoint": main, **parts})


def environment(**parts: Any) -> EnvironmentConfig:
    return create_environment(docker_image="x", **parts)


class Unshowable:
    """A value whose own code fails when an error is to show it."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


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
    (lambda: request(name=b"train"), "is of type bytes, not text"),
    (lambda: request(name=Unshowable()), "is of type Unshowable"),
    (lambda: request(name="a\u00a0b"), "can't be printed"),
    (lambda: request(entrypoint=["python", "train.py"]), "is of type list"),
    (lambda: request(entrypoint=b"train"), "is of type bytes"),
    (lambda: request(entrypoint="-m"), "no module's name"),
    (lambda: request(entrypoint="train", entrypoint_args=None), "is of type NoneType"),
    (lambda: request(entrypoint="train", entrypoint_args=b"ab"), "is of type bytes, not a list"),
    (lambda: request(entrypoint="train", entrypoint_args=(x for x in "ab")), "is of type generator"),
    (lambda: request(entrypoint="train", entrypoint_args={"steps": 1}), "is of type dict, not a list"),
    (lambda: request(max_retries_failure="3"), "is '3'"),
    (lambda: request(max_retries_failure=None), "is None"),
    (lambda: request(max_retries_preemption=10**9), "to 1000000"),
    (lambda: request(max_retries_preemption=10**5000), "is of type int\n"),
    (lambda: request(max_retries_failure=Unshowable()), "is of type Unshowable"),
    (lambda: request(replicas=2.0), "is 2.0"),
    (lambda: request(replicas=10**5), "to 10000"),
    (lambda: request(timeout=-1), "is -1"),
    (lambda: request(timeout=True), "is True"),
    (lambda: request(timeout=10**400), "seconds above 0"),
    (lambda: request(timeout=timedelta.max), "68 years"),
    (lambda: request(timeout=timedelta(-1)), "seconds above 0"),
    (lambda: request(timeout=Unshowable()), "is of type Unshowable"),
    (lambda: request(priority_class=3), "JobRequest.priority_class"),
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
    (lambda: ResourceConfig(cpu=float("nan")), "no number of cores"),
    (lambda: ResourceConfig(cpu=True), "is True"),
    (lambda: ResourceConfig(cpu=10**400), "no number of cores"),
    (lambda: ResourceConfig(cpu=10**5000), "is of type int"),
    (lambda: ResourceConfig(cpu=Unshowable()), "is of type Unshowable"),  # type: ignore[arg-type]
    (lambda: ResourceConfig(ram=None), "is None, no size"),  # type: ignore[arg-type]
    (lambda: ResourceConfig(ram=10**5000), "is of type int, no size"),
    (lambda: ResourceConfig(ram="9" * 5000 + "g"), r"is '9{79}\.\.\., no size"),
    (lambda: ResourceConfig(ram="1e999g"), "no size"),
    (lambda: ResourceConfig(ram=b"4g"), "is b'4g', no size"),  # type: ignore[arg-type]
    (lambda: ResourceConfig(disk="\N{FULLWIDTH DIGIT FOUR}g"), "no size"),
    (lambda: ResourceConfig(disk=0), "1 MiB to 8 EiB"),
    (lambda: ResourceConfig(device=Unshowable()), "is of type Unshowable"),  # type: ignore[arg-type]
    (lambda: ResourceConfig(preemptible=Unshowable()), "is of type Unshowable"),  # type: ignore[arg-type]
    (lambda: ResourceConfig(zones=[]), "could run nowhere"),
    (lambda: ResourceConfig(image="python 3.12"), "with spaces"),
    (lambda: ResourceConfig(image=5), "is of type int"),  # type: ignore[arg-type]
    (lambda: TpuConfig(8), "is of type int"),  # type: ignore[arg-type]
    (lambda: TpuConfig("v5p-16", chips_per_host=True), "is True"),
    (lambda: TpuConfig([Unshowable()]), "Choose one, such as of type"),  # type: ignore[arg-type]
    (lambda: GpuConfig("L4", "2"), "is '2'"),  # type: ignore[arg-type]
    (lambda: ResourceConfig.with_tpu("v5p-8", "2"), "is '2'"),  # type: ignore[arg-type]
    (lambda: ResourceConfig.with_tpu([]), "non-empty"),  # type: ignore[arg-type]
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
    (lambda: environment(cache_volume=3), "is of type int"),
    (lambda: EnvironmentConfig(workspace=b"."), "is of type bytes"),  # type: ignore[arg-type]
    (lambda: EnvironmentConfig(docker_image="a b"), "with spaces"),
    (lambda: EnvironmentConfig(docker_image="a\n"), "with spaces"),
    (lambda: EnvironmentConfig(docker_image="x", env_vars={"A": None}), "is of type NoneType"),  # type: ignore[dict-item]
    (lambda: environment(env_vars={1: "a"}), "has the name 1"),
    (lambda: environment(env_vars={Unshowable(): "a"}), "has the name of type Unshowable"),
    (lambda: environment(env_vars={"A": "\ud800"}), "no variable can"),
    (lambda: environment(pip_packages=[1]), "pip_packages\\[0\\]: is of type int"),
    (lambda: environment(setup=["a\0b"]), "setup\\[0\\]"),
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
    (lambda: Entrypoint.from_module(3), "is of type int"),  # type: ignore[arg-type]
    (lambda: Entrypoint("train"), "Entrypoint.callable_entrypoint: is of type str"),  # type: ignore[arg-type]
    (lambda: Entrypoint(None, ["train"]), "binary_entrypoint: is of type list"),  # type: ignore[arg-type]
    (lambda: Entrypoint.from_command(Path("x")), "is of type PosixPath"),  # type: ignore[arg-type]
    (lambda: Entrypoint.from_command({"a"}), "is of type set"),  # type: ignore[arg-type]
    (lambda: Entrypoint.from_command([["a"]]), "args\\[0\\]: is of type list"),  # type: ignore[list-item]
    (lambda: Entrypoint.from_command(["a\ud800"]), "args\\[0\\]: holds a character"),
    (lambda: Entrypoint.from_callable("main"), "can't be called"),  # type: ignore[arg-type]
    (lambda: Entrypoint.from_callable(main, (x for x in "a")), "is of type generator"),  # type: ignore[arg-type]
    (lambda: Entrypoint.from_callable(main, [], [("a", 1)]), "by name"),  # type: ignore[arg-type]
]
ALL_BAD: Final = (*BAD_REQUESTS, *BAD_RESOURCES, *BAD_SURROUNDINGS, *BAD_ENTRYPOINTS)
