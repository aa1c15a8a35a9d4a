"""Hosts that JobSet removes for standing in another slice's node pool: nobody's fault, and not for ever."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fray.plan.children import is_left_to_itself
from fray.plan.gang import derive_gang
from fray.plan.lifecycle import decide
from fray.plan.observation import GangObservation
from fray.plan.pod_observation import derive_gang_observation
from fray.plan.reasons import REASONS
from fray.plan.settings import RetryPolicy
from fray.plan.verdict import derive_cause
from fray.testing import MOMENT, build_disruption_mark, build_frayjob, build_jobset, build_pod, exited
from fray.vocabulary import ConditionType, Reason, VerdictKind
from fray.wire.frayjob import FrayJob
from fray.wire.status import FrayJobStatus
from tests.unit.plan.frayjobs import with_status

T0 = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
TWO_SLICES = {"replicas": 2, "resources": {"tpu": {"type": "v5p-16"}}}
JOB = build_frayjob(**TWO_SLICES)
LIVE = build_jobset()
LEAVING = {"metadata": {"name": "train-a1", "deletionTimestamp": MOMENT}, "spec": {}}
POLICY = RetryPolicy(initial_seconds=10, cap_seconds=40)


def pod(rank: int, phase: str, *, mark: str | None = None, code: int | None = None, why: str = "") -> Any:
    marks = [build_disruption_mark(mark)] if mark else []
    state = None if code is None else exited(code, reason=why)
    return build_pod(rank, phase, state, hosts=2, node=f"node-{rank}", marks=marks)


def see(*pods: dict[str, Any], jobset: dict[str, Any] = LIVE) -> GangObservation:
    return derive_gang_observation(derive_gang(JOB.spec), jobset, pods)


VIOLATION = "ExclusivePlacementViolation"
MISPLACED = pod(3, "Pending", mark=VIOLATION)
TOLD = (
    "rank 3 (slice 1, host 1) was placed on node node-3 outside its slice's node pool, and removed by JobSet"
)


@pytest.mark.parametrize(
    "pods",
    [
        [MISPLACED],
        [pod(3, "Failed", mark=VIOLATION)],
        [pod(3, "Failed", mark=VIOLATION), pod(0, "Failed", code=1)],
    ],
    ids=["is about to go", "has gone", "its peer crashed"],
)
def test_a_misplaced_host_ends_the_attempt_at_no_budgets_charge(pods: list[dict[str, Any]]) -> None:
    cause = derive_cause(see(*pods))
    assert cause is not None
    assert (cause.reason, cause.message) == (Reason.EXCLUSIVE_PLACEMENT_VIOLATION, TOLD)
    assert REASONS[cause.reason].charge is VerdictKind.MISPLACEMENT


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        (
            [MISPLACED, pod(0, "Failed", code=143, mark="PreemptionByScheduler")],
            Reason.DISRUPTED,
        ),
        ([MISPLACED, pod(0, "Failed", code=137, why="OOMKilled")], Reason.OUT_OF_MEMORY),
    ],
)
def test_what_else_befell_the_gang_counts_first(pods: list[dict[str, Any]], reason: Reason) -> None:
    cause = derive_cause(see(*pods))
    assert cause is not None
    assert cause.reason is reason


def test_its_jobset_is_deleted() -> None:
    gang = see(MISPLACED)
    assert not is_left_to_itself(Reason.EXCLUSIVE_PLACEMENT_VIOLATION, LIVE, gang, now=T0)


def end_attempt(job: FrayJob, *, now: datetime) -> FrayJob:
    """Return the job after its next attempt began and ended by misplacement."""
    for observed in (None, see(MISPLACED), see(pod(3, "Failed", mark=VIOLATION), jobset=LEAVING), None):
        job = with_status(job, decide(job, observed, now=now, policy=POLICY).status)
    return job


def test_ten_such_attempts_are_enough() -> None:
    job, now = with_status(JOB, FrayJobStatus()), T0
    for number in range(1, 10):
        job = end_attempt(job, now=now)
        assert job.status.phase == "Restarting", number
        assert job.status.retries is not None
        assert job.status.retries.to_manifest() == {
            "failuresUsed": 0,
            "preemptionsUsed": 0,
            "misplacementsUsed": number,
        }
        # Not at once: the pods of others need a moment to find their places too.
        early = decide(job, None, now=now + timedelta(seconds=9), policy=POLICY)
        assert early.action is None
        now += timedelta(minutes=1)
    job = end_attempt(job, now=now)
    failed = next(c for c in job.status.conditions if c.type == ConditionType.FAILED)
    assert failed.reason == VIOLATION
    assert failed.message == (
        f"{TOLD} in attempt 10, the 10th such attempt; give each slice a node pool of its own, "
        "free of other work and labelled cloud.google.com/gke-nodepool, and create the job anew"
    )
