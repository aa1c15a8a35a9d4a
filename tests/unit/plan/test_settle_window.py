"""What ends without saying whose fault it was is judged a little later; nothing else waits for that."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fray.plan.lifecycle import Decision, decide
from fray.plan.observation import (
    OOM_KILLED,
    Evidence,
    EvidenceKind,
    GangObservation,
    HostObservation,
    HostPhase,
)
from fray.plan.settings import RetryPolicy
from fray.testing import build_frayjob
from fray.wire.status import AttemptStatus, FrayJobStatus
from tests.unit.plan.frayjobs import with_status
from tests.unit.plan.verdict_situations.manifests import T0, at

POLICY = RetryPolicy(10, 360, settle_seconds=5)
EVICTED = Evidence(EvidenceKind.TAKEN, "EvictionByEvictionAPI")
RUNNING = HostObservation(0, 0, 0, "pod-0", HostPhase.RUNNING)


def failed(after: float | None = 0, rank: int = 0, code: int = 1, **more: Any) -> HostObservation:
    """Return a host that failed so many seconds after T0."""
    end = None if after is None else T0 + timedelta(seconds=after)
    return HostObservation(
        0, rank, rank, f"pod-{rank}", HostPhase.FAILED, exit_code=code, ended_at=end, **more
    )


def pass_at(
    seconds: float,
    *hosts: HostObservation,
    policy: RetryPolicy = POLICY,
    settled: bool = True,
    **attempt: Any,
) -> Decision:
    """Return what is decided about an attempt that ran, so many seconds after T0."""
    ran = AttemptStatus(number=1, job_set="train-a1", start_time=at(-90), running_time=at(-80), **attempt)
    job = with_status(build_frayjob(replicas=len(hosts)), FrayJobStatus(attempts=[ran]))
    observed = GangObservation(hosts, settled=settled)
    return decide(job, observed, now=T0 + timedelta(seconds=seconds), policy=policy)


def verdict(decision: Decision) -> str | None:
    return decision.status.attempts[0].verdict


def test_an_uncertain_end_is_told_at_once_and_judged_when_the_window_is_over() -> None:
    early = pass_at(4.999, failed())
    assert (early.status.phase, early.status.attempts[0].reason) == ("Stopping", "NonZeroExit")
    assert (verdict(early), early.action, early.wake_at) == (None, None, T0 + timedelta(seconds=5))
    assert verdict(pass_at(5, failed())) == "Failure"


def test_the_window_counts_from_the_first_failure() -> None:
    hosts = failed(0), failed(20, 1, 143)
    assert verdict(pass_at(20, *hosts)) == "Failure"


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ((failed(code=137, reason=OOM_KILLED),), "Failure"),
        ((failed(code=143, evidence=EVICTED),), "Preemption"),
        ((replace(failed(code=143), phase=HostPhase.DELETED),), "Preemption"),
        ((failed(), failed(1, 1, 143, evidence=EVICTED)), "Preemption"),
        ((replace(RUNNING, phase=HostPhase.SUCCEEDED, ended_at=T0),), "Success"),
        # nothing tells when it was
        ((failed(None),), "Failure"),
    ],
    ids=["memory", "taken away", "deleted", "a peer was taken away", "success", "no time"],
)
def test_what_is_certain_is_judged_at_once(hosts: tuple[HostObservation, ...], expected: str) -> None:
    assert verdict(pass_at(0, *hosts)) == expected


@pytest.mark.parametrize("reason", ["StopRequested", "ActiveTimeout", "Suspended", "HostsGone"])
def test_an_attempt_that_was_ended_for_another_reason_does_not_wait(reason: str) -> None:
    assert verdict(pass_at(0, failed(code=143), reason=reason)) is not None


def test_evidence_within_the_window_changes_the_charge() -> None:
    evidence = failed(1, 1, 143, evidence=EVICTED)
    story: dict[str, Any] = {"message": "rank 0 exited with code 1", "log_tail": ["log"]}
    decision = pass_at(3, failed(), evidence, reason="NonZeroExit", **story)
    assert verdict(decision) == "Preemption"
    told = decision.status.attempts[0].message or ""
    assert told.startswith("rank 0 exited with code 1; rank 1 (slice 0, host 1) was taken away")
    assert decision.status.attempts[0].log_tail == ["log"]


def test_hosts_that_have_not_ended_are_ended_in_the_window() -> None:
    decision = pass_at(1, failed(), replace(RUNNING, rank=1, host=1))
    assert decision.action is not None
    assert decision.wake_at is None


@pytest.mark.parametrize(("ahead", "waits"), [(60, True), (61, False), (86400, False)])
def test_a_clock_that_is_ahead_by_more_than_clocks_differ_is_not_waited_for(
    *, ahead: float, waits: bool
) -> None:
    assert (verdict(pass_at(0, failed(ahead))) is None) is waits


def test_without_a_window_nothing_waits() -> None:
    assert verdict(pass_at(0, failed(), policy=RetryPolicy(10, 360))) == "Failure"
