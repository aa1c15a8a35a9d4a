"""Runs of tasks as Chrome trace events, which Perfetto and chrome://tracing draw. Pure: no file, no clock.

The format is Google's "Trace Event Format": an object with `traceEvents`; complete events (`ph: X`) with `ts`
and `dur` in microseconds, and metadata events (`ph: M`) that name processes and threads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["TaskRun", "build_trace", "to_json"]


@dataclass(frozen=True)
class TaskRun:
    """One run of a task or of an actor's call. `row` is where it ran: a number and a name for people.

    `began` is in seconds since the epoch, `seconds` is how long it took, `waited` how many seconds lay
    between its submission and its beginning. `outcome` is "done", "failed", or the name of the error that
    ended it.
    """

    row: tuple[int, str]
    name: str
    is_call: bool
    attempt: int
    outcome: str
    began: float
    seconds: float
    waited: float


def to_json(runs: Sequence[TaskRun]) -> str:
    """Return the trace of some runs as the text of a file."""
    return json.dumps(build_trace(runs))


def build_trace(runs: Sequence[TaskRun]) -> dict[str, Any]:
    """Return the trace of some runs, ready for `json.dump`.

    A worker is a process of the trace, with one thread for tasks and one for calls. What it ran at the same
    time (tasks beside one that waits, calls of several actors) is on further threads, since events of one
    thread must not overlap. The first run begins at 0, whose time of day is in `otherData`.
    """
    start = min((run.began for run in runs), default=0.0)
    events: list[dict[str, Any]] = []
    for number, name in sorted({run.row for run in runs}):
        here = [run for run in runs if run.row == (number, name)]
        tasks = _assign_tracks(run for run in here if not run.is_call)
        calls = _assign_tracks(run for run in here if run.is_call)
        events.append(_metadata("process_name", number, 0, {"name": name}))
        events.append(_metadata("process_sort_index", number, 0, {"sort_index": number}))
        titled = [*((name, track) for track in tasks), *((f"{name}: calls", track) for track in calls)]
        for track, (title, track_runs) in enumerate(titled, start=1):
            events.append(_metadata("thread_name", number, track, {"name": title}))
            events += (_event(run, track, start) for run in track_runs)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"began": start, "clock": "seconds since the epoch"},
    }


def _assign_tracks(runs: Iterable[TaskRun]) -> list[list[TaskRun]]:
    """Deal runs out so that no two of one track overlap; a run goes to the first track that is free."""
    tracks: list[list[TaskRun]] = []
    ends: list[int] = []
    for run in sorted(runs, key=lambda run: run.began):
        begins = _micros(run.began)
        free = next((track for track, end in enumerate(ends) if end <= begins), None)
        if free is None:
            free = len(tracks)
            tracks.append([])
            ends.append(0)
        tracks[free].append(run)
        ends[free] = begins + _micros(run.seconds)
    return tracks


def _event(run: TaskRun, track: int, start: float) -> dict[str, Any]:
    return {
        "name": run.name,
        "cat": "call" if run.is_call else "task",
        "ph": "X",
        "ts": _micros(run.began) - _micros(start),
        "dur": _micros(run.seconds),
        "pid": run.row[0],
        "tid": track,
        "args": {
            "attempt": run.attempt,
            "outcome": run.outcome,
            "waited_ms": round(run.waited * 1e3, 3),
        },
        **({} if run.outcome == "done" else {"cname": "terrible"}),
    }


def _metadata(name: str, process: int, thread: int, args: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": process, "tid": thread, "args": args}


def _micros(seconds: float) -> int:
    # Whole ones, so that sums of them stay exact: the format allows fractions, but viewers round them.
    return round(seconds * 1e6)
