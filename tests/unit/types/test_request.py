"""Job requests as users of every earlier API wrote them."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import fields, replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

import fray
import fray.cluster
from fray import types
from fray.errors import InvalidRequestError
from fray.types import Entrypoint, JobRequest, JobStatus, ResourceConfig, TpuConfig, create_environment


def main() -> None:
    return None


def test_a_module_with_arguments() -> None:
    request = JobRequest(
        name="my-job",
        entrypoint="my_module.main",
        entrypoint_args=["--config", "path/to/config.yaml"],
        environment=create_environment(),
    )
    argv = ["python3", "-m", "my_module.main", "--config", "path/to/config.yaml"]
    assert request.entrypoint == "my_module.main"
    assert request.resolve_entrypoint() == Entrypoint.from_command(argv)


def test_a_tpu_job_of_the_first_cluster_api() -> None:
    request = JobRequest(
        name="tpu-training",
        entrypoint="train",
        resources=ResourceConfig(cpu=96, ram="512g", device=TpuConfig(type="v5e-16", count=8)),
        environment=create_environment(
            extra_dependency_groups=["tpu"], env_vars={"WANDB_API_KEY": "your-key"}
        ),
    )
    assert request.gang_resources.gang_shape() == (1, 4, 4)
    assert "your-key" not in repr(request)


def test_a_job_of_the_migration_guide() -> None:
    with pytest.warns(UserWarning, match="read as 16 GiB"):
        resources = ResourceConfig(
            cpu=1,
            ram="16",
            disk="10g",
            device=TpuConfig(type="v5litepod-4"),
            replicas=1,
            regions=["eu-west4"],
        )
    entrypoint = Entrypoint(callable=main, function_args={"model": object()})
    request = JobRequest(name="vllm-inference-pool", entrypoint=entrypoint, resources=resources)
    assert request.resolve_entrypoint() is entrypoint
    assert request.environment is None
    assert request.with_environment().environment == create_environment()


@pytest.mark.parametrize(
    "function", [main, partial(print, "x"), JobRequest], ids=["function", "partial", "class"]
)
def test_a_bare_callable(function: Any) -> None:
    request = JobRequest("train", function)
    assert request.entrypoint is function
    assert request.resolve_entrypoint() == Entrypoint.from_callable(function)


def test_the_defaults() -> None:
    request = JobRequest("train", main)
    assert request.resources == ResourceConfig()
    assert (request.max_retries_failure, request.max_retries_preemption) == (0, 100)
    assert request.timeout_seconds is request.queue is request.service_account is None


def test_an_environment_that_is_there_stays() -> None:
    request = JobRequest("train", main, environment=create_environment(docker_image="x"))
    complete = request.with_environment()
    assert complete.environment is request.environment
    assert complete.with_environment() is complete


def test_a_complete_request_says_the_same() -> None:
    request = JobRequest(
        "train", "train.main", entrypoint_args=["--fast"], replicas=3, timeout=7, queue="tpu"
    )
    complete = request.with_environment()
    for field in fields(request):
        if field.name != "environment":
            assert getattr(complete, field.name) == getattr(request, field.name)
    assert repr(complete).startswith("CompleteRequest(name='train', ")
    assert pickle.loads(pickle.dumps(complete)) == complete


def test_a_complete_request_has_an_environment() -> None:
    with pytest.raises(InvalidRequestError, match=r"is missing\nUse JobRequest.with_environment"):
        replace(JobRequest("train", main).with_environment(), environment=None)


@pytest.mark.parametrize(
    ("timeout", "seconds"), [(90, 90), (0.5, 1), (timedelta(minutes=2), 120), (1.0, 1), (None, None)]
)
def test_time_limits_are_whole_seconds(timeout: Any, seconds: int | None) -> None:
    assert JobRequest("train", main, timeout=timeout).timeout_seconds == seconds


def test_its_own_replicas_come_first() -> None:
    request = JobRequest("train", main, ResourceConfig.with_tpu("v5p-8"), replicas=3)
    assert request.gang_resources.gang_shape() == (3, 1, 4)
    assert request.resources.replicas == 1


def test_it_can_be_copied_and_pickled() -> None:
    request = JobRequest("train_lm", main, environment=create_environment(docker_image="x"), timeout=3)
    assert pickle.loads(pickle.dumps(request)) == request == replace(request)
    assert replace(request, name="b").name == "b"


def test_statuses_are_texts_and_know_their_ends() -> None:
    assert JobStatus.RUNNING == "running"
    ended = [status for status in JobStatus if JobStatus.finished(status)]
    assert ended == ["succeeded", "failed", "stopped"]


def test_the_same_names_everywhere() -> None:
    assert set(types.__all__) <= set(fray.__all__)
    assert set(types.__all__) <= set(fray.cluster.__all__) == set(dir(fray.cluster))
    assert sorted(fray.cluster.__all__) == fray.cluster.__all__
    for name in fray.cluster.__all__:
        assert getattr(fray, name) is getattr(fray.cluster, name)
    for name in types.__all__:
        assert getattr(fray, name) is getattr(fray.cluster, name) is getattr(types, name)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = fray.cluster.nonsense


def test_requests_are_made_without_pydantic_or_yaml() -> None:
    program = (
        "import sys; from fray import JobRequest, ResourceConfig, create_environment;"
        "JobRequest('a', print, ResourceConfig.with_tpu('v5p-8'), create_environment());"
        "print(sorted({'pydantic', 'pydantic_core', 'yaml', 'kubernetes', 'asyncio'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
