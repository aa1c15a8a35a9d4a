"""What a pool has and does now, as JSON: what its head shows, and what `fray top` reads. Pure."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Self, TypeVar

from fray.runtime.pool.machine.snapshot import FunctionStats, HostStats, PoolStats
from fray.runtime.pool.machine.transitions import (
    ALIVE,
    BLOCKED,
    PENDING,
    READY,
    RESTARTING,
    RUNNING,
    SENT,
    STARTING,
    WAITING,
)
from fray.runtime.pool.messages.specs import Shape

__all__ = ["ACTOR_STATES", "OUTCOMES", "RATE_SECONDS", "TASK_STATES", "PoolView", "RateMeter"]

TASK_STATES: Final = (WAITING, READY, SENT, RUNNING, BLOCKED)
ACTOR_STATES: Final = (PENDING, STARTING, ALIVE, RESTARTING)
OUTCOMES: Final = ("done", "failed", "cancelled")
SAMPLE_SECONDS: Final = 1.0
RATE_SECONDS: Final = 10
"""Rates are those of the last so many seconds."""


@dataclass(frozen=True)
class PoolView:
    """A pool at one moment. Names and words are those of `PoolStats`; what has ended is in `counters`."""

    job: str
    """The job whose pool it is; empty: none."""
    seconds: float
    """Since the pool began."""
    tasks: Mapping[str, int]
    """State -> tasks and calls that haven't ended."""
    actors: Mapping[str, int]
    counters: Mapping[str, int]
    rates: Mapping[str, float]
    """Tasks and calls a second: `submitted`, `ended`."""
    hosts: tuple[HostStats, ...]
    objects: int
    functions: tuple[FunctionStats, ...]
    waits: tuple[str, ...]
    demand: tuple[tuple[Shape, int], ...] = ()

    @classmethod
    def build(cls, stats: PoolStats, *, job: str, seconds: float, rates: Mapping[str, float]) -> Self:
        """Return what is shown of a summary."""
        return cls(
            job=job,
            seconds=round(seconds, 1),
            tasks={state: stats.tasks.get(state, 0) for state in TASK_STATES},
            actors={state: stats.actors.get(state, 0) for state in ACTOR_STATES},
            counters=dict(stats.counters),
            rates=dict(rates),
            hosts=tuple(stats.hosts.values()),
            objects=stats.objects,
            functions=stats.functions,
            waits=stats.waits,
            demand=stats.demand,
        )

    def to_json(self) -> str:
        """Return the text of the page; amounts of resources are objects by name."""
        shown = asdict(self)
        for host in shown["hosts"]:
            host["offered"], host["free"] = dict(host["offered"]), dict(host["free"])
        shown["demand"] = [{"shape": dict(shape), "count": count} for shape, count in self.demand]
        return json.dumps(shown, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: bytes | str) -> Self:
        """Return what a page says; fields of later versions are left out.

        Raises `ValueError` where it is no such page.
        """
        try:
            read = json.loads(text)
            return cls(
                job=str(read["job"]),
                seconds=float(read["seconds"]),
                tasks={state: int(read["tasks"].get(state, 0)) for state in TASK_STATES},
                actors={state: int(read["actors"].get(state, 0)) for state in ACTOR_STATES},
                counters={str(name): int(count) for name, count in read["counters"].items()},
                rates={name: float(read["rates"].get(name, 0.0)) for name in ("submitted", "ended")},
                hosts=tuple(_read(HostStats, host) for host in read["hosts"]),
                objects=int(read["objects"]),
                functions=tuple(_read(FunctionStats, function) for function in read["functions"]),
                waits=tuple(map(str, read["waits"])),
                # Earlier heads show none.
                demand=tuple(
                    (_read_amounts(each["shape"]), int(each["count"])) for each in read.get("demand", ())
                ),
            )
        except (TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"it is no page of a pool: {type(error).__name__}: {error}") from error


_T = TypeVar("_T", HostStats, FunctionStats)


def _read(kind: type[_T], read: Mapping[str, Any]) -> _T:
    return kind(**{each.name: _READERS[each.type](read[each.name]) for each in fields(kind)})


def _read_amounts(amounts: Mapping[str, Any]) -> Shape:
    return tuple(sorted((str(name), float(amount)) for name, amount in amounts.items()))


_READERS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    "str": str,
    "int": int,
    "float": float,
    "Shape": _read_amounts,
}
"""By the type of a field, as it is written there."""


class RateMeter:
    """How many tasks a second are submitted and end, over the last `RATE_SECONDS`.

    `now` is the monotonic time at which the pool begins, with no task.
    """

    def __init__(self, now: float) -> None:
        # One more than there are seconds between the first and the last.
        self._samples = deque([(now, 0, 0)], maxlen=int(RATE_SECONDS / SAMPLE_SECONDS) + 1)

    def note(self, counters: Mapping[str, int], now: float) -> None:
        """Take a sample of the counters, if it is time for one; to be called at least once a second."""
        if now - self._samples[-1][0] >= SAMPLE_SECONDS:
            self._samples.append((now, *_count(counters)))

    def rates(self, counters: Mapping[str, int], now: float) -> dict[str, float]:
        """Return the rates until now."""
        began, submitted, ended = self._samples[0]
        seconds = max(now - began, SAMPLE_SECONDS)
        submitted_now, ended_now = _count(counters)
        return {
            "submitted": round((submitted_now - submitted) / seconds, 2),
            "ended": round((ended_now - ended) / seconds, 2),
        }


def _count(counters: Mapping[str, int]) -> tuple[int, int]:
    return counters["submitted"], sum(counters[outcome] for outcome in OUTCOMES)
