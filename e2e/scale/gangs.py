"""What gangs of many pods cost on top of their JobSets, and how often their status is written."""

from __future__ import annotations

from typing import Any

from e2e.job_namespace import open_job_namespace
from e2e.scale.cluster import Cluster
from e2e.scale.counters import observe_server_writes
from e2e.scale.measure import measure_frayjobs, measure_jobsets

__all__ = ["GANGS", "measure_gangs"]

GANGS = ((200, 16), (1, 2304))
"""Jobs at once, and hosts of each."""
GOAL_RATIO = 1.10
GOAL_WRITES = 10
_STATUS = "frayjobs/status"


def measure_gangs(cluster: Cluster) -> list[dict[str, Any]]:
    """Measure each size once, the JobSets after the FrayJobs. Raises ClusterError."""
    return [_measure(cluster, count, hosts) for count, hosts in GANGS]


def _measure(cluster: Cluster, count: int, hosts: int) -> dict[str, Any]:
    before = observe_server_writes(cluster.api)
    seconds = {}
    for kind, measure in (("FrayJob", measure_frayjobs), ("JobSet", measure_jobsets)):
        with open_job_namespace(cluster.release.kubectl, cluster.release) as space:
            cluster.say(f"running {count} {kind}s of {hosts} pods")
            seconds[kind] = round(measure(cluster.api, space.name, count, replicas=hosts), 1)
            cluster.say(f"they took {seconds[kind]} s")
    written = observe_server_writes(cluster.api) - before
    writes = sum(number for what, number in written.items() if what.endswith(_STATUS))
    return {
        "jobs": count,
        "hosts": hosts,
        "seconds": seconds,
        "ratio": round(seconds["FrayJob"] / seconds["JobSet"], 3),
        "goal_ratio": GOAL_RATIO,
        "status_writes_per_job": round(writes / count, 1),
        "goal_status_writes_per_job": GOAL_WRITES,
    }
