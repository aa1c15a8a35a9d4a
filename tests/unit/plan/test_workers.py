"""Indexes of a Job of workers: as many as are complete, plus as many workers as are wanted."""

from __future__ import annotations

from typing import Any

import pytest

from fray.plan.worker_observation import WorkerJob
from fray.plan.workers import (
    RemoveWorkers,
    ResizeWorkers,
    StartWorkers,
    WorkerStep,
    decide_workers,
    derive_wanted,
)
from fray.testing import build_frayjob


def job(completions: int, *, generation: int = 1, **status: Any) -> WorkerJob:
    """Return a Job of workers; those that are complete have succeeded."""
    complete = frozenset(status.pop("complete", ()))
    return WorkerJob(f"train-a1-w{generation}", completions, complete=complete, **status)


def ready(*indexes: int) -> frozenset[int]:
    return frozenset(indexes)


COMPLETE = {"completed": True, "ended": True}


@pytest.mark.parametrize(
    ("wanted", "jobs", "step"),
    [
        # to begin
        (0, [], None),
        (3, [], StartWorkers(1, 3)),
        (3, [job(3)], None),
        # growth
        (5, [job(3)], ResizeWorkers("train-a1-w1", 5)),
        (3, [job(3, complete=[1])], ResizeWorkers("train-a1-w1", 4)),
        # preempted, and handed over: its index is complete, and another one takes its place at once
        (3, [job(4, complete=[1, 3])], ResizeWorkers("train-a1-w1", 5)),
        (3, [job(5, complete=[1, 3])], None),
        # an index beyond those that there are now, which its controller hasn't forgotten yet
        (2, [job(2, complete=[3])], None),
        (3, [job(2, complete=[3])], ResizeWorkers("train-a1-w1", 3)),
        # crashed: its index comes back by itself
        (3, [job(3, failed=7)], None),
        # shrink: the head ends idle ones, and then nothing is left to do
        (1, [job(3, ready=ready(0, 1, 2))], None),
        (1, [job(3, complete=[0, 2], ready=ready(1))], None),
        (1, [job(3)], None),
        # of those that have never been ready the head knows nothing
        (1, [job(3, ready=ready())], ResizeWorkers("train-a1-w1", 1)),
        (1, [job(3, ready=ready(0))], ResizeWorkers("train-a1-w1", 1)),
        (1, [job(4, ready=ready(2))], ResizeWorkers("train-a1-w1", 3)),
        (1, [job(3, ready=ready(2))], None),
        (2, [job(5, complete=[4], ready=ready(0))], ResizeWorkers("train-a1-w1", 2)),
        # to zero, and again
        (0, [job(2, ready=ready())], ResizeWorkers("train-a1-w1", 0)),
        (0, [job(2, complete=[0, 1], **COMPLETE)], None),
        (2, [job(2, complete=[0, 1], **COMPLETE)], StartWorkers(2, 2)),
        (2, [job(2, complete=[0, 1], **COMPLETE), job(2, generation=2)], RemoveWorkers("train-a1-w1")),
        (2, [job(2, complete=[0, 1], leaving=True, **COMPLETE), job(2, generation=2)], None),
        (3, [job(2, generation=10), job(2, generation=9, **COMPLETE)], RemoveWorkers("train-a1-w9")),
        # the head has said that it is over, or somebody deletes it
        (2, [job(2, ended=True)], None),
        (2, [job(3, leaving=True)], None),
    ],
)
def test_the_next_step_leaves_workers_that_are_ready_to_the_head(
    wanted: int, jobs: list[WorkerJob], step: WorkerStep | None
) -> None:
    """No matter who writes the number: a Job gives up its highest indexes, whatever their workers do."""
    for bound in ({}, {"maxReplicas": 9}):
        assert decide_workers(build_frayjob(workers={"replicas": wanted, **bound}), jobs) == step


def test_one_that_is_complete_already_is_cut_off_no_more() -> None:
    found = job(2, complete=[0], ready=ready(1))
    assert decide_workers(build_frayjob(workers={"replicas": 1}), [found]) is None


def test_once_the_steps_are_done_there_is_none() -> None:
    """Each resize leads to a Job that is left as it is."""
    for wanted in range(5):
        for completions in range(1, 6):
            for taken in range(2**completions):
                complete = [index for index in range(completions) if taken >> index & 1]
                for state in (ready(), ready(0), ready(completions - 1)):
                    found = job(completions, complete=complete, ready=state - set(complete))
                    asking = build_frayjob(workers={"replicas": wanted, "maxReplicas": 9})
                    step = decide_workers(asking, [found])
                    if not isinstance(step, ResizeWorkers):
                        continue
                    left = [index for index in complete if index < step.completions]
                    resized = job(step.completions, complete=left, ready=found.ready)
                    assert decide_workers(asking, [resized]) is None
                    assert (found.ready or frozenset()) <= set(range(step.completions)), "none is cut off"


def test_a_job_of_workers_that_kueue_has_admitted_keeps_its_size() -> None:
    queued = build_frayjob(workers={"replicas": 5}, queue={"name": "team"})
    assert decide_workers(queued, []) == StartWorkers(1, 5)
    assert decide_workers(queued, [job(3)]) is None
    assert decide_workers(queued, [job(3, complete=[0, 1, 2], **COMPLETE)]) == StartWorkers(2, 5)


@pytest.mark.parametrize(("wanted", "completions"), [(5, 6), (2, 3), (1, 3), (0, 3)])
def test_one_that_kueue_lets_change_its_size_does(wanted: int, completions: int) -> None:
    queued = build_frayjob(workers={"replicas": wanted}, queue={"name": "team"})
    found = job(4, complete=[0], ready=ready(1, 2), elastic=True)
    assert decide_workers(queued, [found]) == ResizeWorkers("train-a1-w1", completions)


@pytest.mark.parametrize(
    ("workers", "wanted"),
    [
        ({"replicas": 2}, 2),
        ({"replicas": 2, "minReplicas": 3}, 3),
        ({"replicas": 9, "maxReplicas": 4}, 4),
        ({"replicas": 9, "maxReplicas": 0}, 0),
        ({}, 0),
    ],
)
def test_as_many_are_wanted_as_are_asked_for_within_their_range(workers: dict[str, int], wanted: int) -> None:
    assert derive_wanted(build_frayjob(workers=workers).spec) == wanted


def test_a_job_without_workers_wants_none() -> None:
    assert derive_wanted(build_frayjob().spec) == 0
