"""What a pool has and did, in the words of `ContextStats` and beyond: for people, from the head's summary.

How the head counts is in `fray.runtime.pool.machine.snapshot`; nothing here asks it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fray.errors.transport import RefusalReason
from fray.job.engine import ContextStats
from fray.job.timeline import TaskRun
from fray.runtime.pool.machine.records import Run
from fray.runtime.pool.machine.snapshot import PoolStats
from fray.runtime.pool.machine.transitions import BLOCKED, DEAD, READY, RUNNING, SENT, WAITING

__all__ = ["PoolContextStats", "list_runs", "summarize"]


@dataclass(frozen=True)
class PoolContextStats(ContextStats):
    """What a pool has at this moment, and what it did so far. `running` tasks include `blocked` ones.

    `blocked` tasks wait for others and hold nothing. `objects` are values that are referred to, results to
    come included; their data takes `memory_bytes` in memory and `spilled_bytes` on disk, small values apart.
    `retried` counts runs that were repeated, `rebuilt` lost results that were made again, `workers_lost`
    processes that have ended for whatever reason, `refused_peers` connections that were cut off. `waits` says
    who waits for whom and why, the first ones, in words.
    """

    blocked: int
    hosts: int
    workers_starting: int
    workers_lost: int
    retried: int
    rebuilt: int
    objects: int
    memory_bytes: int
    spilled_bytes: int
    refused_peers: int
    waits: tuple[str, ...]


def list_runs(finished: Sequence[Run]) -> list[TaskRun]:
    """Return the head's runs for a timeline, all by the head's clock."""
    begun = [run for run in finished if run.began > 0]  # else it has ended before it began
    behind = _measure_clocks(begun)
    return [
        TaskRun(
            row=(run.worker, f"worker {run.worker} on {run.host}"),
            name=run.name,
            is_call=run.is_call,
            attempt=run.attempt,
            outcome=run.outcome,
            began=run.began + behind[run.host],
            seconds=run.seconds,
            waited=max(run.began + behind[run.host] - run.submitted, 0.0),
        )
        for run in begun
    ]


def _measure_clocks(runs: Iterable[Run]) -> dict[str, float]:
    """Return by how many seconds each host's clock is behind the head's.

    A run began after the head had sent it, and ended before the head knew: two bounds. The offset is the
    middle between the tightest ones, so it's as exact as half of the quickest way there and back, as NTP's.
    """
    bounds: dict[str, tuple[float, float]] = {}
    for run in runs:
        least, most = run.sent - run.began, run.reported - (run.began + run.seconds)
        known_least, known_most = bounds.get(run.host, (least, most))
        bounds[run.host] = max(least, known_least), min(most, known_most)
    return {host: (least + most) / 2 for host, (least, most) in bounds.items()}


def summarize(stats: PoolStats, refused: Mapping[RefusalReason, int]) -> PoolContextStats:
    """Return the head's summary for users; `refused` counts peers that were cut off, by reason."""
    hosts = stats.hosts.values()
    counters = stats.counters
    in_state = stats.tasks.get
    return PoolContextStats(
        workers=sum(host.workers for host in hosts),
        waiting=sum(in_state(state, 0) for state in (WAITING, READY, SENT)),
        running=in_state(RUNNING, 0) + in_state(BLOCKED, 0),
        succeeded=counters["done"],
        failed=counters["failed"],
        cancelled=counters["cancelled"],
        actors=sum(count for state, count in stats.actors.items() if state != DEAD),
        blocked=in_state(BLOCKED, 0),
        hosts=len(hosts),
        workers_starting=sum(host.starting for host in hosts),
        workers_lost=counters["workers_lost"],
        retried=counters["retried"],
        rebuilt=counters["rebuilt"],
        objects=stats.objects,
        memory_bytes=sum(host.memory for host in hosts),
        spilled_bytes=sum(host.spilled for host in hosts),
        refused_peers=sum(refused.values()),
        waits=stats.waits,
    )
