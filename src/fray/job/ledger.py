"""The tasks of a context that have not ended, and counts of those that have."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from dataclasses import dataclass

from fray.errors import PoolClosedError, TaskCancelledError, TaskError
from fray.job.tasks import Task
from fray.job.timeline import TaskRun

__all__ = ["Ledger", "TaskCounts"]

REMEMBERED_RUNS = 10_000
"""Runs that are kept for a timeline."""


@dataclass(frozen=True)
class TaskCounts:
    """How many tasks are in each state, or ended in it."""

    waiting: int
    running: int
    succeeded: int
    failed: int
    cancelled: int


class Ledger:
    """Knows each task from its submission to its end. Safe to use from any thread."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        # Reentrant: the garbage collector may end an abandoned generator's task inside any section.
        self._lock = threading.RLock()
        self._waiting: dict[str, Task] = {}
        self._running: dict[str, Task] = {}
        self._ended: Counter[str] = Counter()
        self._runs: deque[TaskRun] = deque(maxlen=REMEMBERED_RUNS)
        self._rows: dict[int, int] = {}
        """Threads that tasks began in -> the rows of their runs."""
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether no task may enter any more."""
        return self._closed

    def enter(self, task: Task) -> None:
        """Take in a new task.

        Raises:
            PoolClosedError: after `close`.
        """
        with self._lock:
            if self._closed:
                raise PoolClosedError(self._owner)
            self._waiting[task.id] = task
            task.submitted = time.time()

    def start(self, task: Task) -> bool:
        """Count the task as running; return False if it has ended before it could start."""
        with self._lock:
            if self._waiting.pop(task.id, None) is None:
                return False
            self._running[task.id] = task
            task.row = self._rows.setdefault(threading.get_ident(), len(self._rows) + 1)
            task.began = time.time()
        return True

    def leave(self, task: Task, error: BaseException | None) -> bool:
        """Count the task's end; return False if it has ended before: its first end is its result."""
        with self._lock:
            if self._running.pop(task.id, None) is not None:
                self._runs.append(_run_of(task, error))
            elif self._waiting.pop(task.id, None) is None:
                return False
            if error is None:
                self._ended["succeeded"] += 1
            elif isinstance(error, TaskCancelledError | GeneratorExit):
                self._ended["cancelled"] += 1
            else:
                self._ended["failed"] += 1
        return True

    def find(self, task_id: str) -> Task | None:
        """Return the task if it has not ended."""
        with self._lock:
            return self._waiting.get(task_id) or self._running.get(task_id)

    def close(self) -> list[Task]:
        """Let no task enter any more; return those that have not ended."""
        with self._lock:
            self._closed = True
            return [*self._waiting.values(), *self._running.values()]

    def unfinished(self) -> list[Task]:
        """Return the tasks that have not ended."""
        with self._lock:
            return [*self._waiting.values(), *self._running.values()]

    def runs(self) -> list[TaskRun]:
        """Return the last runs that have ended, oldest first."""
        with self._lock:
            return list(self._runs)

    def counts(self) -> TaskCounts:
        """Return how many tasks are in each state."""
        with self._lock:
            return TaskCounts(
                waiting=len(self._waiting),
                running=len(self._running),
                succeeded=self._ended["succeeded"],
                failed=self._ended["failed"],
                cancelled=self._ended["cancelled"],
            )


def _run_of(task: Task, error: BaseException | None) -> TaskRun:
    outcome = "done" if error is None else "failed"
    if isinstance(error, TaskError):
        outcome = type(error).__name__
    return TaskRun(
        row=(task.row, f"thread {task.row}"),
        name=task.name,
        is_call=task.actor is not None,
        attempt=1,
        outcome=outcome,
        began=task.began,
        seconds=max(time.time() - task.began, 0.0),
        waited=max(task.began - task.submitted, 0.0),
    )
