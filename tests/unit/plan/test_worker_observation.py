"""What Jobs of workers and their pods tell, and which of it is worth a look."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fray.plan.manifests import Manifest
from fray.plan.node_evidence import Nodes
from fray.plan.observation import Deletion
from fray.plan.scheduling import NodeSummary
from fray.plan.worker_observation import (
    Crash,
    RunningWorker,
    WorkerJob,
    derive_workers_observation,
    find_crash,
    needs_nodes,
    needs_pods,
    read_worker_job,
)
from fray.termination import Ending, TerminationMessage
from fray.vocabulary import (
    EXIT_PAYLOAD_CODE,
    EXIT_PAYLOAD_PYTHON,
    EXIT_WORKER_REFUSED,
    LABEL_ATTEMPT,
    LABEL_COMPLETION_INDEX,
)

NOW = datetime(2026, 1, 31, 12, 10, tzinfo=UTC)
LONG_AGO = Deletion(NOW - timedelta(minutes=9), NOW - timedelta(minutes=8))
JUST_NOW = Deletion(NOW - timedelta(seconds=2), NOW + timedelta(seconds=28))


def worker_pod(index: int, *, is_ready: bool) -> Manifest:
    condition = {"type": "Ready", "status": "True" if is_ready else "False"}
    labels = {LABEL_COMPLETION_INDEX: str(index)}
    return {"metadata": {"labels": labels}, "spec": {"nodeName": "n1"}, "status": {"conditions": [condition]}}


def test_a_job_of_workers_is_read_with_its_pods() -> None:
    status = {
        "succeeded": 4,
        "completedIndexes": "0,2-4",
        "active": 2,
        "ready": 1,
        "terminating": 1,
        "failed": 3,
    }
    labels = {LABEL_ATTEMPT: "1"}
    metadata = {
        "name": "train-a1-w12",
        "labels": labels,
        "annotations": {"kueue.x-k8s.io/elastic-job": "true"},
        "creationTimestamp": "2026-01-31T12:00:00Z",
    }
    manifest = {"metadata": metadata, "spec": {"completions": 7}, "status": status}
    found = read_worker_job(manifest, [worker_pod(5, is_ready=True), worker_pod(6, is_ready=False)])
    assert found == WorkerJob(
        "train-a1-w12",
        7,
        attempt=1,
        active=2,
        ready_count=1,
        terminating=1,
        failed=3,
        complete=frozenset({0, 2, 3, 4}),
        ready=frozenset({5}),
        running=(RunningWorker("n1", None), RunningWorker("n1", None)),
        created_at=datetime(2026, 1, 31, 12, tzinfo=UTC),
        elastic=True,
    )
    assert found.succeeded == 4
    assert found.generation == 12
    assert (read_worker_job(manifest).ready, read_worker_job(manifest).running) == (None, None)


@pytest.mark.parametrize(
    ("condition", "completed", "ended"),
    [("Complete", True, True), ("Failed", False, True), ("FailureTarget", False, False)],
)
def test_a_job_of_workers_has_ended_when_its_controller_says_so(
    condition: str, *, completed: bool, ended: bool
) -> None:
    status = {"conditions": [{"type": condition, "status": "True"}]}
    found = read_worker_job({"metadata": {"name": "train-a1-w1"}, "status": status})
    assert (found.completed, found.ended) == (completed, ended)


@pytest.mark.parametrize(("label", "attempt"), [("2", 2), (None, None), ("two", 0)])
def test_a_job_of_workers_says_of_which_attempt_it_is(label: str | None, attempt: int | None) -> None:
    labels = {} if label is None else {LABEL_ATTEMPT: label}
    found = read_worker_job({"metadata": {"name": "train-a2-w1", "labels": labels}})
    assert found.attempt == attempt
    assert found.is_of(2) is (label != "two")


@pytest.mark.parametrize(
    ("job", "looked"),
    [
        (WorkerJob("w", 2, ready_count=2), False),
        (WorkerJob("w", 3, complete=frozenset({2}), ready_count=2), False),
        (WorkerJob("w", 2, ready_count=1), True),  # why isn't the other one ready?
        (WorkerJob("w", 3, ready_count=3), True),  # which are too many?
        (WorkerJob("w", 2, ended=True), False),
        (WorkerJob("w", 2, ready_count=2, leaving=True), True),  # can their nodes end them?
        (WorkerJob("w", 2, attempt=1), False),  # it is to be deleted, whatever its pods do
        (WorkerJob("w", 2, attempt=1, leaving=True), True),
        (WorkerJob("w", 2, attempt=1, leaving=True, ended=True), False),
    ],
)
def test_pods_are_looked_at_only_where_something_rests_on_them(job: WorkerJob, *, looked: bool) -> None:
    assert needs_pods(job, attempt=2, wanted=2) is looked


@pytest.mark.parametrize(("deletion", "looked"), [(None, False), (JUST_NOW, False), (LONG_AGO, True)])
def test_nodes_are_looked_at_once_a_worker_should_have_ended(
    deletion: Deletion | None, *, looked: bool
) -> None:
    jobs = [WorkerJob("w1", 1), WorkerJob("w2", 1, running=(RunningWorker("n1", deletion),))]
    assert needs_nodes(jobs, now=NOW) is looked


def nodes() -> Nodes:
    """One node that is well, and one that has been silent for long."""
    silent = NodeSummary("silent", {}, (), ready=False, silent=True, unready_since=LONG_AGO.asked)
    return Nodes.of([NodeSummary("well", {}, (), ready=True), silent], unreachable_seconds=60)


LOST = RunningWorker("silent", LONG_AGO)
SLOW = RunningWorker("well", LONG_AGO)


@pytest.mark.parametrize(
    ("running", "leaving", "ended"),
    [
        ((LOST,), True, True),
        ((LOST, LOST), True, True),
        ((LOST, SLOW), True, False),
        ((), True, False),  # its pods are gone, and its controller has yet to say so
        (None, True, False),
        ((LOST,), False, False),
    ],
)
def test_a_job_that_is_deleted_has_ended_when_no_node_can_end_its_workers(
    running: tuple[RunningWorker, ...] | None, *, leaving: bool, ended: bool
) -> None:
    job = WorkerJob("train-a1-w1", 2, attempt=1, running=running, leaving=leaving)
    for attempt in (1, 2):
        state = derive_workers_observation([job], [], nodes(), attempt=attempt, now=NOW)
        (judged,) = state.jobs if attempt == 1 else state.stale
        assert judged.ended is ended
        assert bool(state.left) is not ended


def test_workers_of_other_attempts_are_told_apart() -> None:
    jobs = [WorkerJob("a", 1, attempt=1), WorkerJob("b", 1, attempt=2), WorkerJob("c", 1)]
    pods = [crashed("b-0", 3, "2026-01-31T12:00:01Z")]
    state = derive_workers_observation(jobs, pods, Nodes(), attempt=2, now=NOW)
    assert ([one.name for one in state.jobs], [one.name for one in state.stale]) == (["b", "c"], ["a"])
    assert state.crash == Crash("b-0 on node n1 ended with exit code 3")


def crashed(name: str, code: int, at: str, log: str = "") -> Manifest:
    ended = {"terminated": {"exitCode": code, "finishedAt": at, "message": log}}
    return {
        "metadata": {"name": name},
        "spec": {"nodeName": "n1"},
        "status": {"containerStatuses": [{"name": "main", "state": ended}]},
    }


def test_the_last_crash_is_told_with_the_end_of_its_log() -> None:
    log = "\n".join(f"line {number}" for number in range(30))
    pods = [
        crashed("first", 1, "2026-01-31T12:00:01Z"),
        crashed("last", 3, "2026-01-31T12:00:09Z", log),
        crashed("handed-over", 0, "2026-01-31T12:00:10Z"),
        {"metadata": {"name": "runs"}, "status": {"containerStatuses": [{"state": {"running": {}}}]}},
    ]
    told = find_crash(pods)
    lines = tuple(f"line {number}" for number in range(10, 30))
    assert told == Crash("last on node n1 ended with exit code 3", lines)
    assert find_crash(pods[2:]) is None


@pytest.mark.parametrize("code", [EXIT_PAYLOAD_CODE, EXIT_PAYLOAD_PYTHON, EXIT_WORKER_REFUSED])
def test_a_worker_whose_image_cant_serve_is_told_apart_with_its_words(code: int) -> None:
    words = TerminationMessage(Ending.NEVER_RAN, "Missing", "no Ray\nAdd `ray`\x1b[31m").to_json()
    pods = [
        crashed("unfit", code, "2026-01-31T12:00:01Z", words),
        crashed("last", 3, "2026-01-31T12:00:09Z", "out of luck"),
    ]
    state = derive_workers_observation([], pods, Nodes(), attempt=1, now=NOW)
    assert state.unfit is not None
    start = f"unfit on node n1 ended with exit code {code}: Missing: no Ray Add `ray`"
    assert state.unfit.message.startswith(start)
    assert "\x1b" not in state.unfit.message
    assert state.crash == Crash("last on node n1 ended with exit code 3", ("out of luck",))
    assert derive_workers_observation([], pods[1:], Nodes(), attempt=1, now=NOW).unfit is None
