"""A node that fails hosts of two attempts is kept off by the next ones: for a while, and not without end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fray.plan.jobset import build_attempt
from fray.plan.lifecycle import Decision, EndAttempt, StartAttempt, decide
from fray.plan.node_faults import add_avoided, drop_expired
from fray.plan.observation import (
    Evidence,
    EvidenceKind,
    GangObservation,
    HostObservation,
    HostPhase,
    Waiting,
)
from fray.plan.settings import PlanSettings, RetryPolicy
from fray.plan.timestamps import format_time, parse_time
from fray.testing import build_frayjob
from fray.vocabulary import Reason
from fray.wire.frayjob import FrayJob
from fray.wire.status import AttemptStatus, AvoidedNode, FrayJobStatus, NodeFault
from tests.unit.plan.frayjobs import with_status
from tests.unit.plan.jobset_rules import pod_template

T0 = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
SILENT = Evidence(EvidenceKind.NODE_SILENT, "its node node-7 is unreachable")
HOUR = timedelta(hours=1)
POLICY = RetryPolicy(initial_seconds=0, cap_seconds=0)
REFUSED = "UnexpectedAdmissionError"
TWO_SLICES = {"replicas": 2, "resources": {"tpu": {"type": "v5p-16"}}}


def host(rank: int, node: str, fault: str | None = None, **more: Any) -> HostObservation:
    """Return a host that runs, or that was refused by its node."""
    if fault is None:
        return HostObservation(0, rank, rank, f"pod-{rank}", HostPhase.RUNNING, node, started_at=T0, **more)
    return HostObservation(
        0, rank, rank, f"pod-{rank}", HostPhase.FAILED, node, reason=fault, ended_at=T0, **more
    )


def crashed(rank: int, node: str) -> HostObservation:
    return HostObservation(0, rank, rank, f"pod-{rank}", HostPhase.FAILED, node, exit_code=1, ended_at=T0)


class Job:
    """A job of which attempt after attempt ends, seen by one `decide` after the other."""

    def __init__(self, policy: RetryPolicy = POLICY, **spec: Any) -> None:
        spec = {"replicas": 2, "retries": {"failures": 50}, **spec}
        self.job, self.now, self.policy = build_frayjob(**spec), T0, policy
        self.look(None)

    @property
    def status(self) -> FrayJobStatus:
        return self.job.status

    @property
    def avoided(self) -> dict[str, str]:
        """When each avoided node may be used again, as a time of day."""
        return {entry.node: entry.until[11:16] for entry in self.status.avoided_nodes}

    def look(self, *hosts: HostObservation | None, waiting: Waiting | None = None) -> Decision:
        gang = None if hosts[0] is None else GangObservation(tuple(h for h in hosts if h), waiting)
        decision = decide(self.job, gang, now=self.now, policy=self.policy)
        again = decide(self.job, gang, now=self.now, policy=self.policy)
        assert again == decision
        self.job = with_status(self.job, decision.status)
        return decision

    def fail(self, *hosts: HostObservation) -> None:
        """Let the attempt end with these hosts, and the next one be begun."""
        number = self.status.attempts[-1].number
        assert self.look(*hosts).action == StartAttempt(number + 1)

    def affinity(self) -> list[list[Any]]:
        """The expressions of the last attempt's pods, as its JobSet is built."""
        number = self.status.attempts[-1].number
        jobset = build_attempt(self.job, attempt=number, settings=PlanSettings()).jobset
        affinity = pod_template(jobset)["spec"].get("affinity", {}).get("nodeAffinity", {})
        terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get(
            "nodeSelectorTerms", []
        )
        return [[(e["key"], e["operator"], e["values"]) for e in term["matchExpressions"]] for term in terms]


def off(*nodes: str) -> list[list[Any]]:
    return [[("kubernetes.io/hostname", "NotIn", list(nodes))]]


