"""Who counts as ended since his node is silent, when nodes are looked at, and when again."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from fray.plan.node_evidence import Nodes, derive_next_look, needs_nodes, with_node_evidence
from fray.plan.observation import (
    OOM_KILLED,
    Deletion,
    Evidence,
    EvidenceKind,
    GangObservation,
    HostObservation,
    HostPhase,
)
from fray.plan.scheduling import NodeSummary, build_node_summary
from fray.wire.status import AttemptStatus
from tests.unit.plan.verdict_situations.manifests import T0, node, taint

ASKED, GRACE, UNREACHABLE = T0, 30, 60
HOST = HostObservation(
    0,
    1,
    1,
    "pod-1",
    HostPhase.RUNNING,
    node="node-1",
    started_at=T0 - timedelta(hours=1),
    deletion=Deletion(ASKED, ASKED + timedelta(seconds=GRACE)),
)
FAILED = HostObservation(0, 0, 0, "pod-0", HostPhase.FAILED, node="node-0", exit_code=1, ended_at=T0)
OUT = taint("node.kubernetes.io/out-of-service", "NoExecute")
SHUTDOWN = taint("node.cloudprovider.kubernetes.io/shutdown")
COLLECTED = Evidence(EvidenceKind.TAKEN, "DeletionByPodGC")
ATTEMPT = AttemptStatus(number=1, job_set="train-a1")


def after(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def summary(*args: object, **more: float) -> NodeSummary:
    return build_node_summary(node(1, *args, **more))  # type: ignore[arg-type]


def view(*summaries: NodeSummary) -> Nodes:
    return Nodes.of(summaries, unreachable_seconds=UNREACHABLE)


UNREADABLE = Nodes.of(None, unreachable_seconds=UNREACHABLE)
NEVER = 10**6


@pytest.mark.parametrize(
    ("nodes", "seconds"),
    [
        (view(summary("True")), NEVER),
        (view(summary("False", since=-600)), NEVER),
        (view(summary("Unknown", since=5)), 65),
        (view(summary("Unknown", since=-600)), 0),
        (view(summary("Unknown", OUT, since=5)), 5),
        (view(summary("False", SHUTDOWN, since=-5)), 0),
        # the controller that set the taint was wrong, or the machine is back
        (view(summary("True", OUT)), NEVER),
        (view(), GRACE + UNREACHABLE),
        (UNREADABLE, GRACE + 300),
    ],
    ids=[
        "well",
        "not ready but it reports",
        "silent",
        "silent for long",
        "off",
        "stopped",
        "off but ready",
        "removed",
        "unreadable",
    ],
)
def test_a_host_counts_as_ended_when_nothing_on_its_node_will_end_it(nodes: Nodes, seconds: int) -> None:
    gang = GangObservation((HOST,))
    if seconds:
        early = with_node_evidence(gang, nodes, now=after(seconds - 1))
        assert early.hosts[0].phase is HostPhase.RUNNING
    if seconds < NEVER:
        (ended,) = with_node_evidence(gang, nodes, now=after(seconds + 500)).hosts
        assert (ended.phase, ended.exit_code) == (HostPhase.FAILED, None)
        # never before it was asked to: its peers crashed earlier
        assert ended.ended_at == after(seconds)


@pytest.mark.parametrize("nodes", [view(summary("Unknown", since=-600)), view(), UNREADABLE])
def test_a_host_that_nobody_asked_to_end_is_left_alone(nodes: Nodes) -> None:
    gang = GangObservation((replace(HOST, deletion=None),))
    (host,) = with_node_evidence(gang, nodes, now=after(NEVER)).hosts
    assert host.phase is HostPhase.RUNNING


def test_a_host_without_a_node_is_left_alone() -> None:
    gang = GangObservation((replace(HOST, node=None, phase=HostPhase.PENDING, started_at=None),))
    assert with_node_evidence(gang, view(), now=after(NEVER)) == gang


@pytest.mark.parametrize(
    "host",
    [
        replace(HOST, phase=HostPhase.SUCCEEDED),
        replace(HOST, phase=HostPhase.GONE),
        replace(HOST, phase=HostPhase.FAILED, reason=OOM_KILLED),
        replace(HOST, phase=HostPhase.FAILED, evidence=COLLECTED),
    ],
    ids=["success", "gone", "memory", "told already"],
)
def test_a_host_whose_end_is_known_is_not_explained_by_its_node(host: HostObservation) -> None:
    gang = GangObservation((FAILED, host))
    nodes = Nodes.of([summary("Unknown", since=0)], unreachable_seconds=UNREACHABLE)
    assert with_node_evidence(gang, nodes, now=after(1)).hosts[1] == host


@pytest.mark.parametrize(("since", "sign"), [(-9999, True), (0, True), (120, True), (121, False)])
def test_what_befalls_a_node_long_after_the_first_failure_is_no_cause(*, since: float, sign: bool) -> None:
    gang = GangObservation((FAILED, HOST))
    told = with_node_evidence(gang, view(summary("Unknown", since=since)), now=after(600)).hosts[1]
    assert (told.disruption is not None) is sign


@pytest.mark.parametrize(("seconds", "sign"), [(74, False), (75, True)])
def test_a_node_is_missed_only_once_the_list_must_know_it(*, seconds: float, sign: bool) -> None:
    young = replace(HOST, started_at=T0)
    told = with_node_evidence(GangObservation((FAILED, young)), view(), now=after(seconds)).hosts[1]
    assert (told.disruption is not None) is sign


@pytest.mark.parametrize("value", ["", "x", "-1", "²", "9" * 20])
def test_a_taint_with_an_odd_time_counts_from_when_it_is_seen(value: str) -> None:
    tainted = summary("True", taint("ToBeDeletedByClusterAutoscaler", value=value))
    gang = GangObservation((FAILED, HOST))
    assert with_node_evidence(gang, view(tainted), now=after(120)).hosts[1].disruption is not None
    assert with_node_evidence(gang, view(tainted), now=after(121)).hosts[1].disruption is None


# --- when they are looked at ----------------------------------------------------------------------------


def needed(gang: GangObservation, seconds: float, **attempt: str) -> bool:
    described = ATTEMPT.model_copy(update=attempt)
    return needs_nodes(described, gang, now=after(seconds), settle_seconds=5)


@pytest.mark.parametrize(
    ("hosts", "seconds", "reason", "expected"),
    [
        ((FAILED,), 5, "", True),
        ((FAILED,), 4, "", False),
        ((FAILED,), 5, "ActiveTimeout", False),
        ((replace(FAILED, reason=OOM_KILLED),), 5, "", False),
        ((replace(FAILED, evidence=COLLECTED),), 5, "", False),
        ((replace(FAILED, node=None),), 5, "", False),
        ((replace(FAILED, phase=HostPhase.SUCCEEDED),), 5, "", False),
        ((FAILED, HOST), 14, "", False),
        ((FAILED, HOST), 15, "", True),
        ((HOST,), 15, "", True),
        ((HOST,), 15, "StopRequested", True),
        ((replace(HOST, deletion=None),), NEVER, "", False),
        ((replace(HOST, phase=HostPhase.SUCCEEDED),), 15, "", False),
    ],
)
def test_nodes_are_needed_only_where_pods_do_not_tell_enough(
    hosts: tuple[HostObservation, ...], seconds: float, reason: str, *, expected: bool
) -> None:
    more = {"reason": reason} if reason else {}
    assert needed(GangObservation(hosts), seconds, **more) is expected


def test_an_attempt_that_has_not_ended_is_not_judged_by_its_nodes() -> None:
    assert not needed(GangObservation((FAILED,), settled=False), 60)


@pytest.mark.parametrize(
    ("hosts", "seconds", "look"),
    [
        ((FAILED,), 0, None),
        ((replace(HOST, phase=HostPhase.SUCCEEDED),), 0, None),
        ((FAILED, HOST), 0, 15),
        ((FAILED, HOST), 14, 1),
        ((FAILED, HOST), 15, 15),
        ((FAILED, HOST), 500, 15),
    ],
)
def test_hosts_that_are_to_end_are_looked_at_again(
    hosts: tuple[HostObservation, ...], seconds: float, look: float | None
) -> None:
    assert derive_next_look(GangObservation(hosts), now=after(seconds)) == look
