"""Events stay few, and what a waiting pod says stays one sentence while nothing has changed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fray.plan.events import derive_events, derive_started
from fray.plan.lifecycle import decide
from fray.plan.observation import GangObservation, HostObservation, HostPhase, Waiting
from fray.plan.scheduling import derive_waiting
from fray.plan.settings import RetryPolicy
from fray.plan.status import find_condition
from fray.testing import build_frayjob
from fray.vocabulary import ConditionType, Reason
from fray.wire.frayjob import FrayJob
from tests.unit.plan.frayjobs import with_status

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
REASONS = [
    Reason.QUOTA_EXCEEDED,
    Reason.NO_MATCHING_NODE_POOL,
    Reason.INSUFFICIENT_CAPACITY,
    Reason.UNTOLERATED_TAINT,
    Reason.UNSCHEDULABLE,
    Reason.SCHEDULING_GATED,
    Reason.IMAGE_PULL_FAILED,
    Reason.CONTAINER_CONFIG_INVALID,
]


def step(job: FrayJob, observed: GangObservation | None) -> FrayJob:
    return with_status(job, decide(job, observed, now=NOW, policy=RetryPolicy()).status)


def see(phase: HostPhase, waiting: Waiting | None = None, *, placed: bool = True) -> GangObservation:
    node = "node-1" if placed else None
    code = 1 if phase is HostPhase.FAILED else None
    started = None if phase is HostPhase.PENDING else NOW
    host = HostObservation(0, 0, 0, "pod", phase, node=node, exit_code=code, started_at=started)
    return GangObservation((host,), waiting)


def test_an_attempt_that_waits_for_everything_has_six_events_and_one_of_its_queue() -> None:
    job = step(build_frayjob(), None)
    # first with no node, then with one
    seen = [
        see(HostPhase.PENDING, Waiting(reason, "why"), placed=placed)
        for placed in (False, True)
        for reason in REASONS
    ]
    told = {derive_started(job.status.attempts[0]).key: "AttemptStarted"}
    queued = see(HostPhase.PENDING, Waiting(Reason.WAITING_FOR_QUEUE, "why"), placed=False)
    for observed in [queued, *seen, queued, see(HostPhase.RUNNING), see(HostPhase.FAILED)]:
        after = step(job, observed)
        for draft in derive_events(job.status, after.status):
            told.setdefault(draft.key, draft.reason)  # the server keeps the first of a name
        job = after
    assert told == {
        "a1-started": "AttemptStarted",
        "a1-queued": "WaitingForQueue",
        "a1-not-scheduled": "QuotaExceeded",
        "a1-not-running": "ImagePullFailed",  # the first that isn't about its place
        "a1-running": "AttemptRunning",
        "a1-ended": "AttemptEnded",
        "finished": "Failed",
    }


def test_an_attempt_is_not_told_as_started_before_its_jobset_exists() -> None:
    job = build_frayjob()
    assert derive_events(job.status, step(job, None).status) == []


# --- one state, one message -----------------------------------------------------------------------------


def held(reason: str, message: str) -> dict[str, Any]:
    waiting = {
        "name": "main",
        "image": "nope:1",
        "state": {"waiting": {"reason": reason, "message": message}},
    }
    return {"metadata": {"name": "pod"}, "spec": {}, "status": {"containerStatuses": [waiting]}}


PULL_ERROR = "rpc error: code = NotFound desc = nope:1: not found"


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("ErrImagePull", PULL_ERROR),
        ("ImagePullBackOff", f'Back-off pulling image "nope:1": ErrImagePull: {PULL_ERROR}'),
    ],
)
def test_an_image_that_cant_be_pulled_is_told_alike_between_two_tries(reason: str, message: str) -> None:
    told = f"image 'nope:1' can't be pulled: {PULL_ERROR}"
    assert derive_waiting([held(reason, message)]) == Waiting(Reason.IMAGE_PULL_FAILED, told)


def test_what_an_old_kubelet_leaves_out_between_two_tries_is_still_told() -> None:
    job = step(build_frayjob(), None)
    tried = derive_waiting([held("ErrImagePull", PULL_ERROR)])
    waits = derive_waiting([held("ImagePullBackOff", 'Back-off pulling image "nope:1"')])
    first = step(job, see(HostPhase.PENDING, tried))
    second = step(first, see(HostPhase.PENDING, waits))
    assert second.status == first.status
    running = find_condition(second.status, ConditionType.RUNNING)
    assert running is not None
    assert running.message == f"image 'nope:1' can't be pulled: {PULL_ERROR}"
    other = step(second, see(HostPhase.PENDING, Waiting(Reason.IMAGE_PULL_FAILED, "another story")))
    assert other.status != second.status


def test_a_pod_that_cant_be_created_is_told_alike_under_each_name() -> None:
    told = {
        derive_waiting(
            [], create_failures=[f'Error creating: pods "train-a1-slice-0-{pod}" is forbidden: no']
        )
        for pod in ("0-x7k2p", "0-bq9zv", "1-aaaaa")
    }
    message = "the cluster refused to create it (pods): Error creating: a pod is forbidden: no"
    assert told == {Waiting(Reason.ADMISSION_REFUSED, message)}


def test_a_refusal_is_told_again_only_when_it_says_something_else() -> None:
    def refuse(job: FrayJob, field: str) -> FrayJob:
        no = Waiting(Reason.POD_TEMPLATE_INVALID, f"{field} can't be honoured")
        return with_status(job, decide(job, None, now=NOW, policy=RetryPolicy(), unsupported=no).status)

    first = refuse(build_frayjob(), "a")
    (told,) = derive_events(build_frayjob().status, first.status)
    assert (told.reason, told.milestone, told.attempt) == ("PodTemplateInvalid", True, None)
    assert derive_events(first.status, refuse(first, "a").status) == []
    assert len(derive_events(first.status, refuse(first, "b").status)) == 1


@pytest.mark.parametrize(
    ("reason", "warning"),
    [
        (Reason.HOSTS_LEFT_OVER, False),
        (Reason.WAITING_FOR_QUEUE, False),
        (Reason.QUOTA_EXCEEDED, True),
    ],
)
def test_what_passes_by_itself_warns_nobody(reason: Reason, warning: bool) -> None:
    job = step(build_frayjob(), None)
    after = step(job, see(HostPhase.PENDING, Waiting(reason, "why"), placed=False))
    (told,) = derive_events(job.status, after.status)
    assert (told.reason, told.warning) == (reason, warning)