# --- when a node is avoided -----------------------------------------------------------------------------


def test_the_second_fault_of_a_node_keeps_the_next_attempt_off_it() -> None:
    job = Job()
    job.fail(crashed(0, "node-1"), host(1, "node-7", REFUSED, message="no healthy devices"))
    assert (job.avoided, job.affinity()) == ({}, [])
    assert job.status.attempts[0].node == "node-1", "named is another host"
    job.fail(crashed(1, "node-1"), host(0, "node-7", REFUSED, message="no healthy devices"))
    assert job.status.avoided_nodes == [
        AvoidedNode(
            node="node-7",
            until="2026-01-31T13:00:00.000Z",
            reason=f"hosts failed there in attempts 1 and 2: {REFUSED}: no healthy devices",
        )
    ]
    assert job.affinity() == off("node-7")


def test_attempts_between_do_not_matter() -> None:
    job = Job()
    for node in ("node-7", "node-8", "node-9", "node-7"):
        job.fail(host(0, node, REFUSED), crashed(1, "x"))
    assert list(job.avoided) == ["node-7"]
    assert job.status.avoided_nodes[0].reason == f"hosts failed there in attempts 1 and 4: {REFUSED}"


def test_a_program_that_crashes_on_the_same_node_for_ever_is_not_the_nodes_fault() -> None:
    job = Job()
    for _ in range(5):
        job.fail(crashed(0, "node-7"), crashed(1, "node-8"))
    assert (job.avoided, job.affinity()) == ({}, [])
    assert all(attempt.node_faults == [] for attempt in job.status.attempts)


def test_two_hosts_of_one_attempt_count_once() -> None:
    job = Job()
    job.fail(host(0, "node-7", REFUSED), host(1, "node-7", REFUSED))
    assert job.avoided == {}


def test_a_fault_that_is_seen_only_while_the_attempt_ends_counts_though_its_hosts_are_gone_later() -> None:
    job = Job()
    for number in (1, 2):
        assert job.look(crashed(0, "node-1"), host(1, "node-7")).action == EndAttempt(
            number, Reason.NON_ZERO_EXIT
        )
        job.look(crashed(0, "node-1"), host(1, "node-7", evidence=SILENT))
        job.look(None)
    assert job.affinity() == off("node-7")


def test_a_node_that_fails_again_after_its_time_is_avoided_again_at_once() -> None:
    job = Job()
    for _ in range(2):
        job.fail(host(0, "node-7", REFUSED), crashed(1, "x"))
    job.now += HOUR
    job.fail(crashed(0, "x"), crashed(1, "x"))
    assert (job.avoided, job.affinity()) == ({}, [])
    job.fail(host(0, "node-7", REFUSED), crashed(1, "x"))
    assert job.avoided == {"node-7": "14:00"}
    assert job.status.avoided_nodes[0].reason.startswith("hosts failed there in attempts 1, 2 and 4: ")


def test_nothing_is_avoided_where_that_is_switched_off() -> None:
    job = Job(RetryPolicy(0, 0, avoid_seconds=0))
    for _ in range(3):
        job.fail(host(0, "node-7", REFUSED), crashed(1, "x"))
    assert (job.avoided, job.affinity()) == ({}, [])
    assert job.status.attempts[0].node_faults == []


def test_what_was_avoided_is_not_any_more_once_it_is_switched_off() -> None:
    job = Job()
    for _ in range(2):
        job.fail(host(0, "node-7", REFUSED), crashed(1, "x"))
    job.policy = RetryPolicy(0, 0, avoid_seconds=0)
    assert job.affinity() == off("node-7"), "the attempt that is being created"
    job.fail(crashed(0, "x"), crashed(1, "x"))
    assert (job.avoided, job.affinity()) == ({}, [])


