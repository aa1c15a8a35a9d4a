"""Import paths and names of earlier APIs lead to what is there now, and to the same objects."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import fray
from fray.client import Client
from fray.cluster import LocalCluster
from fray.errors import (
    ClusterUnavailableError,
    InvalidRequestError,
    NameWithdrawnError,
    UnknownAcceleratorError,
)
from fray.job import ActorOptions
from fray.types import (
    ActorConfig,
    CpuConfig,
    Entrypoint,
    EnvironmentConfig,
    GpuConfig,
    JobRequest,
    ResourceConfig,
    TpuConfig,
    create_environment,
)


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        ("fray.v1.cluster", "fray.cluster"),
        ("fray.v1.cluster.base", "fray.cluster.base"),
        ("fray.v1.job", "fray.job"),
        ("fray.v1.job.context", "fray.job.context"),
        ("fray.v2.client", "fray.client"),
        ("fray.v2.types", "fray.types"),
        ("fray.v2.local_backend", "fray.local_backend"),
        ("fray.v2.actor", "fray.actor"),
    ],
)
def test_an_earlier_path_is_the_module_itself(earlier: str, now: str) -> None:
    module = importlib.import_module(earlier)
    assert module is importlib.import_module(now)
    assert module.__spec__ is not None
    assert module.__spec__.name == now


def test_what_is_not_there_now_is_not_there_under_an_earlier_path() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"fray\.v2\.nonsense"):
        importlib.import_module("fray.v2.nonsense")


def test_current_client_is_a_function_and_a_module() -> None:
    program = """
from fray.current_client import current_client, set_current_client
import fray, fray.current_client
assert type(fray.current_client()) is fray.Client
assert type(current_client()) is fray.Client
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_actors_by_the_names_of_an_earlier_api() -> None:
    actor = importlib.import_module("fray.actor")
    with fray.create_job_ctx("sync") as ctx:
        handle = ctx.create_actor(dict, a=1)
        future = handle.get.remote("a")
        assert isinstance(handle, actor.ActorHandle)
        assert isinstance(handle.get, actor.ActorMethod)
        local = importlib.import_module("fray.v2.local_backend")
        assert isinstance(handle, local.LocalActorHandle)
        assert isinstance(handle.get, local.LocalActorMethod)
        assert isinstance(future, actor.ActorFuture)
        assert future.result() == 1


def test_actors_are_configured_by_the_name_of_an_earlier_api() -> None:
    assert ActorConfig() == ActorOptions(max_concurrency=1)
    assert ActorConfig(max_restarts=0).max_restarts == 0
    given = ActorConfig(max_concurrency=100, max_restarts=-1, max_task_retries=2)
    assert (given.max_concurrency, given.max_restarts, given.max_task_retries) == (100, -1, 2)
    with pytest.warns(UserWarning, match="priority isn't used"):
        ActorConfig(priority=1)
    asked: list[ActorOptions] = []

    class Place(LocalCluster):
        def _create_actors(self, request: Any, options: ActorOptions, count: int) -> Any:  # noqa: ARG002
            asked.append(options)
            return [None] * count

    client = Client(Place())
    client.create_actor(dict, name="one", actor_config=given)
    client.create_actor_group(dict, name="two", count=2, actor_config=given)
    assert asked == [replace(given, name="one"), replace(given, name="two")]


def test_names_of_an_earlier_api() -> None:
    v2 = importlib.import_module("fray.v2")
    assert v2.ResourceConfig is ResourceConfig
    assert fray.get_tpu_topology("v5litepod-16") == fray.TpuTopologyInfo("v5litepod-16", 16, 4, 4, 4)
    assert fray.cluster.ANY_REGION == "*"
    assert fray.get_tpu_topology("v6e-16") in fray.TPU_TOPOLOGIES
    flops = importlib.import_module("fray.v1.device_flops")
    assert flops.DEVICE_FLOPS["h100"]["bf16"] == flops.device_flops("H100")
    assert issubclass(fray.LocalClient, fray.Client)
    fray.Client().shutdown(wait=True)
    assert flops.device_flops_for_jax_device(jax_device_kind="TPU v4") == flops.device_flops("v4-8")
    with pytest.raises(UnknownAcceleratorError):
        fray.get_tpu_topology("v5litepod-17")


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        ("fray.isolated_env", "TemporaryVenv", "pip_packages="),
        ("fray.v2.iris_backend", "FrayIrisClient", r"create_cluster\('k8s"),
        ("fray.iris_backend", "convert_resources", r"create_cluster\('k8s"),
        ("fray.job", "SimpleActor", "class of your own"),
        ("fray", "ContextConfig", "create_job_ctx"),
        ("fray.job_context", "ContextConfig", "create_job_ctx"),
        ("fray.types", "EntryPoint", r"Entrypoint\.from_callable"),
        ("fray.v2.types", "tpu_family", r"lookup_tpu\('v5p-8'\).generation"),
        ("fray.types", "TpuFamily", r"lookup_tpu\('v5p-8'\).generation"),
        ("fray.types", "TpuHostResources", r"lookup_tpu\('v5p-8'\).size"),
        ("fray.types", "TPU_HOST_RESOURCES", r"lookup_tpu\('v5p-8'\).size"),
        ("fray.types", "DEFAULT_TPU_HOST_FRACTION", "cpu= and ram="),
        ("fray.types", "TPU_HBM_BYTES_PER_CHIP", "memory_stats"),
        ("fray.types", "tpu_hbm_bytes_per_chip", "memory_stats"),
        ("fray.types", "tpu_hbm_capacity_bytes", "memory_stats"),
        ("fray.device_flops", "normalize_device_type", "device_flops"),
        ("fray.v1.device_flops", "normalize_dtype", "device_flops"),
    ],
)
def test_a_name_without_a_counterpart_says_what_to_write(module: str, name: str, instead: str) -> None:
    with pytest.raises(NameWithdrawnError, match=instead) as raised:
        exec(f"from {module} import {name}")
    assert isinstance(raised.value, ImportError)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    with pytest.raises(ImportError):
        exec(f"from {module} import nonsense")


