"""A pod that its own `activeDeadlineSeconds` ended says so, whatever its container made of SIGTERM."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fray.plan.children import is_left_to_itself
from fray.plan.gang import derive_gang
from fray.plan.observation import GangObservation
from fray.plan.pod_observation import derive_gang_observation
from fray.plan.reasons import REASONS
from fray.plan.verdict import derive_cause
from fray.testing import build_frayjob
from fray.vocabulary import LABEL_COMPLETION_INDEX, Reason, VerdictKind

AT = "2026-01-31T12:00:00Z"
JOBSET: dict[str, Any] = {"metadata": {"name": "train-a1"}, "spec": {}}
SAID = "Pod was active on the node longer than the specified deadline"


def see(ended: dict[str, Any]) -> GangObservation:
    metadata = {"name": "pod-0", "creationTimestamp": AT, "labels": {LABEL_COMPLETION_INDEX: "0"}}
    container = {"name": "main", "state": {"terminated": ended} if ended else {}}
    status = {"phase": "Failed", "reason": "DeadlineExceeded", "message": SAID}
    pod = {"metadata": metadata, "spec": {}, "status": {**status, "containerStatuses": [container]}}
    return derive_gang_observation(derive_gang(build_frayjob().spec), JOBSET, [pod])


@pytest.mark.parametrize(
    "ended",
    [
        {"exitCode": 143, "reason": "Error", "finishedAt": AT},
        {"exitCode": 137, "reason": "Error", "finishedAt": AT},
        {"exitCode": 1, "reason": "Error", "finishedAt": AT},
        {"exitCode": 0, "reason": "Completed", "finishedAt": AT},
        {},
    ],
    ids=["by SIGTERM", "by SIGKILL", "by itself", "well", "before it ran"],
)
def test_a_pod_that_had_no_more_time_is_a_failure_of_its_own_kind(ended: dict[str, Any]) -> None:
    observed = see(ended)
    cause = derive_cause(observed)
    assert cause is not None
    assert (cause.reason, REASONS[cause.reason].charge) == (Reason.DEADLINE_EXCEEDED, VerdictKind.FAILURE)
    assert cause.message == (
        "rank 0 (slice 0, host 0) ran longer than activeDeadlineSeconds of its podTemplate allows, "
        "and was ended"
    )


def test_its_jobset_is_left_to_end_with_its_logs() -> None:
    observed = see({"exitCode": 143, "reason": "Error", "finishedAt": AT})
    soon = datetime(2026, 1, 31, 12, 0, tzinfo=UTC) + timedelta(seconds=1)
    assert is_left_to_itself(Reason.DEADLINE_EXCEEDED, JOBSET, observed, now=soon)


def test_memory_that_ran_out_comes_first() -> None:
    cause = derive_cause(see({"exitCode": 137, "reason": "OOMKilled", "finishedAt": AT}))
    assert cause is not None
    assert cause.reason is Reason.OUT_OF_MEMORY
