"""A pool's summary as Prometheus text: pure, and no label has a value that users, tasks or peers choose.

Written by hand, since workers' images need not have `prometheus_client`. Who may read it, and how often the
summary is made, is the business of `metrics_server`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fray.errors.transport import RefusalReason
from fray.runtime.pool.machine.snapshot import PoolStats
from fray.runtime.pool.view import ACTOR_STATES, OUTCOMES, TASK_STATES

__all__ = ["CONTENT_TYPE", "render_metrics"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus documentation, "Exposition formats": the text format."""
RESOURCES: Final = ("CPU", "GPU", "TPU", "memory")
"""Those of which demand is told: others have names that users choose."""


def render_metrics(stats: PoolStats, refused: Mapping[RefusalReason, int]) -> str:
    """Return what Prometheus reads of a pool; `refused` counts peers that were cut off, by reason."""
    hosts = stats.hosts.values()
    counters = stats.counters
    lines: list[str] = []

    def add(
        name: str, kind: str, text: str, samples: Iterable[tuple[str, float]], *, label: str = ""
    ) -> None:
        lines.append(f"# HELP fray_pool_{name} {text}")
        lines.append(f"# TYPE fray_pool_{name} {kind}")
        for value, amount in samples:
            labels = f'{{{label}="{value}"}}' if label else ""
            lines.append(f"fray_pool_{name}{labels} {amount}")

    def count(name: str, text: str, key: str) -> None:
        add(name, "counter", text, [("", counters.get(key, 0))])

    def share(name: str, text: str, states: tuple[str, ...], counts: Mapping[str, int]) -> None:
        add(name, "gauge", text, [(state, counts.get(state, 0)) for state in states], label="state")

    share("tasks", "Tasks and actor calls that have not ended, by state.", TASK_STATES, stats.tasks)
    count("tasks_submitted_total", "Tasks and actor calls that were submitted.", "submitted")
    ends = [(outcome, counters.get(outcome, 0)) for outcome in OUTCOMES]
    add("tasks_ended_total", "counter", "Tasks and actor calls that have ended.", ends, label="outcome")
    count("tasks_retried_total", "Runs that were repeated, for a lost worker or an exception.", "retried")
    count("tasks_preempted_total", "Runs that were lost with a host that was to go.", "preempted")
    count("results_rebuilt_total", "Lost results that were made again.", "rebuilt")
    count("generator_items_total", "Items that generators have yielded.", "items")
    joined = sum(host.workers for host in hosts)
    starting = sum(host.starting for host in hosts)
    share("workers", "Worker processes.", ("joined", "starting"), {"joined": joined, "starting": starting})
    count("workers_lost_total", "Worker processes that have ended, for whatever reason.", "workers_lost")
    add("hosts", "gauge", "Hosts that are part of the pool.", [("", len(hosts))])
    cpus = {
        "offered": sum(dict(host.offered).get("CPU", 0.0) for host in hosts),
        "free": sum(dict(host.free).get("CPU", 0.0) for host in hosts),
    }
    add("cpus", "gauge", "CPUs; free ones may be below 0 for a moment.", cpus.items(), label="state")
    share("actors", "Actors that live, or will.", ACTOR_STATES, stats.actors)
    asked = {name: sum(dict(shape).get(name, 0.0) * n for shape, n in stats.demand) for name in RESOURCES}
    add("demand", "gauge", "What queued tasks and actors ask for in all.", asked.items(), label="resource")
    add(
        "objects",
        "gauge",
        "Values that are referred to, results to come included.",
        [("", stats.objects)],
    )
    places = [("memory", sum(host.memory for host in hosts)), ("disk", sum(host.spilled for host in hosts))]
    add("object_bytes", "gauge", "Bytes of values in the hosts' stores.", places, label="place")
    add("lineage_bytes", "gauge", "Bytes kept to make lost results again.", [("", stats.lineage_bytes)])
    add("refused_peers_total", "counter", "Connections that were cut off.", refused.items(), label="reason")
    ignored = sum(stats.ignored.values())
    add("ignored_events_total", "counter", "Messages that came too late to matter.", [("", ignored)])
    return "\n".join(lines) + "\n"
