"""What the adapters of the first API refuse, and where its names can be imported from."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fray
from fray.cluster import ClusterContext, RayCluster, create_cluster
from fray.errors import (
    ClusterUnavailableError,
    ContextUnavailableError,
    InvalidRequestError,
    UnsupportedFeatureError,
)
from fray.job import JobContext
from fray.legacy.cluster_context import ContextJob, RayClusterContext
from fray.types import Resource, RuntimeEnv

CPU, MEMORY = Resource("CPU", 4), Resource("memory", 8 * 1024**3)


def test_an_environment_and_its_hosts() -> None:
    env = RuntimeEnv(["numpy"], [CPU, MEMORY], [Resource("CPU", 8)], {"A": "b"}, extras=["tpu"])
    environment, resources = env.to_environment(), env.to_resources()
    assert (environment.pip_packages, environment.extras) == (["numpy"], ["tpu"])
    assert environment.env_vars["A"] == "b"
    assert (resources.cpu, resources.ram) == (4, 8 * 1024**3)
    assert "'b'" not in repr(env)
    assert RuntimeEnv(container_image="gcr.io/p/i:v1").to_environment().docker_image == "gcr.io/p/i:v1"
    assert RuntimeEnv(minimum_resources=[Resource("CPU", 0)]).to_resources() == RuntimeEnv().to_resources()


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"package_requirements": [7]}, "package_requirements"),
        ({"package_requirements": "numpy"}, "not a list of texts"),
        ({"package_requirements": [" "]}, "is empty"),
        ({"env": {"A": 1}}, "not text"),
        ({"env": {1: "A"}}, "name"),
        ({"env": ["A"]}, "not a mapping"),
        ({"minimum_resources": [("CPU", 1)]}, "holds a tuple"),
        ({"minimum_resources": CPU}, "is of type Resource"),
        ({"minimum_resources": [MEMORY, CPU], "maximum_resources": [Resource("CPU", 3)]}, "exceeds"),
        ({"container_image": "two words"}, "image"),
        ({"extras": "tpu"}, "not a list of texts"),
    ],
    ids=str,
)
def test_what_means_nothing_is_refused(parts: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRequestError, match=told) as caught:
        RuntimeEnv(**parts)
    assert caught.value.next_step


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"package_requirements": [7]}, "must be strings"),
        ({"env": {1: "A"}}, "env keys must be strings"),
        ({"env": {"A": 1}}, "env values must be strings"),
    ],
    ids=str,
)
def test_what_is_no_text_is_a_type_error_as_it_was(parts: dict[str, Any], told: str) -> None:
    with pytest.raises(TypeError, match=told):
        RuntimeEnv(**parts)
    with pytest.raises(ValueError, match="cannot contain empty strings"):
        RuntimeEnv([" "])


@pytest.mark.parametrize("quantity", [-1, float("nan"), "4", True])
def test_quantities(quantity: Any) -> None:
    with pytest.raises(InvalidRequestError):
        Resource("CPU", quantity)


def test_accelerators_are_asked_for_by_type() -> None:
    with pytest.raises(UnsupportedFeatureError, match="with_tpu"):
        RuntimeEnv(minimum_resources=[Resource("TPU", 4)]).to_resources()


@pytest.mark.parametrize("entrypoint", ["", "  ", None, 7])
def test_what_can_not_be_run(entrypoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAY_STATE_DIR", str(tmp_path))
    with create_cluster("local") as cluster:
        context = ClusterContext(cluster)
        with pytest.raises(InvalidRequestError, match="entrypoint"):
            context.create_job(entrypoint)
        assert context.list_jobs() == []
        with pytest.raises(KeyError):
            context.delete_job("nobody")


def test_a_job_by_attribute_and_by_key() -> None:
    job = ContextJob("train", "RUNNING", 1.0)
    assert (job["id"], job["status"], job["submission_time"]) == (job.id, job.status, job.submission_time)
    with pytest.raises(KeyError):
        _ = job["__class__"]


@pytest.mark.parametrize("kind", [RayCluster, RayClusterContext])
def test_clusters_on_ray_need_ray(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterUnavailableError, match=r"pip install 'fray\[ray\]'"):
        kind("auto")


@pytest.mark.parametrize(
    ("name", "package", "extra"), [("RayContext", "ray", "ray"), ("DaskContext", "distributed", "dask")]
)
def test_a_context_of_another_engine_needs_its_package(
    name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ContextUnavailableError, match=rf"pip install 'fray\[{extra}\]'"):
        getattr(fray, name)()


HOMES = [
    (
        "fray",
        "ClusterContext LocalClusterContext RayClusterContext RayCluster RuntimeEnv Resource",
    ),
    ("fray.types", "ActorOptions Lifetime TaskOptions RuntimeEnv Resource"),
    ("fray.cluster", "ClusterContext LocalClusterContext RayCluster"),
    ("fray.cluster.ray", "RayCluster"),
    (
        "fray.cluster.types",
        "JobRequest ResourceConfig TpuConfig EnvironmentConfig JobInfo",
    ),
    ("fray.cluster.local_cluster", "LocalCluster LocalClusterConfig"),
    ("fray.job_context", "RayContext DaskContext ExecutionContext"),
    ("fray.backend.in_memory", "LocalClusterContext LocalJobContext"),
    ("fray.backend.ray.ray_deps", "build_runtime_env_for_packages"),
]


@pytest.mark.parametrize(("home", "names"), HOMES, ids=[home for home, _ in HOMES])
def test_names_can_be_imported_from_where_they_were(home: str, names: str) -> None:
    module = importlib.import_module(home)
    for name in names.split():
        found = getattr(module, name)
        assert found is getattr(fray, name, found)


def test_the_types_import_nothing_of_the_first_api_unless_asked() -> None:
    asked = "assert not hasattr(fray.types, 'nonsense'); assert 'fray.legacy' not in sys.modules"
    wanted = "from fray.types import RuntimeEnv; assert 'fray.cluster' not in sys.modules"
    subprocess.run([sys.executable, "-c", f"import sys, fray.types; {asked}; {wanted}"], check=True)
    assert JobContext is fray.JobContext
