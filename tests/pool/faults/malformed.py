"""What a worker of another version, or with a defect, might say to the head; each by its name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fray.job import get_job_context
from fray.runtime.pool.current import current_task
from fray.runtime.pool.messages.events import (
    FetchFailed,
    FilesFound,
    HostLost,
    ItemsProduced,
    ObjectPut,
    RefsAdded,
    TaskBlocked,
    TaskDone,
    TaskSubmitted,
    TimerFired,
)
from fray.runtime.pool.messages.greetings import WorkerHello
from fray.runtime.pool.messages.specs import Failed, Inline, Stored, TaskSpec
from tests.behaviour.gates import append, lines

__all__ = ["MESSAGES", "say"]


class _Unreadable:
    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("what a newer version has",)


def _spec(task: int, **more: Any) -> TaskSpec:
    return TaskSpec(task + 1_000_000, b"f", b"", "nested")._replace(**more)


MESSAGES: Mapping[str, Callable[[int], Any]] = {
    "no message at all": lambda _: {"task": 1},
    "what can't be read": lambda _: _Unreadable(),
    "what only the head's shell may say": lambda _: HostLost(1, "gone"),
    "another one of those": lambda _: TimerFired(("start", 1)),
    "what only a nanny may say": lambda _: FilesFound(1, ()),
    "a greeting": lambda _: WorkerHello(1, 1),
    "references that aren't numbers": lambda _: RefsAdded(("x", [])),  # type: ignore[arg-type]
    "a list instead of a tuple": lambda _: RefsAdded([1]),  # type: ignore[arg-type]
    "a value without a place": lambda task: ObjectPut(task + 1, Stored("here", 3)),  # type: ignore[arg-type]
    "a value that failed": lambda task: ObjectPut(task + 1, Failed(b"", "ObjectLostError")),  # type: ignore[arg-type]
    "an item of nothing": lambda task: ItemsProduced(task, 0, ((task + 1, None),)),  # type: ignore[arg-type]
    "an unreadable object": lambda _: FetchFailed([], 1, "gone"),  # type: ignore[arg-type]
    "a block of nobody": lambda _: TaskBlocked({}),  # type: ignore[arg-type]
    "no outcome": lambda task: TaskDone(task, None),  # type: ignore[arg-type]
    "an outcome without a size": lambda task: TaskDone(task, Stored(1, "3")),  # type: ignore[arg-type]
    "an outcome that contains text": lambda task: TaskDone(task, Inline(b"", ("x", []))),  # type: ignore[arg-type]
    "no time": lambda task: TaskDone(task, b"", seconds="1"),  # type: ignore[arg-type]
    "a following task that is none": lambda task: TaskDone(task, b"", started=[]),  # type: ignore[arg-type]
    "an end that is too short": lambda task: tuple.__new__(TaskDone, (task, b"")),
    "a spec of another version": lambda task: TaskSubmitted(_spec(task, retries="3"), b"f"),
    "a spec without a shape": lambda task: TaskSubmitted(_spec(task, shape=None), b"f"),
    "a task that needs what it doesn't hold": lambda task: TaskSubmitted(_spec(task, deps=(1 << 39,)), b"f"),
}


def say(what: str, runs: Path) -> int:
    """Say it in the first run, and wait for the end; return 7 in the second."""
    append(runs, "run")
    if len(lines(runs)) == 1:
        task = current_task()
        assert task is not None
        client: Any = get_job_context()._engine.client  # type: ignore[attr-defined]
        client._post(MESSAGES[what](task.id))
        threading.Event().wait()
    return 7
