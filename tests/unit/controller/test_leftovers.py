"""Two attempts never run at once: not without an owner, nor when the status names another JobSet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fray.kube.api import Manifest
from fray.kube.resources import FRAYJOBS, JOBSETS
from fray.plan.jobset import build_attempt
from fray.plan.node_evidence import Nodes
from fray.plan.scheduling import build_node_summary
from fray.plan.settings import PlanSettings
from fray.testing import build_jobset, build_pod
from fray.testing.memory import MemoryApi, MemoryServer
from fray.vocabulary import (
    LABEL_ATTEMPT,
    LABEL_COMPLETION_INDEX,
    LABEL_JOB,
    LABEL_JOB_UID,
    LABEL_JOBSET_UID,
)
from fray.wire.frayjob import FrayJob
from fray_operator.frayjobs import FRAYJOB
from fray_operator.informer import Informer, JobKey
from fray_operator.kinds import Key
from fray_operator.metrics import Metrics
from fray_operator.ownership import find_leftovers
from fray_operator.queue import WorkQueue
from tests.unit.controller.an_hour import LONG_AGO, frayjob, passes, reconcile_for_an_hour

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
JOB = FrayJob.from_manifest(
    {"metadata": {"name": "train", "uid": "u-2"}, "spec": {"entrypoint": {"command": ["train"]}}}
)
Change = Callable[[Manifest], None]


# --- what counts ----------------------------------------------------------------------------------------


def pod(phase: str, *, attempt: int = 1, uid: str = "u-2", deleted: datetime | None = None) -> Manifest:
    until = None if deleted is None else deleted.isoformat()
    return build_pod(0, phase, name=f"pod-{attempt}", job_uid=uid, attempt=attempt, deleted=until)


def jobset(*, attempt: int, uid: str = "u-2", end: str = "") -> Manifest:
    labels = {LABEL_JOB: "train", LABEL_JOB_UID: uid, LABEL_ATTEMPT: str(attempt)}
    return build_jobset(f"train-a{attempt}", labels=labels, end=end)


@pytest.mark.parametrize(
    ("jobsets", "pods", "told"),
    [
        ([], [pod("Running")], "pod pod-1 of attempt 1 must be gone before attempt 2 starts"),
        ([], [pod("Pending")], "pod pod-1 of attempt 1 must be gone before attempt 2 starts"),
        ([], [pod("Running", attempt=2)], "pod pod-2 of attempt 2 must be gone before attempt 2 starts"),
        ([], [pod("Running", deleted=NOW)], "pod pod-1 of attempt 1 must be gone before attempt 2 starts"),
        ([], [pod("Running"), pod("Running", attempt=2)], "pod pod-1 of attempt 1 and 1 more must be gone"),
        ([], [pod("Running", uid="u-1")], "pod pod-1 of a deleted job of this name must be gone"),
        ([jobset(attempt=1)], [pod("Running")], "JobSet train-a1 of attempt 1 must be gone before attempt 2"),
        ([jobset(attempt=1, end="Failed")], [pod("Running")], "pod pod-1 of attempt 1 must be gone"),
    ],
)
def test_what_may_still_run_must_be_gone_first(
    jobsets: list[Manifest], pods: list[Manifest], told: str
) -> None:
    found = find_leftovers(JOB, 2, jobsets=jobsets, pods=pods, now=NOW)
    assert found is not None
    assert found.waiting.reason == "HostsLeftOver"
    assert found.waiting.message.startswith(told)
    assert [one["metadata"]["name"] for one in found.jobsets] == [
        one["metadata"]["name"] for one in jobsets if not one["status"]["conditions"]
    ]


@pytest.mark.parametrize(
    ("jobsets", "pods"),
    [
        ([], []),
        ([jobset(attempt=1, end="Failed"), jobset(attempt=1, end="Completed")], []),
        ([jobset(attempt=2)], []),
        ([jobset(attempt=1, uid="u-1")], []),
        ([], [pod("Succeeded"), pod("Failed")]),
        ([], [pod("Running", uid="u-1", deleted=NOW - timedelta(minutes=5))]),
        ([], [pod("Running", deleted=NOW - timedelta(minutes=5))]),
    ],
    ids=[
        "nothing",
        "attempts that ended",
        "the attempt's own",
        "a JobSet of an earlier job of this name",
        "pods that ended",
        "a pod of an earlier job on such a node",
        "a pod on a node that doesn't answer",
    ],
)
def test_nothing_else_is_waited_for(jobsets: list[Manifest], pods: list[Manifest]) -> None:
    assert find_leftovers(JOB, 2, jobsets=jobsets, pods=pods, now=NOW) is None


def on(pod: Manifest, *, held: str = "") -> Manifest:
    """Return a pod on `node-1`, and of the JobSet of this uid."""
    labels = {**pod["metadata"]["labels"], **({LABEL_JOBSET_UID: held} if held else {})}
    return {**pod, "metadata": {**pod["metadata"], "labels": labels}, "spec": {"nodeName": "node-1"}}


def leaving(jobset: Manifest) -> Manifest:
    return {**jobset, "metadata": {**jobset["metadata"], "uid": "js", "deletionTimestamp": "2026-01-31"}}


def nodes(ready: str, *, minutes: float = 60) -> Nodes:
    since = (NOW - timedelta(minutes=minutes)).isoformat()
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": since}
    body = {"metadata": {"name": "node-1"}, "status": {"conditions": [condition]}}
    return Nodes.of([build_node_summary(body)], unreachable_seconds=60)


LONG_DELETED = on(pod("Running", deleted=NOW - timedelta(hours=1)), held="js")
JUST_DELETED = on(pod("Running", deleted=NOW + timedelta(seconds=20)), held="js")


@pytest.mark.parametrize(
    ("seen", "left"),
    [
        ((nodes("True"), LONG_DELETED), "pod"),
        ((nodes("False"), LONG_DELETED), "pod"),
        ((nodes("Unknown"), LONG_DELETED), None),
        ((nodes("Unknown"), JUST_DELETED), None),
        ((nodes("Unknown", minutes=0.9), LONG_DELETED), "pod"),
        ((nodes("Unknown"), on(pod("Running"))), "pod"),
        ((Nodes.of([], unreachable_seconds=60), LONG_DELETED), None),
        ((Nodes.of([], unreachable_seconds=60), JUST_DELETED), "pod"),
    ],
    ids=[
        "a node that answers",
        "a node that isn't ready and answers",
        "a silent node",
        "a silent node a moment ago",
        "a node that is silent since a moment ago",
        "nobody asked it to end",
        "a node that is gone",
        "a node that is gone a moment ago",
    ],
)
def test_what_stands_on_a_node_that_cannot_end_it_is_not_waited_for(
    seen: tuple[Nodes, Manifest], left: str | None
) -> None:
    found = find_leftovers(JOB, 2, jobsets=[], pods=[seen[1]], now=NOW, nodes=seen[0])
    assert (found and found.waiting.message.split()[0]) == left


@pytest.mark.parametrize(
    ("one", "pods", "left"),
    [
        (leaving(jobset(attempt=1)), [LONG_DELETED], False),
        # something else holds it, or a pod that still ends
        (leaving(jobset(attempt=1)), [], True),
        (leaving(jobset(attempt=1)), [LONG_DELETED, on(pod("Running"), held="js")], True),
        (jobset(attempt=1), [LONG_DELETED], True),
    ],
)
def test_a_jobset_that_only_a_dead_node_holds_is_not_waited_for(
    one: Manifest, pods: list[Manifest], *, left: bool
) -> None:
    found = find_leftovers(JOB, 2, jobsets=[one], pods=pods, now=NOW, nodes=nodes("Unknown"))
    assert (found is not None) is left


# --- what is done ---------------------------------------------------------------------------------------


def run_first_attempt(
    server: MemoryServer, jobsets: Informer, pods: Informer, change: Change = lambda _: None
) -> None:
    """Have the first attempt of the FrayJob `train`: its JobSet, changed by somebody, and its pod."""
    body = server.find(FRAYJOBS, "train")
    assert body is not None
    made = build_attempt(FrayJob.from_manifest(body), attempt=1, settings=PlanSettings()).jobset
    labels = dict(made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]["labels"])
    change(made)
    stored = server.store(JOBSETS, made)
    jobsets.remember(stored)
    labels |= {LABEL_JOBSET_UID: stored["metadata"]["uid"], LABEL_COMPLETION_INDEX: "0"}
    running = {"name": "main", "state": {"running": {"startedAt": LONG_AGO}}}
    metadata = {"name": "train-a1-slice-0-0-x7x2p", "namespace": "default", "labels": labels}
    metadata |= {"uid": "uid-pod", "creationTimestamp": LONG_AGO}
    status = {"phase": "Running", "containerStatuses": [running]}
    pods.remember({"metadata": metadata, "spec": {"nodeName": "node-1"}, "status": status})


def made_attempts(server: MemoryServer) -> list[str]:
    return [call.name for call in server.calls if call.resource is JOBSETS and call.method == "POST"]


def status_of(server: MemoryServer) -> dict[str, Any]:
    job = server.find(FRAYJOBS, "train")
    assert job is not None
    return dict(job["status"])


def lose_owner(jobset: Manifest) -> None:
    del jobset["metadata"]["ownerReferences"]


def lose_everything(jobset: Manifest) -> None:
    lose_owner(jobset)
    jobset["metadata"]["labels"] = {}


def gain_owner(jobset: Manifest) -> None:
    owner = {"kind": "Workload", "name": "other", "uid": "u-9", "controller": True}
    jobset["metadata"]["ownerReferences"] = [owner]


@pytest.mark.parametrize("named", ["train-a1", "other-a1", "gone-a1"])
@pytest.mark.parametrize("change", [lambda _: None, lose_owner], ids=["as made", "without owner"])
def test_an_attempt_runs_on_although_its_jobset_lost_its_owner_or_name_in_the_status(
    change: Change, named: str
) -> None:
    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert made_attempts(server) == []
        (attempt,) = status_of(server)["attempts"]
        assert (attempt["jobSet"], "reason" in attempt) == ("train-a1", False)
        assert status_of(server)["phase"] == "Running"
        assert [call.method for call in server.writes if call.resource == FRAYJOBS] == ["PUT"]
        assert passes(metrics, "error") == 0

    def prepare(server: MemoryServer, jobsets: Informer, pods: Informer) -> None:
        run_first_attempt(server, jobsets, pods, change)
        other = {"kind": "FrayJob", "name": "other", "uid": "u-9", "controller": True}
        metadata = {"name": "other-a1", "labels": {LABEL_JOB: "other"}, "ownerReferences": [other]}
        jobsets.remember(server.store(JOBSETS, {"metadata": metadata, "spec": {}}))

    reconcile_for_an_hour([frayjob("train", jobSet=named, runningTime=LONG_AGO)], check, prepare=prepare)


def test_a_jobset_that_lost_its_owner_is_stopped_with_its_job() -> None:
    def check(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        jobset = server.find(JOBSETS, "train-a1")
        assert jobset is not None
        assert "deletionTimestamp" in jobset["metadata"]

    job = frayjob("train", spec={"stopped": True}, runningTime=LONG_AGO)
    reconcile_for_an_hour([job], check, prepare=lambda *seen: run_first_attempt(*seen, change=lose_owner))


@pytest.mark.parametrize("change", [gain_owner, lose_everything], ids=["another owner", "nothing left"])
def test_no_attempt_is_started_while_pods_run_that_cannot_be_ended(change: Change) -> None:
    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert made_attempts(server) == []
        told = {c["type"]: (c["reason"], c["message"]) for c in status_of(server)["conditions"]}
        assert told["Scheduled"] == (
            "HostsLeftOver",
            "pod train-a1-slice-0-0-x7x2p of attempt 1 must be gone before attempt 2 starts",
        )
        assert [attempt["number"] for attempt in status_of(server)["attempts"]] == [1, 2]
        assert [call.method for call in server.calls if call.resource is JOBSETS].count("DELETE") == 0
        assert passes(metrics, "error") == 0

    job = frayjob("train", runningTime=LONG_AGO)
    reconcile_for_an_hour([job], check, prepare=lambda *seen: run_first_attempt(*seen, change=change))


def test_the_attempt_starts_once_they_are_gone() -> None:
    def prepare(server: MemoryServer, jobsets: Informer, pods: Informer) -> None:
        run_first_attempt(server, jobsets, pods, gain_owner)

        def vanish() -> None:
            assert made_attempts(server) == []
            (left,) = pods.of_job(("default", "train"))
            pods.remember({**left, "status": {"phase": "Failed"}})

        asyncio.get_running_loop().call_later(600, vanish)

    def check(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert made_attempts(server) == ["train-a2"]

    reconcile_for_an_hour([frayjob("train", runningTime=LONG_AGO)], check, prepare=prepare)


def test_a_jobset_of_an_earlier_attempt_that_runs_is_deleted_before_the_next_is_made() -> None:
    def prepare(server: MemoryServer, jobsets: Informer, pods: Informer) -> None:
        run_first_attempt(server, jobsets, pods)

        def vanish() -> None:
            jobset = server.find(JOBSETS, "train-a1")
            assert jobset is not None
            assert "deletionTimestamp" in jobset["metadata"]
            assert made_attempts(server) == []
            (left,) = pods.of_job(("default", "train"))
            pods.remember({**left, "status": {"phase": "Failed"}})
            ended = {"conditions": [{"type": "Failed", "status": "True"}]}
            jobsets.remember({**jobset, "status": ended})

        asyncio.get_running_loop().call_later(600, vanish)

    def check(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert made_attempts(server) == ["train-a2"]

    # Its status says that it has ended, which isn't so: somebody has written that.
    ended = {"verdict": "Preemption", "reason": "HostsGone", "endTime": LONG_AGO}
    reconcile_for_an_hour([frayjob("train", runningTime=LONG_AGO, **ended)], check, prepare=prepare)


def test_a_jobset_that_no_watch_tells_of_is_found_by_its_pods() -> None:
    def prepare(server: MemoryServer, _: Informer, pods: Informer) -> None:
        unwatched = Informer(MemoryApi(server), JOBSETS, FRAYJOB, namespace=None, on_change=ignore, trim=dict)
        run_first_attempt(server, unwatched, pods, lambda made: made["metadata"]["labels"].pop(LABEL_JOB))

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert made_attempts(server) == []
        assert status_of(server)["phase"] == "Running"
        assert passes(metrics, "refused") == 0

    reconcile_for_an_hour([frayjob("train", jobSet="train-a1")], check, prepare=prepare)


@pytest.mark.parametrize("ended", [{}, {"verdict": "Preemption", "reason": "HostsGone", "endTime": LONG_AGO}])
def test_a_jobset_that_no_watch_tells_of_is_not_waited_for_once_it_is_gone(ended: dict[str, str]) -> None:
    def prepare(server: MemoryServer, jobsets: Informer, _: Informer) -> None:
        body = server.find(FRAYJOBS, "train")
        assert body is not None
        made = build_attempt(FrayJob.from_manifest(body), attempt=1, settings=PlanSettings()).jobset
        del made["metadata"]["labels"][LABEL_JOB]
        jobsets.remember(server.store(JOBSETS, made))
        server.remove(JOBSETS, "train-a1")

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert made_attempts(server) == ["train-a2"]
        assert passes(metrics, "refused") == 0

    reconcile_for_an_hour([frayjob("train", runningTime=LONG_AGO, **ended)], check, prepare=prepare)


def test_the_jobset_of_another_attempt_is_not_taken_for_this_ones() -> None:
    def prepare(server: MemoryServer, jobsets: Informer, pods: Informer) -> None:
        def fail(made: Manifest) -> None:
            made["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}

        run_first_attempt(server, jobsets, pods, fail)
        (left,) = pods.of_job(("default", "train"))
        pods.remember({**left, "status": {"phase": "Failed"}})

    def check(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert made_attempts(server) == ["train-a2"]
        (attempt,) = status_of(server)["attempts"]
        assert (attempt["number"], attempt["jobSet"]) == (2, "train-a2")

    reconcile_for_an_hour([frayjob("train", number=2, jobSet="train-a1")], check, prepare=prepare)


def ignore(_: JobKey) -> None:
    return None
