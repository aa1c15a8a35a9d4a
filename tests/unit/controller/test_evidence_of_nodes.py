"""Nodes are looked at only when an attempt's end isn't plain or doesn't come; nothing hangs on a dead one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fray.kube.api import Manifest
from fray.kube.errors import ApiError, ForbiddenError, ServerError
from fray.kube.request import Request
from fray.kube.resources import FRAYJOBS, JOBSETS, NODES
from fray.plan.jobset import build_attempt
from fray.plan.settings import PlanSettings, RetryPolicy
from fray.plan.timestamps import format_time
from fray.testing.memory import MemoryServer
from fray.vocabulary import LABEL_COMPLETION_INDEX, LABEL_JOBSET_UID
from fray.wire.frayjob import FrayJob
from fray_operator.informer import Informer
from fray_operator.kinds import Key
from fray_operator.metrics import Metrics
from fray_operator.queue import WorkQueue
from tests.unit.controller.an_hour import LONG_AGO, Check, frayjob, passes, reconcile_for_an_hour

POLICY = RetryPolicy(30, 360, settle_seconds=5, unreachable_seconds=60)
Step = Callable[["Cluster"], None]


class Cluster:
    """The controllers and kubelets of a gang of two, whose first attempt runs."""

    def __init__(self, server: MemoryServer, jobsets: Informer, pods: Informer) -> None:
        self.server, self._jobsets, self._pods = server, jobsets, pods
        self._began = datetime.now(UTC)
        body = server.find(FRAYJOBS, "train")
        assert body is not None
        made = build_attempt(FrayJob.from_manifest(body), attempt=1, settings=PlanSettings()).jobset
        made["metadata"]["creationTimestamp"] = LONG_AGO
        self._jobsets.remember(server.store(JOBSETS, made))
        for rank in (0, 1):
            server.store(NODES, {"metadata": {"name": f"node-{rank}"}, "status": {}})
            self.set_ready(rank, "True")
            self.run(rank)

    def at(self, seconds: float) -> str:
        """Return a moment after the beginning."""
        return format_time(self._began + timedelta(seconds=seconds))

    def set_ready(self, rank: int, status: str, *, since: float = -9999) -> None:
        condition = {"type": "Ready", "status": status, "lastTransitionTime": self.at(since)}
        node = self.server.find(NODES, f"node-{rank}")
        assert node is not None
        self.server.store(NODES, {**node, "status": {"conditions": [condition]}})

    def run(self, rank: int, **metadata: Any) -> None:
        self._tell(rank, "Running", {"running": {"startedAt": LONG_AGO}}, **metadata)

    def end(self, rank: int, code: int, *, after: float, **metadata: Any) -> None:
        state = {"terminated": {"exitCode": code, "finishedAt": self.at(after)}}
        self._tell(rank, "Failed" if code else "Succeeded", state, **metadata)

    def end_jobset(self, kind: str) -> None:
        jobset = self.server.find(JOBSETS, "train-a1")
        assert jobset is not None
        ended = {"conditions": [{"type": kind, "status": "True"}]}
        self._jobsets.remember(self.server.store(JOBSETS, {**jobset, "status": ended}))

    def hear_of_deletion(self) -> None:
        """Have the watch tell what the operator itself has done to the JobSet."""
        jobset = self.server.find(JOBSETS, "train-a1")
        assert jobset is not None
        assert "deletionTimestamp" in jobset["metadata"]
        self._jobsets.remember(jobset)

    def collect(self, rank: int) -> None:
        """Have the garbage collector take away a pod that has ended: its JobSet is being deleted."""
        self._pods._forget(("default", f"train-a1-slice-0-{rank}-x"))

    def lists_of_nodes(self) -> int:
        return sum(call.method == "LIST" and call.resource is NODES for call in self.server.calls)

    def _tell(self, rank: int, phase: str, state: Manifest, **metadata: Any) -> None:
        jobset = self.server.find(JOBSETS, "train-a1")
        assert jobset is not None
        template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        labels = {**template["metadata"]["labels"], LABEL_COMPLETION_INDEX: str(rank)}
        labels[LABEL_JOBSET_UID] = jobset["metadata"]["uid"]
        about = {"name": f"train-a1-slice-0-{rank}-x", "namespace": "default", "uid": f"uid-{rank}"}
        about |= {"creationTimestamp": LONG_AGO, "labels": labels, **metadata}
        status = {"phase": phase, "containerStatuses": [{"name": "main", "state": state}]}
        self._pods.remember({"metadata": about, "spec": {"nodeName": f"node-{rank}"}, "status": status})


def live(
    *steps: tuple[float, Step], check: Callable[[Cluster], None], read_nodes: bool = True, **spec: Any
) -> None:
    """Have these happen in an hour of a gang of two, then check."""
    kept: list[Cluster] = []
    broken: list[Exception] = []

    def take(step: Step) -> None:
        # The loop would only log it.
        try:
            step(kept[0])
        except (AssertionError, KeyError) as error:
            broken.append(error)

    def prepare(server: MemoryServer, jobsets: Informer, pods: Informer) -> None:
        kept.append(Cluster(server, jobsets, pods))
        for at, step in steps:
            asyncio.get_running_loop().call_later(at, take, step)

    def look(_server: MemoryServer, metrics: Metrics, _queue: WorkQueue[Key]) -> None:
        assert broken == []
        assert passes(metrics, "error") == 0
        check(kept[0])

    job = frayjob("train", spec={"replicas": 2, **spec}, runningTime=LONG_AGO)
    checked: Check = look
    reconcile_for_an_hour([job], checked, prepare=prepare, read_nodes=read_nodes, policy=POLICY)


def attempts(cluster: Cluster) -> list[dict[str, Any]]:
    job = cluster.server.find(FRAYJOBS, "train")
    assert job is not None
    return list(job["status"]["attempts"])


def made(cluster: Cluster) -> list[str]:
    return [c.name for c in cluster.server.calls if c.resource is JOBSETS and c.method == "POST"]


# --- what is charged ------------------------------------------------------------------------------------


def crash(cluster: Cluster) -> None:
    cluster.end(0, 1, after=10)
    cluster.end(1, 143, after=11)
    cluster.end_jobset("Failed")


def test_a_failure_is_judged_by_one_look_at_the_nodes_after_the_settle_window() -> None:
    def wait(cluster: Cluster) -> None:
        assert "verdict" not in attempts(cluster)[0]
        assert cluster.lists_of_nodes() == 0

    def check(cluster: Cluster) -> None:
        assert (attempts(cluster)[0]["verdict"], attempts(cluster)[0]["reason"]) == ("Failure", "NonZeroExit")
        assert cluster.lists_of_nodes() == 1

    live((12, crash), (14.9, wait), check=check)


def test_what_a_node_tells_within_the_settle_window_is_charged_to_preemptions() -> None:
    def check(cluster: Cluster) -> None:
        first = attempts(cluster)[0]
        assert (first["verdict"], first["reason"]) == ("Preemption", "Disrupted")
        assert "its node node-1 has not been ready since" in first["message"]
        assert made(cluster) == ["train-a2"]

    live((12, crash), (14, lambda cluster: cluster.set_ready(1, "False", since=13)), check=check)


def test_nobody_looks_at_nodes_for_a_job_that_succeeds() -> None:
    def succeed(cluster: Cluster) -> None:
        cluster.end(0, 0, after=10)
        cluster.end(1, 0, after=10)
        cluster.end_jobset("Completed")

    def check(cluster: Cluster) -> None:
        assert attempts(cluster)[0]["verdict"] == "Success"
        assert cluster.lists_of_nodes() == 0

    live((12, succeed), check=check)


def answer_with(
    monkeypatch: pytest.MonkeyPatch, error: ApiError, *, until: float = float("inf")
) -> list[float]:
    """Have lists of nodes fail until a moment; return when they were asked for."""
    select, asked = MemoryServer.select, []

    def fail(server: MemoryServer, request: Request) -> Any:
        now = asyncio.get_running_loop().time()
        if request.resource is NODES:
            asked.append(now)
            if now < until:
                raise error
        return select(server, request)

    monkeypatch.setattr(MemoryServer, "select", fail)
    return asked


def test_without_the_right_to_read_nodes_an_attempt_is_judged_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer_with(monkeypatch, ForbiddenError("LIST nodes", 403, "Forbidden", "may not list nodes"))
    live((12, crash), check=lambda cluster: check_verdict(cluster, "Failure"))


def test_a_server_that_fails_for_a_while_is_asked_again_before_anything_is_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = answer_with(monkeypatch, ServerError("LIST nodes", 500, "InternalError", "broken"), until=60)

    def check(cluster: Cluster) -> None:
        check_verdict(cluster, "Preemption")
        assert len([moment for moment in asked if moment < 60]) > 1

    # The passes that fail for it are counted as errors.
    monkeypatch.setattr("tests.unit.controller.test_evidence_of_nodes.passes", lambda *_: 0)
    live((12, crash), (13, lambda cluster: cluster.set_ready(1, "False", since=13)), check=check)


def check_verdict(cluster: Cluster, verdict: str) -> None:
    assert attempts(cluster)[0]["verdict"] == verdict


# --- what hangs -----------------------------------------------------------------------------------------


def leave(cluster: Cluster, rank: int, *, asked: float) -> None:
    """Have the Job controller ask for a pod's end, which nobody carries out."""
    cluster.run(rank, deletionTimestamp=cluster.at(asked + 30), deletionGracePeriodSeconds=30)


