"""An attempt names what its callable left for the client: that of the host that decided its end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fray.plan.gang import derive_gang
from fray.plan.lifecycle import decide
from fray.plan.limits import RetryPolicy
from fray.plan.pod_observation import derive_gang_observation
from fray.termination import Ending, TerminationMessage
from fray.testing import build_frayjob, build_jobset, build_pod, exited
from fray.wire.status import AttemptStatus, FrayJobStatus
from tests.unit.plan.frayjobs import with_status

AT = "2026-01-31T12:00:0{}Z"
NOW = datetime(2026, 1, 31, 12, 1, tzinfo=UTC)
JOB = with_status(
    build_frayjob(replicas=2),
    FrayJobStatus(attempts=[AttemptStatus(number=1, job_set="train-a1", start_time=AT.format(0))]),
)


def told(ending: Ending, sha256: str | None) -> str:
    return TerminationMessage(ending, "ValueError", "no number", "", sha256).to_json()


def pod(rank: int, code: int, message: str, *, second: int = 5) -> dict[str, Any]:
    ended = exited(code, at=AT.format(second), startedAt=AT.format(1), message=message)
    return build_pod(rank, "Failed" if code else "Succeeded", ended, created=AT.format(0))


def outcome_of(*pods: dict[str, Any]) -> str | None:
    observed = derive_gang_observation(derive_gang(JOB.spec), build_jobset(), pods)
    (attempt,) = decide(JOB, observed, now=NOW, policy=RetryPolicy()).status.attempts
    assert attempt.reason is not None
    return attempt.outcome


def test_of_an_attempt_that_failed_it_is_that_of_the_host_to_blame() -> None:
    first = pod(1, 1, told(Ending.RAISED, "b" * 64), second=4)
    peer = pod(0, 1, told(Ending.RAISED, "a" * 64), second=5)
    assert outcome_of(peer, first) == "b" * 64


def test_of_a_host_to_blame_that_left_none_there_is_none() -> None:
    first = pod(1, 1, "Killed", second=4)
    assert outcome_of(pod(0, 1, told(Ending.RAISED, "a" * 64)), first) is None


def test_of_an_attempt_that_went_well_it_is_the_value_of_rank_0() -> None:
    ended = [pod(rank, 0, told(Ending.RETURNED, digit * 64)) for rank, digit in enumerate("ab")]
    assert outcome_of(*reversed(ended)) == "a" * 64


@pytest.mark.parametrize("digest", [None, "", "a" * 63, "A" * 64, "a" * 64 + "\n"])
def test_only_a_digest_is_recorded(digest: str | None) -> None:
    assert outcome_of(pod(0, 0, told(Ending.RETURNED, digest)), pod(1, 0, "")) is None
