"""What FrayJobs cost on top of the JobSets that they become, while as many run as the machine can."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from e2e.cluster.api import Api
from e2e.cluster.command import await_condition
from e2e.cluster.errors import ClusterError
from e2e.job_namespace import open_job_namespace
from e2e.scale.cluster import Cluster
from e2e.scale.counters import Counters, observe_counters
from e2e.scale.measure import measure_frayjobs, measure_jobsets, measure_start_seconds, summarize

__all__ = ["measure_throughput"]

GOAL_RATIO = 1.10
STARTS = 20
LEAD_SECONDS = 90.0

_KINDS: Mapping[str, Callable[[Api, str, int], float]] = {
    "FrayJob": measure_frayjobs,
    "JobSet": measure_jobsets,
}


def measure_throughput(cluster: Cluster, jobs: int, rounds: int) -> dict[str, Any]:
    """Measure `rounds` times with `jobs` jobs of each kind. Raises ClusterError."""
    release, api, kubectl = cluster.release, cluster.api, cluster.release.kubectl
    # A process of its own: what an earlier one has needed must not count.
    kubectl.within(release.namespace)("rollout", "restart", f"deployment/{release.deployment}")
    await_condition("the operator has restarted", release.is_ready, timeout=LEAD_SECONDS)
    idle = _await_leader(cluster)
    with open_job_namespace(kubectl, release) as space:
        cluster.say(f"starting {STARTS} jobs, one after the other")
        starts = measure_start_seconds(api, space.name, STARTS)
    before = observe_counters(release, api)
    seconds: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    for round_number in range(rounds):
        # In turns, and each first in every other round: a machine that others use too changes its pace.
        for kind in sorted(_KINDS, reverse=round_number % 2 == 1):
            with open_job_namespace(kubectl, release) as space:
                cluster.say(f"running {jobs} {kind}s")
                seconds[kind].append(round(_KINDS[kind](api, space.name, jobs), 1))
    after = observe_counters(release, api)
    requests = after.since(before)
    count = jobs * rounds
    return {
        "jobs": jobs,
        "seconds": seconds,
        "ratio": round(sum(seconds["FrayJob"]) / sum(seconds["JobSet"]), 3),
        "goal_ratio": GOAL_RATIO,
        "create_to_jobset_milliseconds": summarize(starts),
        "operator": {
            "idle_rss_mib": round(idle.rss_mib, 1),
            "peak_rss_mib": round(after.peak_rss_mib, 1),
            "cpu_milliseconds_per_job": round((after.cpu_seconds - before.cpu_seconds) / count * 1000, 1),
            "requests_per_job": round(sum(requests.values()) / count, 2),
            "requests": requests,
        },
    }


def _await_leader(cluster: Cluster) -> Counters:
    found: list[Counters] = []

    def leads() -> bool:
        try:
            found.append(observe_counters(cluster.release, cluster.api))
        except ClusterError:
            return False
        return True

    await_condition("an operator leads", leads, timeout=LEAD_SECONDS)
    return found[-1]
