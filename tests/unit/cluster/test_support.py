"""What this machine can't do is refused where the job would be another one, and named elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from fray.cluster.cluster_spec import LocalSpec
from fray.cluster.local.requests import prepare_job
from fray.cluster.local.support import build_notices, check_open_files, check_supported
from fray.errors import OpenFilesError, UnsupportedFeatureError
from tests.unit.cluster.local_jobs import frayjob, local_plan

SHA = "0" * 64
CALLABLE = {"callable": {"secretName": "payload", "sha256": SHA, "python": "3.11"}}


def notices(**spec: Any) -> str:
    job = frayjob(**spec)
    check_supported(job, local_plan(job))
    return "\n".join(build_notices(job, local_plan(job)))


@pytest.mark.parametrize(
    ("spec", "feature"),
    [
        ({"entrypoint": CALLABLE}, "spec.entrypoint.callable"),
        ({"environment": {"pipPackages": ["numpy"]}}, "spec.environment.pipPackages"),
        ({"environment": {"extras": ["gpu"]}}, "spec.environment.extras"),
        ({"environment": {"workspace": {"secretName": "code", "sha256": SHA}}}, "spec.environment.workspace"),
        ({"environment": {"envFrom": [{"secretRef": {"name": "s"}}]}}, "spec.environment.envFrom"),
        ({"environment": {"envFrom": [{"configMapRef": {"name": "c"}}]}}, "spec.environment.envFrom"),
        ({"workers": {"replicas": 2}}, "spec.workers"),
        ({"suspend": True}, "spec.suspend"),
    ],
)
def test_what_the_process_would_miss_is_refused_with_a_way_out(spec: dict[str, Any], feature: str) -> None:
    job = frayjob(**spec)
    with pytest.raises(UnsupportedFeatureError) as caught:
        check_supported(job, local_plan(job))
    assert caught.value.feature == feature
    assert caught.value.next_step


def test_a_gang_too_large_for_the_limit_of_open_files_is_told_the_limit_it_needs() -> None:
    job = frayjob(replicas=300, ports=[{"name": "a", "port": 80}])
    with pytest.raises(OpenFilesError, match="needs 1264 open files; 1024 are allowed") as caught:
        check_open_files(job, local_plan(job), allowed=1024)
    assert "ulimit -n 1264" in caught.value.next_step
    check_open_files(job, local_plan(job), allowed=1264)


def test_a_plain_job_has_nothing_to_be_told() -> None:
    assert (
        notices(retries={"failures": 2}, timeouts={"activeSeconds": 3600}, ports=[{"name": "a", "port": 80}])
        == ""
    )


@pytest.mark.parametrize(
    ("spec", "notice"),
    [
        ({"environment": {"image": "img:1"}}, "image img:1"),
        ({"tpu": "v5p-16"}, "1 slice of v5p-16"),
        ({"resources": {"cpu": "8", "memory": "1Gi"}}, "cpu, memory"),
        ({"placement": {"spot": "Required", "zones": ["a"]}}, "placement (spot, zones)"),
        ({"environment": {"cacheVolume": "cache"}}, "cacheVolume cache"),
        ({"serviceAccountName": "robot"}, "serviceAccountName robot"),
        ({"queue": {"name": "q"}}, "queue q"),
        ({"podTemplate": {"spec": {"securityContext": {"runAsUser": 1}}}}, "podTemplate (securityContext)"),
        (
            {"podTemplate": {"spec": {"containers": [{"name": "proxy"}, {"name": "main", "lifecycle": {}}]}}},
            "podTemplate (container proxy, lifecycle)",
        ),
        (
            {"environment": {"envFrom": [{"secretRef": {"name": "s", "optional": True}}]}},
            "optional references (s)",
        ),
    ],
)
def test_what_a_process_can_do_without_is_named_once(spec: dict[str, Any], notice: str) -> None:
    assert notices(**spec).count(notice) == 1
    assert len(notices(**spec).splitlines()) == 1


def test_an_overlay_that_a_process_honours_is_not_named() -> None:
    container = {"name": "main", "args": ["x"], "env": [{"name": "A", "value": "b"}], "workingDir": "/tmp"}
    assert (
        notices(podTemplate={"spec": {"containers": [container], "terminationGracePeriodSeconds": 5}}) == ""
    )


@pytest.mark.parametrize(
    ("hosts", "own", "environ", "told"),
    [
        (2, [], {}, True),
        (1, [], {}, False),
        (2, [{"name": "XLA_PYTHON_CLIENT_PREALLOCATE", "value": "false"}], {}, False),
        (2, [], {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".4"}, False),
    ],
)
def test_hosts_that_share_a_gpu_here_are_told_of_the_memory_that_jax_reserves(
    hosts: int, own: list[dict[str, str]], environ: dict[str, str], told: bool
) -> None:
    resources = {"gpu": {"type": "nvidia-l4", "count": 1}}
    job = frayjob(replicas=hosts, resources=resources, environment={"env": own})
    prepared = prepare_job(job, LocalSpec(), environ, None)
    assert any("XLA_PYTHON_CLIENT_PREALLOCATE=false" in notice for notice in prepared.notices) is told
