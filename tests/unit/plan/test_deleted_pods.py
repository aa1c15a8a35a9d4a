"""Pods that somebody deletes: hosts taken away, unless they ended by themselves or with a peer that did."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fray import testing
from fray.plan.gang import derive_gang
from fray.plan.lifecycle import decide
from fray.plan.observation import GangObservation, HostPhase
from fray.plan.pod_observation import derive_gang_observation
from fray.plan.reasons import REASONS
from fray.plan.settings import RetryPolicy
from fray.plan.verdict import derive_cause
from fray.testing import build_frayjob, build_jobset, build_pod, running
from fray.vocabulary import Reason, VerdictKind
from fray.wire.status import AttemptStatus, FrayJobStatus
from tests.unit.plan.frayjobs import with_status

ASKED = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
"""When the deletion was asked for."""
GRACE = 30
JOBSET = build_jobset()
ENDED = build_jobset(end="Failed")
SUSPENDED = build_jobset(suspended=True)
WHO = "rank 0 (slice 0, host 0)"
RUNNING = running("2026-01-31T11:00:00Z")


def at(seconds: float) -> str:
    return (ASKED + timedelta(seconds=seconds)).isoformat()


def exited(code: int, *, after: float = 1, **more: Any) -> dict[str, Any]:
    """Return the state of a container that ended so many seconds after the deletion was asked for."""
    return testing.exited(code, at=at(after), startedAt=at(-3600), **more)


def pod(
    rank: int, state: dict[str, Any] | None, *, deleted: bool = True, init: bool = False, **status: Any
) -> dict[str, Any]:
    """Return a pod that has failed and, as a rule, was deleted: its time is up 30 s after that was asked."""
    parts = {"phase": "Failed", "init" if init else "state": state, **status}
    return build_pod(rank, created=at(-3700), deleted=at(GRACE) if deleted else None, **parts)


def see(*pods: dict[str, Any], jobset: dict[str, Any] = JOBSET, replicas: int = 0) -> GangObservation:
    gang = derive_gang(build_frayjob(replicas=replicas or len(pods)).spec)
    return derive_gang_observation(gang, jobset, pods)


@pytest.mark.parametrize(
    ("failed", "told"),
    [
        (pod(0, exited(143)), f"{WHO} was killed by SIGTERM (exit code 143)"),
        (pod(0, exited(137, after=GRACE)), f"{WHO} was killed by SIGKILL (exit code 137)"),
        (pod(0, exited(143, after=-59)), f"{WHO} was killed by SIGTERM (exit code 143)"),
        (pod(0, exited(1)), f"{WHO} exited with code 1"),
        (pod(0, None), f"{WHO} never ran"),
        (pod(0, exited(143), init=True), f"{WHO} never ran"),
    ],
    ids=["SIGTERM", "SIGKILL", "a slow clock", "caught SIGTERM", "not started", "init container"],
)
def test_a_pod_that_is_deleted_is_a_host_taken_away(failed: dict[str, Any], told: str) -> None:
    cause = derive_cause(see(failed))
    assert cause is not None
    assert (cause.reason, cause.message) == (
        Reason.HOSTS_GONE,
        f"{told}: its pod was deleted from outside",
    )
    assert REASONS[cause.reason].charge is VerdictKind.PREEMPTION


@pytest.mark.parametrize(
    ("failed", "reason"),
    [
        (pod(0, exited(1, after=-1)), Reason.NON_ZERO_EXIT),
        (pod(0, exited(1, after=0)), Reason.NON_ZERO_EXIT),
        (pod(0, exited(137, after=-61)), Reason.KILLED_BY_SIGNAL),
        (pod(0, exited(143), deleted=False), Reason.KILLED_BY_SIGNAL),
        (pod(0, exited(1, after=-1), init=True), Reason.NON_ZERO_EXIT),
        (pod(0, exited(137, reason="OOMKilled")), Reason.OUT_OF_MEMORY),
        (
            pod(0, None, reason="SysctlForbidden", message="Pod was rejected: forbidden sysctl"),
            Reason.START_FAILED,
        ),
        (pod(0, exited(137), reason="Evicted", message="usage exceeds the limit"), Reason.EVICTED),
        (pod(0, exited(128, reason="StartError", message="no 'trian'")), Reason.START_FAILED),
    ],
    ids=[
        "before",
        "at that moment",
        "long before",
        "not deleted",
        "init container",
        "memory",
        "refused",
        "evicted",
        "no such command",
    ],
)
def test_a_host_that_ended_by_itself_keeps_its_reason(failed: dict[str, Any], reason: Reason) -> None:
    cause = derive_cause(see(failed))
    assert cause is not None
    assert cause.reason is reason
    assert REASONS[cause.reason].charge is VerdictKind.FAILURE


@pytest.mark.parametrize("after", [-5, 0, 5])
def test_peers_of_a_host_that_failed_are_deleted_too_and_not_the_cause(after: float) -> None:
    """The Job controller deletes them; the clocks of their nodes may say that they ended first."""
    crashed, peer = pod(0, exited(1, after=after), deleted=False), pod(1, exited(143))
    for hosts in ((crashed, peer), (pod(0, exited(143)), pod(1, exited(1, after=after), deleted=False))):
        cause = derive_cause(see(*hosts))
        assert cause is not None
        assert REASONS[cause.reason].charge is VerdictKind.FAILURE


def test_memory_that_ran_out_on_a_peer_is_no_deletion() -> None:
    cause = derive_cause(see(pod(0, exited(143)), pod(1, exited(137, after=2, reason="OOMKilled"))))
    assert cause is not None
    assert REASONS[cause.reason].charge is VerdictKind.FAILURE


def test_a_container_that_was_lost_tells_no_time_and_is_disrupted() -> None:
    lost = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "finishedAt": None}}
    ran, never_made = pod(0, lost), pod(0, lost)
    ran["status"]["containerStatuses"][0]["containerID"] = "containerd://71624"
    for seen, reason in ((ran, Reason.DISRUPTED), (never_made, Reason.HOSTS_GONE)):
        cause = derive_cause(see(seen))
        assert cause is not None
        assert cause.reason is reason


def test_a_gang_of_which_one_pod_is_deleted_is_taken_away_while_the_others_run() -> None:
    running = pod(1, {"running": {"startedAt": at(-3600)}}, deleted=False, phase="Running")
    cause = derive_cause(see(pod(0, exited(137)), running))
    assert cause is not None
    assert cause.host is not None
    assert (cause.reason, cause.host.name) == (Reason.HOSTS_GONE, "pod-0")


def test_a_host_that_is_gone_beside_one_that_was_deleted_was_deleted_earlier() -> None:
    cause = derive_cause(see(pod(1, exited(143)), jobset=ENDED, replicas=2))
    assert cause is not None
    assert cause.host is not None
    assert (cause.reason, cause.host.rank) == (Reason.HOSTS_GONE, 1)


def test_a_host_that_failed_goes_before_the_peers_that_were_deleted_in_the_same_second() -> None:
    peer = pod(0, exited(137))
    failed = pod(1, exited(137, reason="OOMKilled"), deleted=False)
    cause = derive_cause(see(peer, failed))
    assert cause is not None
    assert cause.host is not None
    assert (cause.reason, cause.host.rank) == (Reason.OUT_OF_MEMORY, 1)


def attempt_after(observed: GangObservation) -> AttemptStatus:
    """Return the first attempt, which ran, after a pass that observes this."""
    ran = AttemptStatus(number=1, job_set="train-a1", start_time=at(-3700), running_time=at(-3600))
    job = with_status(build_frayjob(replicas=len(observed.hosts)), FrayJobStatus(attempts=[ran]))
    decision = decide(job, observed, now=ASKED + timedelta(minutes=1), policy=RetryPolicy(10, 360))
    return decision.status.attempts[0]


def test_pods_that_a_suspension_deletes_are_not_taken_away() -> None:
    attempt = attempt_after(see(pod(0, exited(143)), jobset=SUSPENDED))
    assert attempt.reason == "Suspended"


def test_an_attempt_names_a_pod_only_if_somebody_saw_it() -> None:
    seen = attempt_after(see(pod(0, exited(143)), jobset=ENDED))
    gone = attempt_after(see(jobset=ENDED, replicas=1))
    assert (seen.pod, seen.rank) == ("pod-0", 0)
    assert (gone.pod, gone.rank) == (None, 0)
    assert gone.message == f"{WHO} failed: its pod is gone, and nothing tells how it ended"


@pytest.mark.parametrize(
    ("pods", "gone", "jobset", "phase"),
    [
        ([], [], JOBSET, HostPhase.PENDING),
        ([pod(0, {"waiting": {}}, deleted=False, phase="Pending")], [], JOBSET, HostPhase.STARTING),
        ([pod(0, {"waiting": {}}, deleted=False, phase="Running")], [], JOBSET, HostPhase.PENDING),
        ([pod(0, RUNNING, phase="Running")], [], JOBSET, HostPhase.RUNNING),
        ([pod(0, exited(0), phase="Succeeded")], [], JOBSET, HostPhase.SUCCEEDED),
        ([pod(0, exited(1), deleted=False)], [], JOBSET, HostPhase.FAILED),
        ([pod(0, exited(143))], [], JOBSET, HostPhase.DELETED),
        ([pod(0, {"waiting": {}}, deleted=False, phase="Pending")], [], ENDED, HostPhase.FAILED),
        ([], [], ENDED, HostPhase.GONE),
        ([], [pod(0, RUNNING, phase="Running")], JOBSET, HostPhase.PENDING),
        ([], [pod(0, RUNNING, phase="Running")], ENDED, HostPhase.GONE),
        ([], [pod(0, exited(143))], ENDED, HostPhase.DELETED),
    ],
)
def test_one_value_tells_how_far_a_host_is_and_how_it_ended(
    pods: list[dict[str, Any]], gone: list[dict[str, Any]], jobset: dict[str, Any], phase: HostPhase
) -> None:
    gang = derive_gang_observation(derive_gang(build_frayjob().spec), jobset, pods, gone=gone)
    (host,) = gang.hosts
    assert host.phase is phase
    assert (host.pending, host.failed) == (
        phase in (HostPhase.PENDING, HostPhase.STARTING),
        phase in (HostPhase.FAILED, HostPhase.DELETED, HostPhase.GONE),
    )
