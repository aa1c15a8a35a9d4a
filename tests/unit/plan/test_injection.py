"""Which pods get Fray's runtime by an init container, and what that costs them."""

from __future__ import annotations

from typing import Any

import pytest

from fray.plan.injection import INJECTOR, RUNTIME_MOUNT
from fray.plan.jobset import build_attempt
from fray.plan.settings import PlanSettings
from fray.plan.worker_job import build_worker_job
from fray.vocabulary import POOL_HEAD_CONTAINER
from fray.wire.frayjob import FrayJob
from tests.unit.plan.jobset_rules import find_violations, main_container, pod_template

SHA256 = "ab" * 32
CALLABLE = {"callable": {"secretName": "payload", "sha256": SHA256, "python": "3.11"}}
WORKSPACE = {"workspace": {"secretName": "code", "sha256": SHA256}}
MINE = {"image": "mine:7"}


SETTINGS = PlanSettings()


def build(settings: PlanSettings = SETTINGS, **spec: Any) -> dict[str, Any]:
    asked = {"entrypoint": {"command": ["train"]}, **spec}
    job = FrayJob.from_manifest({"metadata": {"name": "train"}, "spec": asked})
    jobset = build_attempt(job, attempt=1, settings=settings).jobset
    assert find_violations(jobset) == []
    return jobset


def injectors(jobset: dict[str, Any]) -> list[dict[str, Any]]:
    containers: list[dict[str, Any]] = pod_template(jobset)["spec"].get("initContainers", [])
    return [container for container in containers if container["name"] == INJECTOR]


@pytest.mark.parametrize(
    ("spec", "uv"),
    [
        ({"entrypoint": CALLABLE, "environment": MINE}, False),
        ({"entrypoint": CALLABLE, "environment": WORKSPACE}, True),
        ({"environment": WORKSPACE}, True),
        ({"environment": {"pipPackages": ["numpy"]}}, True),
        ({"environment": {"extras": ["tpu"]}}, True),
        ({"workers": {"replicas": 2}, "environment": MINE}, False),
    ],
)
def test_pods_that_run_something_of_frays_are_brought_it(spec: dict[str, Any], uv: bool) -> None:
    jobset = build(PlanSettings(injector_image="operator:7"), **spec)
    (injector,) = injectors(jobset)
    assert injector["image"] == "operator:7"
    assert injector["command"][-1] == RUNTIME_MOUNT
    assert ("/opt/fray-injected/uv/." in injector["command"]) == uv
    assert {"name": INJECTOR, "mountPath": RUNTIME_MOUNT, "readOnly": True} in main_container(jobset)[
        "volumeMounts"
    ]


def test_a_command_finds_fray_where_it_has_workers() -> None:
    """Not where it has none: its image needs no Python then."""
    command = main_container(build(workers={"replicas": 0}, environment=MINE))["command"]
    assert command[1:] == [f"{RUNTIME_MOUNT}/fray/runtime/start.py", "prepare", "--offer-fray", "--", "train"]
    assert main_container(build(workers={"maxReplicas": 0}))["command"] == ["train"]
    without = build(PlanSettings(injector_image=None), workers={"replicas": 1})
    assert main_container(without)["command"] == ["train"]


@pytest.mark.parametrize(
    "environment", [{}, {"image": SETTINGS.image}, {"setup": ["true"], "env": [{"name": "A", "value": "b"}]}]
)
def test_the_installations_own_image_has_fray_so_its_pods_start_without_an_init_container(
    environment: dict[str, Any],
) -> None:
    overlay = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "1Gi"}}}]}}
    called = build(entrypoint=CALLABLE, environment=environment, podTemplate=overlay)
    assert injectors(called) == []
    assert INJECTOR not in {volume["name"] for volume in pod_template(called)["spec"]["volumes"]}
    runner = ["python3", "-m", "fray.runtime.callable_runner"]
    command = main_container(called)["command"]
    assert command[command.index("python3") :][:3] == runner
    pooled = build(workers={"replicas": 1}, environment=environment)
    assert injectors(pooled) == []
    (head,) = pod_template(pooled)["spec"]["initContainers"]
    assert (head["image"], head["command"]) == (
        SETTINGS.image,
        ["python3", "-m", "fray.runtime.pool.head_pod"],
    )


