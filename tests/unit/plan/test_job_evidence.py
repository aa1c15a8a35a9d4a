"""Evictions whose pods are gone before anybody looked: the Jobs tell, unless the pods know better."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fray.plan.gang import derive_gang
from fray.plan.job_evidence import is_unexplained, with_job_evidence
from fray.plan.observation import GangObservation
from fray.plan.pod_observation import derive_gang_observation
from fray.plan.verdict import derive_cause
from fray.testing import build_frayjob
from fray.vocabulary import LABEL_COMPLETION_INDEX, LABEL_JOB_INDEX, Reason
from fray.wire.status import AttemptStatus

AT = "2026-01-31T12:00:00Z"
TWO_SLICES = {"replicas": 2, "resources": {"tpu": {"type": "v5p-16"}}}
"""Two slices of two hosts."""
SINCE: dict[str, Any] = {"number": 1, "job_set": "train-a1"}
TARGET = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}


def see(*pods: dict[str, Any], end: str | None = "Failed") -> GangObservation:
    conditions = [] if end is None else [{"type": end, "status": "True"}]
    jobset = {"metadata": {"name": "train-a1"}, "spec": {}, "status": {"conditions": conditions}}
    return derive_gang_observation(derive_gang(build_frayjob(**TWO_SLICES).spec), jobset, pods)


def failed_pod(slice_index: int, host: int, code: int, **more: Any) -> dict[str, Any]:
    labels = {LABEL_JOB_INDEX: str(slice_index), LABEL_COMPLETION_INDEX: str(host)}
    ended = {"exitCode": code, "finishedAt": more.pop("at", AT), "reason": more.pop("reason", "Error")}
    return {
        "metadata": {"name": f"pod-{slice_index}-{host}", "labels": labels, "creationTimestamp": AT},
        "status": {
            "phase": "Failed",
            "containerStatuses": [{"name": "main", "state": {"terminated": ended}}],
            **more,
        },
    }


def matched(pod: str) -> str:
    return f"Pod {pod} has condition DisruptionTarget matching FailJob rule at index 0"


def child(slice_index: int, message: str, *, reason: str = "PodFailurePolicy", kind: str = "Failed") -> Any:
    """Return a Job that has ended."""
    ended = {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": AT}
    return {
        "metadata": {
            "name": f"train-a1-slice-{slice_index}",
            "labels": {LABEL_JOB_INDEX: str(slice_index)},
        },
        "status": {"conditions": [{"type": "FailureTarget", "status": "True"}, ended]},
    }


LAST = matched("ml/train-a1-slice-1-1-x7x2p")


def killed(code: int, pod: str = "ml/train-a1-slice-1-1-x7x2p") -> str:
    return f"Container main for pod {pod} failed with exit code {code} matching FailJob rule at index 1"


def test_a_job_names_the_host_that_was_taken_away_and_when() -> None:
    cause = derive_cause(with_job_evidence(see(), [child(0, "", reason="Deleted"), child(1, LAST)]))
    assert cause is not None
    assert cause.reason is Reason.DISRUPTED
    assert cause.message == f"rank 3 (slice 1, host 1) was taken away ({LAST})"
    assert cause.at == datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(("code", "name"), [(143, "SIGTERM"), (137, "SIGKILL")])
def test_a_pod_that_was_killed_and_is_gone_was_deleted(code: int, name: str) -> None:
    cause = derive_cause(with_job_evidence(see(), [child(1, killed(code))]))
    assert cause is not None
    assert cause.reason is Reason.HOSTS_GONE
    assert cause.message == (
        f"rank 3 (slice 1, host 1) was killed by {name} (exit code {code}): its pod was deleted from outside"
    )
    assert cause.at == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert cause.host is not None
    assert (cause.host.name, cause.host.exit_code) == ("train-a1-slice-1-1-x7x2p", code)


def test_a_pod_that_was_killed_is_no_excuse_for_a_peer_that_crashed() -> None:
    cause = derive_cause(with_job_evidence(see(failed_pod(0, 0, 1)), [child(1, killed(143))]))
    assert cause is not None
    assert cause.reason is Reason.NON_ZERO_EXIT


def test_what_a_job_that_is_deleted_says_of_its_pods_is_only_how_it_ended_them() -> None:
    leaving = child(1, killed(143))
    leaving["metadata"]["deletionTimestamp"] = AT
    assert with_job_evidence(see(), [leaving]) == see()


def test_a_peer_that_crashed_is_named_with_the_host_that_was_taken_away() -> None:
    crashed = failed_pod(0, 0, 1, at="2026-01-31T11:59:59Z")
    cause = derive_cause(with_job_evidence(see(crashed), [child(1, LAST)]))
    assert cause is not None
    assert cause.reason is Reason.DISRUPTED
    assert cause.message.startswith("rank 0 (slice 0, host 0) exited with code 1; rank 3 (slice 1, host 1)")


def test_a_pod_whose_name_does_not_tell_stands_for_the_first_that_is_gone() -> None:
    told = with_job_evidence(see(failed_pod(1, 0, 1)), [child(1, "Pod has condition DisruptionTarget")])
    assert [host.disruption is not None for host in told.hosts] == [False, False, False, True]


@pytest.mark.parametrize(
    "job",
    [
        child(1, "Job has reached the specified backoff limit", reason="BackoffLimitExceeded"),
        child(1, LAST, kind="FailureTarget"),
        child(1, LAST, reason="BackoffLimitExceeded"),
        child(1, matched("ml/train-a1-slice-1-7-x7x2p")),
        child(1, killed(1)),
        child(1, killed(1437)),
        child(1, killed(143), reason="BackoffLimitExceeded"),
        {"metadata": {"name": "train-a1-slice-1"}, "status": {}},
    ],
    ids=[
        "another end",
        "not the end",
        "another rule",
        "no host of the gang",
        "another exit code",
        "a longer exit code",
        "not the rule of the exit code",
        "nothing yet",
    ],
)
def test_a_job_that_says_something_else_changes_nothing(job: dict[str, Any]) -> None:
    assert with_job_evidence(see(), [job]) == see()


def test_a_pod_that_is_there_knows_better_than_its_job() -> None:
    # It was evicted for what it used itself, which Kubernetes marks as a disruption too.
    own_use = failed_pod(1, 1, 137, reason="OOMKilled")
    assert with_job_evidence(see(own_use), [child(1, LAST)]) == see(own_use)


@pytest.mark.parametrize(
    ("observed", "reason", "asked"),
    [
        (see(), None, True),
        (see(failed_pod(0, 0, 1)), None, True),
        (see(failed_pod(0, 0, 1)), "NonZeroExit", True),
        (see(failed_pod(0, 0, 137)), "KilledBySignal", True),
        (see(failed_pod(0, 0, 137, reason="OOMKilled")), None, False),
        (see(), "ActiveTimeout", False),
        (see(), "Disrupted", False),
        (see(failed_pod(0, 0, 137, conditions=[TARGET])), None, False),
        (see(failed_pod(0, 0, 137, conditions=[TARGET])), "NonZeroExit", False),
        (see(*[failed_pod(rank // 2, rank % 2, 1) for rank in range(4)]), None, False),
        (see(end="Completed"), None, False),
        (see(end=None), None, False),
    ],
    ids=[
        "all gone",
        "some gone",
        "some gone since",
        "some gone since a kill",
        "out of memory",
        "timeout",
        "known already",
        "a pod tells",
        "a pod tells since",
        "all pods there",
        "success",
        "not ended",
    ],
)
def test_jobs_are_asked_only_when_pods_that_are_gone_may_be_the_cause(
    observed: GangObservation, reason: str | None, asked: bool
) -> None:
    assert is_unexplained(AttemptStatus(**SINCE, reason=reason), observed) is asked