def test_silent_nodes_are_avoided_unless_the_job_wants_spot_nodes() -> None:
    for spot, avoided in (("Allowed", ["node-7"]), ("Required", [])):
        job = Job(placement={"preemptible": True, "spot": spot})
        for _ in range(2):
            job.look(host(0, "node-7", evidence=SILENT), crashed(1, "x"))
            job.look(None)
        assert list(job.avoided) == avoided


# --- slices of several hosts ----------------------------------------------------------------------------


def slices(*pools: str | None) -> list[HostObservation]:
    return [host(rank, f"tpu-{rank}", REFUSED, node_pool=pool) for rank, pool in enumerate(pools)]


def test_a_slice_of_several_hosts_avoids_the_whole_pool() -> None:
    job = Job(**TWO_SLICES)
    for _ in range(2):
        job.fail(*slices("a", "a"), crashed(2, "x"), crashed(3, "x"))
    assert [entry.node_pool for entry in job.status.avoided_nodes] == ["a", "a"]
    assert job.affinity() == [[("cloud.google.com/gke-nodepool", "NotIn", ["a"])]]


def test_it_is_enough_that_the_pool_was_known_once() -> None:
    job = Job(**TWO_SLICES)
    for pool in ("a", None):
        job.fail(*slices(pool), crashed(1, "x"), crashed(2, "x"), crashed(3, "x"))
    assert job.affinity() == [[("cloud.google.com/gke-nodepool", "NotIn", ["a"])]]


def test_a_slice_of_several_hosts_avoids_nothing_where_its_pool_is_not_known() -> None:
    job = Job(**TWO_SLICES)
    for _ in range(3):
        job.fail(*slices(None), crashed(1, "x"), crashed(2, "x"), crashed(3, "x"))
    assert (job.avoided, job.affinity()) == ({}, [])
    assert [fault.node for fault in job.status.attempts[0].node_faults] == ["tpu-0"]


# --- the pods -------------------------------------------------------------------------------------------


def test_pods_whose_node_the_template_names_are_left_to_it() -> None:
    job = Job(podTemplate={"spec": {"nodeName": "node-7"}})
    for _ in range(2):
        job.fail(host(0, "node-7", REFUSED), crashed(1, "node-7"))
    assert list(job.avoided) == ["node-7"]
    assert job.affinity() == []


def test_the_jobset_is_the_same_however_often_and_late_it_is_built() -> None:
    job = Job()
    for _ in range(2):
        job.fail(host(0, "node-7", REFUSED), crashed(1, "x"))
    before = job.affinity()
    for later in (HOUR, 3 * HOUR):  # the operator died before it created it
        job.now = T0 + later
        assert job.look(None).action == StartAttempt(3)
        assert job.affinity() == before == off("node-7")
    refused = Waiting(Reason.ADMISSION_REFUSED, "a webhook is down")  # which the status tells
    status = decide(job.job, None, now=job.now, policy=POLICY, refusal=refused).status
    assert status != job.status
    assert status.avoided_nodes == job.status.avoided_nodes


# --- for how long, and how many -------------------------------------------------------------------------


def test_what_is_over_goes_with_the_next_status_and_is_worth_none_of_its_own() -> None:
    job = Job()
    for _ in range(2):
        job.fail(host(0, "node-7", REFUSED), crashed(1, "x"))
    job.look(host(0, "node-1"), host(1, "node-2"))
    before = job.status
    job.now += HOUR
    job.look(host(0, "node-1"), host(1, "node-2"))
    assert job.status == before, "no write only for that"
    job.look(host(0, "node-1"), crashed(1, "node-2"))
    assert job.avoided == {}


def test_at_most_ten_nodes_are_avoided_the_oldest_goes_first() -> None:
    job = Job(retries={"failures": 100})
    for node in range(13):
        for _ in range(2):
            job.fail(host(0, f"node-{node}", REFUSED), crashed(1, "x"))
        job.now += timedelta(minutes=1)
    assert list(job.avoided) == [f"node-{node}" for node in range(3, 13)]
    assert job.affinity() == off(*job.avoided)