@pytest.mark.parametrize(
    ("module", "name", "home"),
    [
        ("fray.types", "TpuRunConfig", "fray"),
        ("fray.cluster.base", "ResourceConfig", "fray.types"),
        ("fray.v1.cluster.base", "TpuConfig", "fray.types"),
        ("fray.cluster.base", "create_environment", "fray.types"),
        ("fray.cluster.base", "get_tpu_topology", "fray"),
        ("fray.cluster", "FlopDtype", "fray.device_flops"),
        ("fray", "LocalJobContext", "fray.backend.in_memory"),
        ("fray.job.context", "RayContext", "fray.job"),
    ],
)
def test_a_name_is_found_where_an_earlier_api_had_it(module: str, name: str, home: str) -> None:
    found = getattr(importlib.import_module(module), name)
    assert found is getattr(importlib.import_module(home), name)


def test_what_stands_for_facts_of_hosts_has_them() -> None:
    accelerators = importlib.import_module("fray.accelerators")
    found = accelerators.lookup_tpu("v5p-8")
    assert found.generation == "v5p"
    assert (found.size.for_pods.cpu, found.size.for_pods.memory_gb) == (187, 403)


def test_a_function_and_a_client_of_an_earlier_api() -> None:
    thunk = importlib.import_module("fray.fn_thunk")
    assert thunk.create_thunk_entrypoint(max, "gs://b/", [1, 2]) == Entrypoint.from_callable(max, [1, 2])
    with pytest.raises(ClusterUnavailableError, match="namespace"):
        fray.RayClient(namespace="mine")


def test_the_speed_of_devices() -> None:
    slices = ResourceConfig.with_tpu("v5litepod-16", slice_count=2)
    assert slices.total_flops() == slices.device_flops() * 32
    assert GpuConfig("H100", 8).total_flops() == GpuConfig("H100").device_flops() * 8
    assert CpuConfig().default_env_vars() == {"JAX_PLATFORMS": "cpu"}
    assert TpuConfig("v6e-8").default_env_vars() == {"JAX_PLATFORMS": ""}
    with pytest.raises(InvalidRequestError, match="aren't known"):
        ResourceConfig().total_flops()


def test_resources_are_scaled() -> None:
    one = ResourceConfig(cpu=4, ram="8g", disk="10g")
    two = one.scale(2)
    assert (two.cpu, two.ram, two.disk) == (8, str(16 * 2**30), str(20 * 2**30))
    half = one.scale(cpu=0.5)
    assert (half.cpu, half.ram, half.disk) == (2, "8g", "10g")
    for wrong in ({"ram": 0}, {"cpu": True}, {"disk": float("nan")}):
        with pytest.raises(InvalidRequestError, match="number above 0"):
            one.scale(**wrong)
    with pytest.raises(InvalidRequestError, match="factor for all"):
        one.scale(2, cpu=3)


def test_a_single_zone() -> None:
    assert ResourceConfig(zone="us-central1-a").zones == ("us-central1-a",)
    assert ResourceConfig(zones=["us-central1-a"]).zone == "us-central1-a"
    with pytest.raises(InvalidRequestError, match="both zones and zone"):
        ResourceConfig(zone="us-central1-a", zones=["us-central1-b"])


