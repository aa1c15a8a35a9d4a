"""How fast the pool's state machine is for the plain life of tasks, and what a queued task takes.

    .venv/bin/python benchmarks/pool_state.py [--tasks N] [--rounds N]

Two simulated workers run no-op tasks submitted in batches: submit all, want all, done, release. Prints
JSON: events a second of CPU time (that of the simulated workers apart), microseconds an event by kind, and
bytes a queued task, its TaskSpec with short arguments included.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import pickle
import platform
import time
import tracemalloc
from collections import Counter, deque

from fray.runtime.pool.messages.commands import Deliver, RunTask, StartWorker
from fray.runtime.pool.messages.events import (
    Event,
    HostJoined,
    ObjectsWanted,
    RefsReleased,
    TaskDone,
    TaskSubmitted,
    WorkerJoined,
)
from fray.runtime.pool.messages.specs import DRIVER, TaskSpec
from fray.runtime.pool.state import PoolState

WORKERS = 2
TASK_SECONDS = 20e-6
RESULT = b"\x80\x05N."


class Story:
    """Feeds a state as two workers and a driver would, and notes the events: they can be told again."""

    def __init__(self) -> None:
        self.state = PoolState()
        self.events: list[tuple[int, Event]] = []
        self.queues: dict[int, deque[int]] = {}
        self.delivered = 0
        self.handle(DRIVER, HostJoined(1, "here", (("CPU", float(WORKERS)),), WORKERS, 1 << 30))

    def handle(self, source: int, event: Event) -> None:
        """Feed one event, and carry out the commands."""
        self.events.append((source, event))
        for command in self.state.handle(source, event, 0.0):
            if type(command) is RunTask:
                self.queues[command.worker].append(command.spec.id)
            elif type(command) is Deliver:
                self.delivered += 1
            elif type(command) is StartWorker:
                self.queues[command.worker] = deque()
                self.handle(DRIVER, WorkerJoined(command.worker))

    def work(self) -> None:
        """Let the workers end all that they have, one task each in turn."""
        while any(self.queues.values()):
            for worker, queue in self.queues.items():
                if queue:
                    task = queue.popleft()
                    started = queue[0] if queue else 0
                    self.handle(worker, TaskDone(task, RESULT, started, 0.0, TASK_SECONDS))


def read_specs(first: int, count: int) -> list[TaskSubmitted]:
    """Return submissions as the head reads them: one pickled batch."""
    specs = [TaskSpec(first + number, b"f" * 16, b"(%d,)" % number, "nothing") for number in range(count)]
    batch: list[TaskSubmitted] = pickle.loads(
        pickle.dumps([TaskSubmitted(spec, b"blob") for spec in specs], 5)
    )
    return batch


def measure_life(tasks: int, rounds: int) -> dict[str, object]:
    """Return events a second of CPU time, and microseconds an event by kind: the best of all rounds."""
    story = Story()
    batch = read_specs(1, tasks)
    for submission in batch:
        story.handle(DRIVER, submission)
    ids = tuple(submission.spec.id for submission in batch)
    story.handle(DRIVER, ObjectsWanted(ids))
    story.work()
    for object_id in ids:
        story.handle(DRIVER, RefsReleased((object_id,)))
    if story.delivered != tasks or story.state.stats().objects:
        raise AssertionError("tasks were lost, or objects are left")
    best: dict[str, float] = {}
    totals = []
    for _ in range(rounds):
        seconds = tell_again(story.events)
        totals.append(sum(seconds.values()))
        best = {kind: min(best.get(kind, 1e9), spent) for kind, spent in seconds.items()}
    counts = Counter(type(event).__name__ for _, event in story.events)
    return {
        "events_per_second": round(len(story.events) / min(totals)),
        "microseconds": {kind: round(spent / counts[kind] * 1e6, 2) for kind, spent in best.items()},
    }


def tell_again(events: list[tuple[int, Event]]) -> dict[str, float]:
    """Tell a new state the same events; return seconds of CPU time by kind, read where the kind changes."""
    state = PoolState()
    spent: dict[str, float] = {}
    gc.collect()
    for kind, group in itertools.groupby(events, key=lambda told: type(told[1]).__name__):
        told = list(group)
        began = time.thread_time()
        for source, event in told:
            state.handle(source, event, 0.0)
        spent[kind] = spent.get(kind, 0.0) + time.thread_time() - began
    return spent


def measure_memory(tasks: int) -> float:
    """Return bytes that a queued task takes, as the head holds it: the events are gone by then."""
    state = PoolState()
    state.handle(DRIVER, HostJoined(1, "here", (("CPU", float(WORKERS)),), WORKERS, 1 << 30), 0.0)
    gc.collect()
    tracemalloc.start()
    for submission in read_specs(1, tasks):
        state.handle(DRIVER, submission, 0.0)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    if state.stats().tasks["ready"] != tasks:
        raise AssertionError("tasks aren't queued")
    return round(size / tasks, 1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    figures = {
        "python": platform.python_version(),
        **measure_life(arguments.tasks, arguments.rounds),
        "bytes_per_queued_task": measure_memory(arguments.tasks),
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