def test_a_node_that_fails_once_more_is_the_newest_again() -> None:
    """As with pods that somebody has freed from the rule."""
    spec, fault = build_frayjob().spec, NodeFault(node="a", fault=REFUSED)
    before = [AvoidedNode(node=node, until=format_time(T0), reason="so") for node in ("a", "b")]
    attempts = [AttemptStatus(number=number, node_faults=[fault]) for number in (1, 2)]
    after = add_avoided(before, attempts, spec, until=T0 + HOUR)
    assert [(entry.node, entry.until[11:16]) for entry in after] == [("b", "12:00"), ("a", "13:00")]


def test_an_attempt_keeps_ten_faults() -> None:
    job = Job(replicas=30)
    for _ in range(2):
        job.fail(*(host(rank, f"node-{rank}", REFUSED) for rank in range(30)))
    assert len(job.status.attempts[0].node_faults) == len(job.avoided) == 10


NODES = st.sampled_from([f"node-{number}" for number in range(14)])


@settings(max_examples=150, derandomize=True)
@given(st.lists(st.tuples(st.sets(NODES, max_size=12), st.integers(0, 40)), min_size=1, max_size=40))
def test_whatever_fails_the_list_is_short_and_every_entry_was_earned(
    steps: list[tuple[set[str], int]],
) -> None:
    avoided: tuple[AvoidedNode, ...] = ()
    attempts: list[AttemptStatus] = []
    now = T0
    spec = build_frayjob().spec
    for number, (nodes, minutes) in enumerate(steps, start=1):
        now += timedelta(minutes=minutes)
        avoided = drop_expired(avoided, now)
        met = sorted(nodes - {entry.node for entry in avoided})  # pods don't come to the others
        faults = [NodeFault(node=node, fault=REFUSED) for node in met[:10]]
        attempts = [*attempts, AttemptStatus(number=number, node_faults=faults)][-10:]
        avoided = add_avoided(avoided, attempts, spec, until=now + HOUR)
        assert len(avoided) <= 10
        assert len({entry.node for entry in avoided}) == len(avoided)
        assert [entry.until for entry in avoided] == sorted(entry.until for entry in avoided)
        assert all(now < parse_time(entry.until) <= now + HOUR for entry in avoided)
        for fault in faults:
            twice = sum(fault.node in [f.node for f in attempt.node_faults] for attempt in attempts) > 1
            assert not twice or len(avoided) == 10 or fault.node in [entry.node for entry in avoided]
            assert twice or fault.node not in [entry.node for entry in avoided]


# --- when there is nowhere else to go -------------------------------------------------------------------

WAITING = Waiting(Reason.NODES_AVOIDED, "2 nodes match, but none can be used: 2 avoided")


def avoiding(**spec: Any) -> tuple[Job, HostObservation]:
    """Return a job whose fourth attempt keeps off two nodes, one for longer, and a host that has no node."""
    job = Job(**spec)
    job.fail(host(0, "node-7", REFUSED), crashed(1, "x"))
    job.fail(host(0, "node-7", REFUSED), host(1, "node-8", REFUSED))
    job.now += timedelta(minutes=10)
    job.fail(host(0, "node-8", REFUSED), crashed(1, "x"))
    assert job.avoided == {"node-7": "13:00", "node-8": "13:10"}
    return job, HostObservation(0, 1, 1, "pod-1", HostPhase.PENDING)


