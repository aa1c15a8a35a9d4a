"""Signs that hosts are taken away from outside: what pods tell of it, and which budget pays."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fray import testing
from fray.plan.children import is_left_to_itself
from fray.plan.gang import derive_gang
from fray.plan.observation import GangObservation
from fray.plan.pod_observation import derive_gang_observation
from fray.plan.reasons import REASONS
from fray.plan.verdict import derive_cause
from fray.testing import build_disruption_mark, build_frayjob, build_jobset, build_pod, running
from fray.vocabulary import Reason, VerdictKind

T0 = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
LIVE = build_jobset()
ENDED = build_jobset(end="Failed")
LEAVING = {"metadata": {"name": "train-a1", "deletionTimestamp": "2026-01-31T12:00:00Z"}, "spec": {}}
SUSPENDED = build_jobset(suspended=True)
LOST = "The container could not be located when the pod was terminated"
RUNNING = running("2026-01-31T11:00:00Z")


def at(seconds: float) -> str:
    return (T0 + timedelta(seconds=seconds)).isoformat()


def exited(code: int, *, after: float = 0.0, **more: Any) -> dict[str, Any]:
    return testing.exited(code, at=at(after), **more)


def pod(rank: int, phase: str, state: dict[str, Any] | None, **status: Any) -> dict[str, Any]:
    return build_pod(rank, phase, state, created=at(-100), **status)


def target(reason: str, message: str = "") -> dict[str, Any]:
    return {"marks": [build_disruption_mark(reason, message, at=at(-1))]}


def see(*pods: dict[str, Any], jobset: Mapping[str, Any] = LIVE) -> GangObservation:
    gang = derive_gang(build_frayjob(replicas=max(len(pods), 1)).spec)
    return derive_gang_observation(gang, jobset, pods)


EVICTED = target("EvictionByEvictionAPI", "Eviction API: evicting")
WHO = "rank 0 (slice 0, host 0)"


@pytest.mark.parametrize(
    ("failed", "told"),
    [
        (pod(0, "Failed", exited(137), **EVICTED), "EvictionByEvictionAPI: Eviction API: evicting"),
        (pod(0, "Failed", exited(143), **target("PreemptionByScheduler")), "PreemptionByScheduler"),
        (pod(0, "Failed", exited(0), **target("TerminationByKubelet")), "TerminationByKubelet"),
        (pod(0, "Failed", None, **target("DeletionByPodGC")), "DeletionByPodGC"),
        (pod(0, "Failed", exited(137, reason="ContainerStatusUnknown", message=LOST)), LOST),
        (pod(0, "Failed", exited(255, reason="Unknown")), "the container's end was not seen"),
        (pod(0, "Failed", None, reason="OutOfcpu", message="Pod was rejected: no cpu"), "OutOfcpu: Pod was"),
        (pod(0, "Failed", None, reason="NodeAffinity", message="Pod was rejected: a"), "NodeAffinity: Pod"),
        (pod(0, "Failed", exited(143), reason="Preempting", message="Preempted"), "Preempting: Preempted"),
        (
            pod(0, "Failed", exited(137), reason="Evicted", message="The node was low"),
            "Evicted: The node was",
        ),
        (pod(0, "Failed", RUNNING), "its node was given up while it ran"),
        (
            pod(
                0,
                "Failed",
                exited(137),
                reason="Evicted",
                message="The node was low on resource: memory.",
                **target("TerminationByKubelet"),
            ),
            "TerminationByKubelet",
        ),
    ],
)
def test_a_host_that_is_taken_away_is_a_preemption(failed: dict[str, Any], told: str) -> None:
    cause = derive_cause(see(failed))
    assert cause is not None
    assert cause.reason is Reason.DISRUPTED
    assert cause.message.splitlines()[0].startswith(f"{WHO} was taken away ({told}")
    assert REASONS[cause.reason].charge is VerdictKind.PREEMPTION


def test_that_nobody_saw_its_end_is_told_once_and_is_no_log() -> None:
    cause = derive_cause(see(pod(0, "Failed", exited(137, reason="ContainerStatusUnknown", message=LOST))))
    assert cause is not None
    assert cause.message == f"{WHO} was taken away ({LOST})"


@pytest.mark.parametrize(
    "message",
    [
        "The node was low on resource: memory. Container main was using 9Gi, request is 1Gi, "
        "has larger consumption of memory.",
        "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi.",
    ],
)
def test_a_pod_that_is_evicted_for_its_own_use_is_a_failure(message: str) -> None:
    lost = exited(137, reason="ContainerStatusUnknown", message=LOST)
    cause = derive_cause(
        see(pod(0, "Failed", lost, reason="Evicted", message=message, **target("TerminationByKubelet")))
    )
    assert cause is not None
    assert REASONS[cause.reason].charge is VerdictKind.FAILURE


def test_a_condition_that_does_not_hold_is_no_sign() -> None:
    status = target("EvictionByEvictionAPI")
    status["marks"][0]["status"] = "False"
    cause = derive_cause(see(pod(0, "Failed", exited(1), **status)))
    assert cause is not None
    assert cause.reason is Reason.NON_ZERO_EXIT


def test_a_peer_that_crashes_first_is_named_with_the_host_that_is_taken_away() -> None:
    cause = derive_cause(see(pod(0, "Failed", exited(1)), pod(1, "Running", RUNNING, **EVICTED)))
    assert cause is not None
    assert cause.host is not None
    assert (cause.host.rank, cause.reason) == (0, Reason.DISRUPTED)
    assert cause.message == (
        f"{WHO} exited with code 1; rank 1 (slice 0, host 1) was taken away "
        "(EvictionByEvictionAPI: Eviction API: evicting)"
    )


def test_memory_that_ran_out_first_is_a_failure_whatever_came_after() -> None:
    oom = exited(137, reason="OOMKilled")
    cause = derive_cause(see(pod(0, "Failed", oom), pod(1, "Failed", exited(137, after=1), **EVICTED)))
    assert cause is not None
    assert cause.reason is Reason.OUT_OF_MEMORY


def test_of_hosts_that_ended_in_the_same_second_the_first_is_one_that_explains_itself() -> None:
    oom = exited(137, reason="OOMKilled")
    cause = derive_cause(see(pod(0, "Failed", exited(1)), pod(1, "Failed", oom)))
    assert cause is not None
    assert cause.host is not None
    assert (cause.reason, cause.host.rank) == (Reason.OUT_OF_MEMORY, 1)


def test_a_pod_that_never_ran_ended_when_it_was_marked() -> None:
    (host,) = see(pod(0, "Failed", None, **EVICTED)).hosts
    assert host.ended_at == T0 - timedelta(seconds=1)


# --- when nothing is made anew --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("observed", "ended"),
    [
        (see(pod(0, "Failed", exited(1))), False),
        (see(pod(0, "Failed", exited(1)), jobset=ENDED), True),
        (see(pod(0, "Failed", exited(1)), jobset=LEAVING), True),
        (see(pod(0, "Succeeded", exited(0))), True),
        # its program has ended, but a sidecar keeps the pod alive
        (see(pod(0, "Running", exited(0))), False),
        (see(pod(0, "Running", RUNNING), jobset=ENDED), False),
    ],
)
def test_an_attempt_has_ended_once_no_host_will_be_made_anew(observed: GangObservation, ended: bool) -> None:
    assert observed.ended is ended


def test_only_a_jobset_that_goes_on_counts_as_suspended() -> None:
    finished = ENDED | {"spec": {"suspend": True}}
    leaving = LEAVING | {"spec": {"suspend": True}}
    seen = [see(jobset=jobset).suspended for jobset in (LIVE, SUSPENDED, finished, leaving)]
    assert seen == [False, True, False, False]


@pytest.mark.parametrize(
    ("reason", "jobset", "pods", "after", "left"),
    [
        (Reason.NON_ZERO_EXIT, LIVE, [pod(0, "Failed", exited(1))], 59, True),
        (Reason.NON_ZERO_EXIT, LIVE, [pod(0, "Failed", exited(1))], 60, False),
        (Reason.NON_ZERO_EXIT, ENDED, [pod(0, "Failed", exited(1))], 3600, True),
        (Reason.EVICTED, LIVE, [pod(0, "Failed", exited(137))], 59, True),
        (Reason.DISRUPTED, LIVE, [pod(0, "Failed", exited(1))], 1, True),
        # the Job of the pod that failed was deleted, and JobSet has made another
        (Reason.KILLED_BY_SIGNAL, LIVE, [pod(0, "Running", RUNNING)], 1, False),
        (
            Reason.KILLED_BY_SIGNAL,
            LIVE,
            [pod(0, "Running", RUNNING), pod(1, "Succeeded", exited(0))],
            1,
            False,
        ),
        (Reason.KILLED_BY_SIGNAL, SUSPENDED, [pod(0, "Failed", exited(143))], 1, False),
        (Reason.COMPLETED, LIVE, [pod(0, "Running", exited(0))], 59, True),
        (Reason.COMPLETED, LIVE, [pod(0, "Running", exited(0))], 60, False),
        (Reason.STOP_REQUESTED, LIVE, [pod(0, "Running", RUNNING)], 1, False),
        (Reason.ACTIVE_TIMEOUT, LIVE, [pod(0, "Failed", exited(1))], 1, False),
        # if it was its Job that was deleted, JobSet will make another, and that the pod
        (Reason.HOSTS_GONE, LIVE, [pod(0, "Failed", exited(143))], 1, False),
        (Reason.SUSPENDED, SUSPENDED, [pod(0, "Failed", exited(143))], 1, False),
    ],
)
def test_a_jobset_is_left_alone_only_while_it_ends_by_itself(
    reason: Reason, jobset: dict[str, Any], pods: list[dict[str, Any]], after: float, left: bool
) -> None:
    now = T0 + timedelta(seconds=after)
    assert is_left_to_itself(reason, jobset, see(*pods, jobset=jobset), now=now) is left
