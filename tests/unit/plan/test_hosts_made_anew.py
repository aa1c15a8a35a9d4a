"""An attempt never restarts unseen: hosts that begin again after all had run end it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fray.plan.children import is_left_to_itself
from fray.plan.gang import derive_gang
from fray.plan.lifecycle import Decision, EndAttempt, decide
from fray.plan.pod_observation import derive_gang_observation
from fray.plan.settings import RetryPolicy
from fray.testing import build_frayjob, build_jobset, build_pod, running
from fray.vocabulary import Reason
from fray.wire.status import AttemptStatus, FrayJobStatus
from tests.unit.plan.frayjobs import with_status

T0 = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
LIVE = build_jobset()
SUSPENDED = build_jobset(suspended=True)
GOING = LIVE | {"metadata": {"name": "train-a1", "deletionTimestamp": "2026-01-31T13:00:00Z"}}


def at(seconds: float) -> str:
    return (T0 + timedelta(seconds=seconds)).isoformat()


def pod(phase: str, *, created: float, rank: int = 0, clock: float = 0) -> dict[str, Any]:
    """Return a pod that begins a second after it was made, by its node's clock, which is so far ahead."""
    state = running(at(created + 1 + clock)) if phase == "Running" else None
    return build_pod(rank, phase, state, created=at(created))


def look(*pods: dict[str, Any], ran: bool = True, jobset: dict[str, Any] = LIVE, hosts: int = 1) -> Decision:
    """Return what is decided an hour after the hosts of an attempt began to run at T0, if they did."""
    running_time = {"running_time": at(0)} if ran else {}
    attempt = AttemptStatus(number=1, job_set="train-a1", start_time=at(-60), **running_time)
    job = with_status(build_frayjob(replicas=hosts), FrayJobStatus(attempts=[attempt]))
    gang = derive_gang_observation(derive_gang(job.spec), jobset, pods)
    return decide(job, gang, now=T0 + timedelta(hours=1), policy=RetryPolicy())


@pytest.mark.parametrize(
    "pods",
    [
        [pod("Pending", created=1800)],
        [pod("Pending", created=1)],  # its node's clock is ahead
        [pod("Running", created=1800)],
        [pod("Running", created=30)],
        [pod("Running", created=-10), pod("Pending", created=1800)],
    ],
    ids=["waits", "waits at once", "runs", "runs soon", "was not yet removed"],
)
def test_a_host_that_begins_again_ends_the_attempt(pods: list[dict[str, Any]]) -> None:
    decision = look(*pods)
    assert decision.action == EndAttempt(1, Reason.HOSTS_GONE)
    (attempt,) = decision.status.attempts
    assert attempt.message == "the pod of rank 0 was made anew: it or its Job was deleted from outside"


def test_one_of_many_is_enough() -> None:
    decision = look(pod("Running", created=-10), pod("Running", created=1800, rank=1), hosts=2)
    assert decision.action == EndAttempt(1, Reason.HOSTS_GONE)
    assert (decision.status.attempts[0].rank, decision.status.attempts[0].pod) == (1, "pod-1")


@pytest.mark.parametrize(
    ("pods", "more"),
    [
        ([pod("Running", created=-10)], {}),
        ([pod("Running", created=30, clock=-31)], {}),
        ([pod("Pending", created=1800)], {"ran": False}),
        ([], {}),
        ([pod("Running", created=1800)], {"jobset": GOING}),
    ],
    ids=["the first", "its node's clock is behind", "not all had run", "none yet", "is being removed"],
)
def test_others_go_on(pods: list[dict[str, Any]], more: dict[str, Any]) -> None:
    assert look(*pods, **more).action is None


@pytest.mark.parametrize("state", ["running", "terminated"])
def test_a_pod_whose_phase_lags_behind_its_container_goes_on(state: str) -> None:
    states = {"running": {"startedAt": at(0)}, "terminated": {"startedAt": at(0), "exitCode": 0}}
    lagging = pod("Pending", created=0)
    lagging["status"]["containerStatuses"] = [{"name": "main", "state": {state: states[state]}}]
    other = pod("Running", created=-1, rank=1)
    for ran in (True, False):
        assert look(lagging, other, ran=ran, hosts=2).action is None


def test_a_suspension_is_told_as_one() -> None:
    assert look(pod("Pending", created=1800), jobset=SUSPENDED).action == EndAttempt(1, Reason.SUSPENDED)


def resumed(after: float) -> dict[str, Any]:
    told = {"type": "Suspended", "status": "False", "lastTransitionTime": at(after)}
    return LIVE | {"status": {"conditions": [told]}}


def test_a_suspension_that_is_over_before_anybody_looked_is_told_as_one() -> None:
    anew = pod("Running", created=1800)
    decision = look(anew, jobset=resumed(1790))
    assert decision.action == EndAttempt(1, Reason.SUSPENDED)
    assert decision.status.attempts[0].message == (
        "its JobSet was suspended and resumed, and not by this job's spec.suspend"
    )
    # Before the attempt ran it was in its queue.
    assert look(anew, jobset=resumed(-10)).action == EndAttempt(1, Reason.HOSTS_GONE)
    assert look(pod("Running", created=-10), jobset=resumed(20)).action is None


def test_its_jobset_is_deleted() -> None:
    gang = derive_gang_observation(derive_gang(build_frayjob().spec), LIVE, [pod("Running", created=1800)])
    assert not is_left_to_itself(Reason.HOSTS_GONE, LIVE, gang, now=T0)