@pytest.mark.parametrize(
    "hiding",
    [
        {"environment": {"env": [{"name": "PATH", "value": "/usr/bin"}]}},
        {"environment": {"envFrom": [{"configMapRef": {"name": "mine"}}]}},
        {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "mine:7"}]}}},
        {"podTemplate": {"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "b"}]}]}}},
        {"podTemplate": {"spec": {"initContainers": [{"name": POOL_HEAD_CONTAINER, "image": "mine:7"}]}}},
        {"podTemplate": {"spec": {"initContainers": [{"name": INJECTOR, "image": "operator:arm64"}]}}},
    ],
)
def test_what_may_hide_that_fray_brings_it_back(hiding: dict[str, Any]) -> None:
    assert len(injectors(build(workers={"replicas": 1}, **hiding))) == 1


def test_workers_of_another_image_are_brought_it_though_hosts_are_not() -> None:
    asked = {"entrypoint": {"command": ["train"]}, "workers": {"replicas": 1, "environment": MINE}}
    job = FrayJob.from_manifest({"metadata": {"name": "train"}, "spec": asked})
    worker = build_worker_job(job, attempt=1, generation=1, count=1, settings=SETTINGS)
    spec = worker.manifest["spec"]["template"]["spec"]
    assert [each["name"] for each in spec["initContainers"]] == [INJECTOR]
    assert spec["containers"][0]["command"][1] == f"{RUNTIME_MOUNT}/fray/runtime/start.py"
    assert injectors(build_attempt(job, attempt=1, settings=SETTINGS).jobset) == []


@pytest.mark.parametrize("environment", [{}, {"setup": ["true"]}, {"cacheVolume": "cache"}])
def test_others_stay_as_they_were(environment: dict[str, Any]) -> None:
    jobset = build(environment=environment)
    assert "initContainers" not in pod_template(jobset)["spec"]


def test_where_nothing_is_brought_the_runner_is_found_where_python_finds_it() -> None:
    jobset = build(PlanSettings(injector_image=None), entrypoint=CALLABLE)
    assert injectors(jobset) == []
    assert main_container(jobset)["command"][:3] == ["python3", "-m", "fray.runtime.callable_runner"]


def test_a_pod_asks_for_no_more_than_without_and_the_chips_are_the_jobs_alone() -> None:
    tpu = {"cpu": "3", "memory": "5Gi", "tpu": {"type": "v6e-4"}}
    limits = {"containers": [{"name": "main", "resources": {"limits": {"memory": "5Gi"}}}]}
    jobset = build(entrypoint=CALLABLE, environment=MINE, resources=tpu, podTemplate={"spec": limits})
    (injector,) = injectors(jobset)
    assert injector["resources"] == {
        "requests": {"cpu": "3", "memory": "5Gi"},
        "limits": {"memory": "5Gi"},
    }
    assert main_container(jobset)["resources"]["limits"]["google.com/tpu"] == "4"


def test_the_overlay_may_change_it_and_add_others_behind_it() -> None:
    mine = {"name": "mine", "image": "busybox"}
    changed = {"name": INJECTOR, "imagePullPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    jobset = build(entrypoint=CALLABLE, podTemplate={"spec": {"initContainers": [mine, changed]}})
    first, second = pod_template(jobset)["spec"]["initContainers"]
    assert (first["name"], second["name"]) == (INJECTOR, "mine")
    assert first["imagePullPolicy"] == "Always"
    assert first["resources"] == {"requests": {"cpu": "1"}}
    assert first["command"]
