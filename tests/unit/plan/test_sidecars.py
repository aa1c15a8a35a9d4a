"""Further containers of a podTemplate neither keep a job's pod from ending nor fail unseen."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fray.plan.gang import derive_gang
from fray.plan.jobset import AttemptPlan, build_attempt
from fray.plan.lifecycle import decide
from fray.plan.pod_observation import derive_gang_observation
from fray.plan.scheduling import derive_waiting
from fray.plan.settings import PlanSettings, RetryPolicy
from fray.plan.status import find_condition
from fray.termination import Ending, TerminationMessage
from fray.testing import MOMENT, build_frayjob, build_jobset, build_pod, exited, running, waiting
from fray.vocabulary import ConditionType
from fray.wire.status import AttemptStatus, FrayJobStatus
from tests.unit.plan.frayjobs import with_status
from tests.unit.plan.jobset_rules import find_violations, pod_template

PROXY = {"name": "proxy", "image": "p:1"}
CALLABLE = {"callable": {"secretName": "p", "sha256": "ab" * 32, "python": "3.12"}}


def plan_with(*containers: dict[str, Any], **spec: Any) -> AttemptPlan:
    overlay = {"spec": {"containers": list(containers), **spec}}
    job = build_frayjob(entrypoint=CALLABLE, environment={"image": "mine"}, podTemplate=overlay)
    plan = build_attempt(job, attempt=1, settings=PlanSettings())
    assert find_violations(plan.jobset) == []
    return plan


def names(plan: AttemptPlan, field: str) -> list[str]:
    return [container["name"] for container in pod_template(plan.jobset)["spec"][field]]


def test_a_further_container_is_a_sidecar_behind_all_init_containers() -> None:
    fetch = {"name": "fetch", "image": "f:1"}
    plan = plan_with(PROXY, {"name": "main"}, initContainers=[fetch])
    assert names(plan, "containers") == ["main"]
    assert names(plan, "initContainers") == ["fray-runtime", "fetch", "proxy"]
    assert pod_template(plan.jobset)["spec"]["initContainers"][-1] == {**PROXY, "restartPolicy": "Always"}
    (fact,) = (fact for fact in plan.facts if fact.subject == "sidecar proxy")
    assert fact.value == "p:1"
    assert "ended after main" in fact.because


@pytest.mark.parametrize("kind", ["requests", "limits"])
@pytest.mark.parametrize("resource", ["google.com/tpu", "nvidia.com/gpu"])
def test_a_container_with_accelerators_stays_one(kind: str, resource: str) -> None:
    half = {"name": "half", "image": "h:1", "resources": {kind: {resource: "2"}}}
    plan = plan_with(half, PROXY)
    assert names(plan, "containers") == ["main", "half"]
    assert names(plan, "initContainers")[-1] == "proxy"
    (fact,) = (fact for fact in plan.facts if fact.subject == "container half")
    assert "accelerators" in fact.because
    assert "deleted with its logs if this runs for a minute longer than main" in fact.because


def test_without_further_containers_a_pod_has_no_init_containers() -> None:
    plan = build_attempt(
        build_frayjob(podTemplate={"spec": {"containers": [{"name": "main", "tty": True}]}}),
        attempt=1,
        settings=PlanSettings(),
    )
    assert "initContainers" not in pod_template(plan.jobset)["spec"]


# --- a sidecar that fails -------------------------------------------------------------------------------


def pod(main: dict[str, Any], *, restarts: int, phase: str = "Running", crash: int = 3) -> dict[str, Any]:
    """Return a pod whose sidecar was restarted so often; `crash` is its last exit code."""
    proxy = {
        "name": "proxy",
        "state": waiting("CrashLoopBackOff") if restarts else running(),
        "lastState": exited(crash) if restarts else {},
        "restartCount": restarts,
    }
    sidecars = {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}]}
    states = {"initContainerStatuses": [proxy]}
    return build_pod(0, phase, main, name="train-a1-slice-0-0-x", node="node", spec=sidecars, **states)


RUNS = running()
TOLD = "sidecar 'proxy' of pod train-a1-slice-0-0-x ends again and again with exit code 3"


def condition(pods: list[dict[str, Any]]) -> tuple[str, str, str]:
    """Return the condition Running: status, reason, message."""
    attempt = AttemptStatus(number=1, job_set="train-a1", start_time=MOMENT)
    job = with_status(build_frayjob(), FrayJobStatus(attempts=[attempt]))
    gang = derive_gang_observation(derive_gang(job.spec), build_jobset(), pods, waiting=derive_waiting(pods))
    status = decide(job, gang, now=datetime(2026, 1, 31, 12, 1, tzinfo=UTC), policy=RetryPolicy()).status
    found = find_condition(status, ConditionType.RUNNING)
    assert found is not None
    return found.status, found.reason, found.message


def test_a_sidecar_that_ends_again_and_again_is_told_while_the_job_runs() -> None:
    assert condition([pod(RUNS, restarts=3)]) == (
        "True",
        "SidecarFailing",
        f"1 of 1 hosts run (attempt 1); {TOLD}",
    )


def test_its_next_restart_changes_nothing() -> None:
    assert condition([pod(RUNS, restarts=3)]) == condition([pod(RUNS, restarts=70)])


def test_a_sidecar_that_was_restarted_once_is_not_told() -> None:
    assert condition([pod(RUNS, restarts=1)])[1] == "AllHostsRunning"


def test_a_sidecar_that_says_why_it_cant_run_is_told_at_once() -> None:
    failing = pod(RUNS, restarts=1)
    (sidecar,) = failing["status"]["initContainerStatuses"]
    words = TerminationMessage(Ending.NEVER_RAN, "Missing", "no Dask\nAdd `distributed`.")
    sidecar["lastState"]["terminated"]["message"] = words.to_json()
    told = f"1 of 1 hosts run (attempt 1); {TOLD}: Missing: no Dask Add `distributed`."
    assert condition([failing]) == ("True", "SidecarFailing", told)


def test_a_sidecar_that_keeps_main_from_starting_is_why_the_job_waits() -> None:
    held = pod(waiting("PodInitializing"), restarts=4, phase="Pending")
    assert condition([held]) == ("False", "SidecarFailing", TOLD)


def test_how_a_sidecar_ended_is_not_how_its_pod_did() -> None:
    """It gets SIGTERM with its pod, as when that is evicted before `main` began."""
    evicted = pod(waiting("PodInitializing"), restarts=0, phase="Failed")
    evicted["status"]["message"] = "The node had condition: [DiskPressure]."
    (sidecar,) = evicted["status"]["initContainerStatuses"]
    sidecar["state"] = {"terminated": {"exitCode": 143, "finishedAt": MOMENT}}
    (host,) = derive_gang_observation(derive_gang(build_frayjob().spec), build_jobset(), [evicted]).hosts
    assert host.message == "The node had condition: [DiskPressure]."