def die(cluster: Cluster) -> None:
    """Have a peer crash, since the machine of rank 1 is gone: Kubernetes doesn't know that yet."""
    cluster.end(0, 1, after=10)
    leave(cluster, 1, asked=11)


DEATH = (
    (12.0, die),
    (50.0, lambda cluster: cluster.set_ready(1, "Unknown", since=50)),
    # A minute after the crash the operator itself deletes a JobSet that doesn't end.
    (75.0, Cluster.hear_of_deletion),
)


def test_an_attempt_ends_without_its_host_on_a_node_that_is_silent_and_the_next_one_starts() -> None:
    def wait(cluster: Cluster) -> None:
        assert "verdict" not in attempts(cluster)[0]

    def check(cluster: Cluster) -> None:
        first, second = attempts(cluster)[:2]
        assert (first["verdict"], first["rank"], first["exitCode"]) == ("Preemption", 0, 1)
        assert "rank 1 (slice 0, host 1) was taken away (its node node-1 has been silent" in first["message"]
        assert second["number"] == 2
        assert made(cluster) == ["train-a2"]
        # Looked at every 15 s while it hung, and not any more.
        assert cluster.lists_of_nodes() < 12

    live(*DEATH, (109, wait), (160, lambda cluster: check_verdict(cluster, "Preemption")), check=check)


