"""A FrayJob as a Ray job, and a Ray job as a FrayJob."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from ray.job_submission import JobStatus

from fray.cluster.progress import describe_frayjob
from fray.cluster.ray import RayCluster, job_api
from fray.cluster.ray.bundle import decode_line, encode_line
from fray.cluster.ray.submission import (
    RayJob,
    build_metadata,
    build_resources,
    build_submission,
    build_withdrawal,
    derive_job,
    read_submitted,
    read_withdrawn,
)
from fray.errors import InvalidJobError, UnsupportedFeatureError
from fray.plan.status import is_finished
from fray.types import EnvironmentConfig, JobId, JobRequest, LogLine, ResourceConfig, TpuConfig
from fray.vocabulary import ANNOTATION_LAUNCH
from fray.wire.frayjob import FrayJob
from tests.unit.cluster.local_jobs import frayjob

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def launched(**parts: Any) -> FrayJob:
    job = frayjob(name="train", **parts)
    metadata = job.metadata.model_copy(update={"annotations": {ANNOTATION_LAUNCH: "a" * 32}})
    return job.model_copy(update={"metadata": metadata})


def ray_job(status: str, **parts: Any) -> RayJob:
    return RayJob("train", status, build_metadata(launched()), **parts)


@pytest.mark.parametrize(
    ("spec", "resources"),
    [
        ({"resources": {"cpu": "500m", "memory": "1Gi"}}, {"CPU": 0.5, "memory": 2**30}),
        ({"replicas": 3, "resources": {"cpu": "500m", "memory": "1Gi"}}, {"CPU": 2, "memory": 3 * 2**30}),
        (
            {"replicas": 2, "resources": {"gpu": {"type": "nvidia-h100-80gb", "count": 4}}},
            {"GPU": 8, "accelerator_type:H100": 0.001},
        ),
        ({"resources": {"gpu": {"type": "nvidia-tesla-t4"}}}, {"GPU": 1, "accelerator_type:T4": 0.001}),
        ({"resources": {"tpu": {"type": "v6e-8"}}}, {"TPU": 8, "TPU-v6e-8-head": 1}),
        ({"placement": {"preemptible": False}}, {"node:__internal_head__": 0.0001}),
    ],
)
def test_what_ray_is_asked_for(spec: dict[str, Any], resources: dict[str, float]) -> None:
    assert build_resources(launched(**spec).spec) == resources


@pytest.mark.parametrize("spec", [{"tpu": "v5p-16"}, {"tpu": "v6e-8", "replicas": 2}])
def test_a_slice_of_several_hosts_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedFeatureError, match="on one node"):
        build_resources(launched(**spec).spec)


def test_a_submission_is_ray_s_own_words() -> None:
    job = launched(
        resources={"cpu": "2", "memory": "1Gi", "tpu": {"type": "v6e-1"}},
        environment={"pipPackages": ["einops"]},
    )
    arguments = build_submission(job, grace_seconds=30.0, bundle="/bundle")
    metadata = arguments.pop("metadata")
    assert read_submitted(RayJob("train", "PENDING", metadata)) == job
    assert arguments == {
        "entrypoint": "exec python3 -m fray.cluster.ray.driver fray/train-aaaaaaaa",
        "submission_id": "train",
        "runtime_env": {
            "working_dir": "/bundle",
            "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "45"},
            "pip": ["einops"],
        },
        "entrypoint_num_cpus": 2,
        "entrypoint_memory": 2**30,
        "entrypoint_resources": {"TPU": 1, "TPU-v6e-1-head": 1},
    }


def test_what_ray_could_not_hand_on_is_refused() -> None:
    with pytest.raises(InvalidJobError, match=r"of the 100,000 that Ray hands on"):
        build_metadata(launched(entrypoint={"command": ["echo", "x" * 120_000]}))


def test_other_ray_jobs_are_no_jobs() -> None:
    assert read_submitted(RayJob("etl", "RUNNING", {"team": "data"})) is None
    withdrawal = RayJob("raysubmit_1", "RUNNING", build_withdrawal("train")["metadata"])
    assert (read_submitted(withdrawal), read_withdrawn(withdrawal)) == (None, "train")


@pytest.mark.parametrize(
    ("found", "withdrawn", "status", "reason"),
    [
        (ray_job("PENDING", message="no room"), False, "pending", "HostsStarting"),
        (ray_job("RUNNING", node="n"), False, "pending", "HostsStarting"),
        (ray_job("PENDING"), True, "stopped", "StopRequested"),
        (ray_job("FAILED"), True, "stopped", "StopRequested"),
        (ray_job("FAILED", node="n", message="no module fray"), False, "failed", "StartFailed"),
        (ray_job("STOPPED", node="n"), False, "stopped", "StopRequested"),
    ],
)
def test_how_a_job_stands_before_it_tells(found: RayJob, withdrawn: bool, status: str, reason: str) -> None:
    info = describe_frayjob(derive_job(launched(), found, None, withdrawn=withdrawn, now=NOW))
    assert (info.status, info.reason) == (status, reason)
    assert (found.message or "") in (info.error_message or info.pending_reason or "")


@pytest.mark.parametrize(
    ("nodes", "reason", "told"),
    [
        ([{"CPU": 1.0}, {"CPU": 2.0}], "Unschedulable", "no node of Ray has CPU: 3; the job waits"),
        ([{"CPU": 1.0}, {"CPU": 3.0}], "HostsStarting", "held back"),
        ([], "HostsStarting", "held back"),
    ],
)
def test_a_job_that_no_node_can_ever_hold_says_for_what_it_waits(
    nodes: list[dict[str, float]], reason: str, told: str
) -> None:
    job, found = launched(resources={"cpu": 3}), ray_job("PENDING", message="held back")
    info = describe_frayjob(derive_job(job, found, None, withdrawn=False, now=NOW, nodes=nodes))
    assert info.reason == reason
    assert told in (info.pending_reason or "")


def test_what_the_program_tells_counts() -> None:
    told = derive_job(launched(), ray_job("STOPPED", ended_at=1.0), None, withdrawn=False, now=NOW)
    assert is_finished(told.status)
    assert told.status.completion_time == "1970-01-01T00:00:01.000Z"
    later = derive_job(launched(), ray_job("FAILED", node="n"), told, withdrawn=False, now=NOW)
    assert later == told


def test_a_program_that_is_lost_has_failed() -> None:
    waiting = derive_job(launched(), ray_job("PENDING"), None, withdrawn=False, now=NOW)
    lost = derive_job(launched(), ray_job("FAILED", node="n"), waiting, withdrawn=False, now=NOW)
    info = describe_frayjob(lost)
    assert (info.status, info.reason) == ("failed", "RunnerLost")
    assert info.error_message == "Ray ended the job before it could tell of its end"


def test_lines_come_back_as_they_went() -> None:
    line = LogLine(JobId("train"), 2, 1, 0, 1, "töricht \x1b[0m\u2028", NOW, goes_on=True)
    assert decode_line(JobId("train"), encode_line(line)) == line
    for text in (
        "",
        "Running entrypoint for job train: exec python3",
        "7",
        '{"fray": 7}',
        '{"fray": {"at": 1}}',
    ):
        assert decode_line(JobId("train"), text) is None


def test_what_an_earlier_api_asks_of_it() -> None:
    cluster = RayCluster("http://head:8265")
    resources = ResourceConfig(cpu=96, ram="400g", device=TpuConfig(type="v5e-16", count=8))
    environment = EnvironmentConfig.create(env_vars={"A": "1"}, pip_packages=["einops"])
    request = JobRequest("train", "train", resources, environment)
    assert cluster.get_ray_resources(request) == {"TPU": 4.0, "TPU-v5litepod-16-head": 1.0}
    assert cluster.get_runtime_env(request)["pip"] == ["einops"]
    assert cluster.get_runtime_env(request)["env_vars"]["A"] == "1"


def test_jobs_have_one_order_whatever_order_ray_tells_them_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two living ones of a name, a launch that finds it taken names the same one each time."""
    rest = {"metadata": {}, "driver_node_id": None, "message": "", "end_time": None}
    told = [
        SimpleNamespace(submission_id=each, status=JobStatus.PENDING, **rest) for each in ("b", None, "a")
    ]
    monkeypatch.setattr(job_api, "_Client", lambda _: SimpleNamespace(list_jobs=lambda: told))
    assert [job.id for job in job_api.JobApi("http://head:8265").list()] == ["a", "b"]