def test_the_first_of_several_tpu_types_is_taken_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"with_tpu\('v5litepod-8'\)"):
        chosen = ResourceConfig.with_tpu(["v5litepod-8", "v6e-8"])
    assert chosen.device == TpuConfig("v5litepod-8")
    with pytest.raises(InvalidRequestError, match="unequal hosts"):
        ResourceConfig.with_tpu(["v5litepod-8", "v6e-16"])


def test_parts_of_a_request_that_are_not_used_say_what_to_write() -> None:
    with pytest.warns(UserWarning, match="max_retries_failure=N"):
        JobRequest(name="a", entrypoint="module", max_task_failures=2)
    with pytest.warns(UserWarning, match="priority_class"):
        JobRequest(name="a", entrypoint="module", priority=5)
    with pytest.raises(InvalidRequestError, match="nproc-per-node"):
        JobRequest(name="a", entrypoint="module", processes_per_task=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        JobRequest(name="a", entrypoint="module", max_task_failures=0, priority=0, processes_per_task=1)


def test_the_fifth_argument_of_a_request_was_another_one() -> None:
    with pytest.warns(UserWarning, match=r"write max_retries_failure=2, or replicas=2") as caught:
        request = JobRequest("a", "module", ResourceConfig(), None, 2)
    assert request.max_retries_failure == 2
    assert [(each.filename, type(each.message)) for each in caught] == [(__file__, UserWarning)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = pickle.loads(pickle.dumps(JobRequest("a", "module", ResourceConfig(), None)))
    assert again == JobRequest("a", "module")


@pytest.mark.parametrize(
    "write",
    [
        lambda: ResourceConfig(device=TpuConfig("v5p-16"), replicas=4),
        lambda: ResourceConfig(1, "4g", "10g", TpuConfig("v5p-16"), 4),
        lambda: JobRequest("a", "module", ResourceConfig.with_tpu("v5p-16"), replicas=4),
    ],
    ids=["by name", "by position", "of a request"],
)
def test_replicas_of_a_tpu_were_hosts(write: Callable[[], ResourceConfig | JobRequest]) -> None:
    with pytest.warns(UserWarning, match=r"slice_count=4\), or slice_count=2 for 4 hosts in all") as caught:
        written = write()
    assert [each.filename for each in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = written if isinstance(written, ResourceConfig) else written.with_environment().gang_resources
        assert config == ResourceConfig.with_tpu("v5p-16", 4)
        assert replace(config, cpu=2).scale(2).replicas == 4
        assert pickle.loads(pickle.dumps(config)) == config


def test_replicas_that_cannot_have_been_hosts_warn_of_nothing() -> None:
    ResourceConfig(device=TpuConfig("v5p-16"), replicas=3)
    ResourceConfig(device=TpuConfig("v5p-16"), count=2)
    ResourceConfig(device=TpuConfig("v5p-8"), replicas=2)
    JobRequest("a", "module", ResourceConfig.with_tpu("v5p-8"), replicas=2)


@pytest.mark.parametrize(
    ("make", "keyword", "remedy"),
    [
        (ResourceConfig, "target_cluster", "FRAY_CLUSTER_SPEC"),
        (ResourceConfig, "device_alternatives", "with_tpu"),
        (create_environment, "setup_scripts", "setup="),
        (create_environment, "sync_packages", "pip_packages="),
        (EnvironmentConfig, "setup_scripts", "setup="),
    ],
)
def test_a_keyword_that_is_gone_says_what_to_write(make: Any, keyword: str, remedy: str) -> None:
    with pytest.raises(TypeError, match=f"{keyword}: was part of an earlier API") as caught:
        make(**{keyword: ["x"]})
    assert isinstance(caught.value, InvalidRequestError)
    assert remedy in caught.value.next_step
    with pytest.raises(TypeError, match="nonsense"):
        make(nonsense=1)


def test_the_default_of_a_keyword_that_is_gone_means_nothing() -> None:
    make: Any = ResourceConfig
    assert make(target_cluster=None, device_alternatives=None) == ResourceConfig()
    make = create_environment
    assert make(setup_scripts=None, sync_packages=None) == create_environment()


def test_what_was_a_list_is_one() -> None:
    environment = create_environment(pip_packages=("a",), extras=["tpu"])
    assert environment.pip_packages == ["a"]
    assert environment.extras == ["tpu"]


def test_a_failed_job_is_described_by_its_id_and_status() -> None:
    error = fray.client.JobFailed("train", fray.JobStatus.FAILED)
    assert (error.job_id, error.status) == ("train", "failed")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_context_by_an_earlier_spelling() -> None:
    with fray.create_context(context_type="sync") as ctx:
        assert ctx.get(ctx.run(max, 1, 2)) == 2
    from fray.job.context import create_job_ctx  # noqa: PLC0415

    assert create_job_ctx is fray.create_job_ctx