def test_an_attempt_that_waits_for_avoided_nodes_ends_when_the_first_comes_back() -> None:
    job, left_out = avoiding()
    decision = job.look(host(0, "node-1"), left_out, waiting=WAITING)
    assert decision.action is None
    assert decision.wake_at == T0 + HOUR
    assert (job.status.phase, job.status.reason) == ("Restarting", "NodesAvoided")
    job.now = T0 + HOUR
    assert job.look(host(0, "node-1"), left_out, waiting=WAITING).action == EndAttempt(
        4, Reason.NODES_AVOIDED
    )
    assert job.look(None).action == StartAttempt(5)
    ended = job.status.attempts[-2]
    assert (ended.verdict, ended.reason) == ("Unplaced", "NodesAvoided")
    assert ended.message == "no node took its hosts, and one that they keep off may be used again"
    assert job.status.retries is not None
    assert (job.status.retries.failures_used, job.status.retries.preemptions_used) == (3, 0)
    assert (job.avoided, job.affinity()) == ({"node-8": "13:10"}, off("node-8"))


def test_an_attempt_that_waits_to_its_limit_is_charged_to_nothing_and_the_next_may_use_them() -> None:
    job, left_out = avoiding(timeouts={"pendingSeconds": 1200})
    before = job.status.retries
    decision = job.look(host(0, "node-1"), left_out, waiting=WAITING)
    begun = parse_time(job.status.attempts[-1].start_time or "")
    assert decision.wake_at == begun + timedelta(minutes=20) < T0 + HOUR
    job.now = decision.wake_at
    ending = job.look(host(0, "node-1"), left_out, waiting=WAITING)
    assert ending.action == EndAttempt(4, Reason.NODES_AVOIDED)
    assert job.look(None).action == StartAttempt(5)
    ended = job.status.attempts[-2]
    assert (ended.verdict, ended.reason) == ("Unplaced", "NodesAvoided")
    assert ended.message == (
        "not all hosts ran within spec.timeouts.pendingSeconds (1200); no other node takes them, "
        "so the next attempt may use those that this one kept off"
    )
    assert job.status.retries == before
    assert (job.avoided, job.affinity()) == ({}, [])
    job.fail(host(0, "node-7", REFUSED), crashed(1, "x"))
    assert list(job.avoided) == ["node-7"], "it has failed there once more"


def test_an_attempt_that_waits_to_its_limit_for_something_else_has_failed() -> None:
    job, left_out = avoiding(timeouts={"pendingSeconds": 1200})
    full = Waiting(Reason.INSUFFICIENT_CAPACITY, "none has room")
    job.look(host(0, "node-1"), left_out, waiting=full)
    job.now += timedelta(minutes=20)
    assert job.look(host(0, "node-1"), left_out, waiting=full).action == EndAttempt(4, Reason.PENDING_TIMEOUT)


@pytest.mark.parametrize(
    "waiting",
    [None, Waiting(Reason.INSUFFICIENT_CAPACITY, "none has room"), Waiting(Reason.UNSCHEDULABLE, "no")],
)
def test_an_attempt_that_waits_for_something_else_is_left_waiting(waiting: Waiting | None) -> None:
    job, left_out = avoiding()
    job.now = T0 + 2 * HOUR
    decision = job.look(host(0, "node-1"), left_out, waiting=waiting)
    assert (decision.action, decision.wake_at) == (None, None)


def test_an_attempt_whose_hosts_have_all_run_is_never_ended_for_it() -> None:
    job, left_out = avoiding()
    job.look(host(0, "node-1"), host(1, "node-2"))
    job.now = T0 + 2 * HOUR
    decision = job.look(host(0, "node-1"), left_out, waiting=WAITING)
    assert decision.action is None


# --- a status that others have edited -------------------------------------------------------------------


def test_a_time_that_is_none_is_said_before_anything_is_done() -> None:
    entry = AvoidedNode(node="a", until=format_time(T0), reason="so")
    broken = AvoidedNode(node="b", until="soon", reason="so")
    job: FrayJob = with_status(build_frayjob(), FrayJobStatus(avoided_nodes=[entry, broken]))
    decision = decide(job, None, now=T0, policy=POLICY)
    assert decision.action is None
    assert "status.avoidedNodes[1].until is 'soon'" in (decision.unreadable or "")