@pytest.mark.parametrize("read_nodes", [True, False])
def test_peers_whose_pods_are_gone_keep_nothing_from_ending(*, read_nodes: bool) -> None:
    def check(cluster: Cluster) -> None:
        first, second = attempts(cluster)[:2]
        assert (first["verdict"], first["rank"], first["exitCode"]) == ("Preemption", 0, 1)
        assert second["number"] == 2
        assert made(cluster) == ["train-a2"]

    live(*DEATH, (76, lambda cluster: cluster.collect(0)), check=check, read_nodes=read_nodes)


def test_a_stop_ends_although_one_host_is_on_a_silent_node() -> None:
    def check(cluster: Cluster) -> None:
        job = cluster.server.find(FRAYJOBS, "train")
        assert job is not None
        assert job["status"]["phase"] == "Stopped"
        assert attempts(cluster)[0]["verdict"] == "Stopped"

    live(
        (1, Cluster.hear_of_deletion),
        (2, lambda cluster: leave(cluster, 1, asked=1)),
        (3, lambda cluster: cluster.collect(0)),
        (51, lambda cluster: cluster.set_ready(1, "Unknown", since=50)),
        check=check,
        stopped=True,
    )


def test_a_node_that_fails_long_after_the_crash_is_no_cause_of_it() -> None:
    def check(cluster: Cluster) -> None:
        first = attempts(cluster)[0]
        assert (first["verdict"], first["reason"]) == ("Failure", "NonZeroExit")

    live(
        (12, die),
        (75, Cluster.hear_of_deletion),
        (76, lambda cluster: cluster.collect(0)),
        (900, lambda cluster: cluster.set_ready(1, "Unknown", since=900)),
        check=check,
    )


def test_a_gang_that_hangs_ends_when_a_host_on_a_silent_node_was_asked_to_end() -> None:
    def check(cluster: Cluster) -> None:
        first = attempts(cluster)[0]
        assert (first["verdict"], first["rank"]) == ("Preemption", 1)
        assert "rank 1 (slice 0, host 1) was taken away (its node node-1 has been silent" in first["message"]

    live(
        (50, lambda cluster: cluster.set_ready(1, "Unknown", since=50)),
        (350, lambda cluster: leave(cluster, 1, asked=349)),
        (430, Cluster.hear_of_deletion),
        (435, lambda cluster: cluster.end(0, 143, after=434, deletionTimestamp=cluster.at(460))),
        check=check,
    )


def test_where_nodes_cannot_be_read_it_is_waited_for_until_long_after_its_deletion() -> None:
    def wait(cluster: Cluster) -> None:
        assert "verdict" not in attempts(cluster)[0]

    def check(cluster: Cluster) -> None:
        first = attempts(cluster)[0]
        assert first["verdict"] == "Preemption"
        assert "it outlived its deletion" in first["message"]
        assert made(cluster) == ["train-a2"]
        assert cluster.lists_of_nodes() == 0

    live(*DEATH, (340, wait), (360, lambda c: check_verdict(c, "Preemption")), check=check, read_nodes=False)


@pytest.mark.parametrize("ready", ["True", "False"])
def test_a_host_on_a_node_that_answers_is_waited_for_however_long_it_takes(ready: str) -> None:
    def check(cluster: Cluster) -> None:
        assert "verdict" not in attempts(cluster)[0]
        assert made(cluster) == []

    live((12, die), (13, lambda cluster: cluster.set_ready(1, ready, since=0)), check=check)


def test_no_attempt_starts_beside_a_host_on_a_node_that_has_come_back() -> None:
    def come_back(cluster: Cluster) -> None:
        check_verdict(cluster, "Preemption")
        cluster.set_ready(1, "True", since=100)
        assert made(cluster) == []

    def check(cluster: Cluster) -> None:
        job = cluster.server.find(FRAYJOBS, "train")
        assert job is not None
        scheduled = next(c for c in job["status"]["conditions"] if c["type"] == "Scheduled")
        # The pod holds the JobSet that is being deleted, so that is what is told.
        assert (scheduled["reason"], made(cluster)) == ("HostsLeftOver", [])
        assert scheduled["message"] == "JobSet train-a1 of attempt 1 must be gone before attempt 2 starts"

    live(*DEATH, (130, come_back), check=check)
