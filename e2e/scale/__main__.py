"""`python -m e2e.scale`: measure many FrayJobs against the same JobSets, and print JSON.

Brings up the cluster and installs the chart when they are not there; the fake nodes and all jobs are removed
in the end. Needs what the test cluster needs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from e2e.cluster import provider
from e2e.cluster.api import Api
from e2e.cluster.command import await_condition
from e2e.cluster.errors import ClusterError, MachineError
from e2e.cluster.fake_nodes import build_fake_pools
from e2e.installation import build_kubectl, build_release, load_images, open_cluster
from e2e.job_namespace import open_job_namespace
from e2e.release import Release
from e2e.scale.counters import Counters, observe_counters
from e2e.scale.measure import measure_frayjobs, measure_jobsets, measure_start_seconds, summarize

__all__ = ["main"]

GOAL_RATIO = 1.25
PODS_PER_NODE = 100
ROUNDS = 2
STARTS = 20
LEAD_SECONDS = 90.0


_KINDS: Mapping[str, Callable[[Api, str, int], float]] = {
    "FrayJob": measure_frayjobs,
    "JobSet": measure_jobsets,
}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code. Faults of the cluster are printed, without a traceback."""
    parser = argparse.ArgumentParser(prog="python -m e2e.scale", description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=500, help="one-pod jobs at once (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each kind (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="fray-scale-") as folder:
            report = run(options.jobs, options.rounds, Path(folder))
    except ClusterError as error:
        _say(f"{type(error).__name__}: {error}")
        return 1
    print(json.dumps(report, indent=2))
    return 0


def run(jobs: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Measure `rounds` times with `jobs` jobs of each kind; returns the report. Raises ClusterError."""
    layout = open_cluster(_say)
    if "fake-nodes" not in provider.supported_faults():
        raise MachineError("this cluster can't imitate nodes", f"run it with {provider.SETTING}=local")
    kubectl = build_kubectl(folder)
    release = build_release(kubectl, load_images(layout, _say), folder)
    _say("installing the chart")
    release.install()
    nodes = -(-jobs // PODS_PER_NODE) + 1
    try:
        provider.set_fake_nodes(tpu_pools=0, cpu_nodes=nodes, progress=_say)
        return {
            "jobs": jobs,
            "fake_nodes": len(build_fake_pools(tpu_pools=0, cpu_nodes=nodes)),
            "processors": os.cpu_count(),
            **_measure(release, jobs, rounds),
        }
    finally:
        provider.set_fake_nodes(tpu_pools=0, cpu_nodes=0, progress=_say)


def _measure(release: Release, jobs: int, rounds: int) -> dict[str, Any]:
    api, kubectl = provider.connect(), release.kubectl
    # A process of its own: what an earlier one has needed must not count.
    kubectl.within(release.namespace)("rollout", "restart", f"deployment/{release.deployment}")
    await_condition("the operator has restarted", release.is_ready, timeout=LEAD_SECONDS)
    idle = _await_leader(release)
    with open_job_namespace(kubectl, release) as space:
        _say(f"starting {STARTS} jobs, one after the other")
        starts = measure_start_seconds(api, space.name, STARTS)
    before = observe_counters(release, api)
    seconds: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    for round_number in range(rounds):
        # In turns, and each first in every other round: a machine that others use too changes its pace.
        for kind in sorted(_KINDS, reverse=round_number % 2 == 1):
            with open_job_namespace(kubectl, release) as space:
                _say(f"running {jobs} {kind}s")
                seconds[kind].append(round(_KINDS[kind](api, space.name, jobs), 1))
    after = observe_counters(release, api)
    requests = after.since(before)
    count = jobs * rounds
    return {
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


def _await_leader(release: Release) -> Counters:
    found: list[Counters] = []

    def leads() -> bool:
        try:
            found.append(observe_counters(release, provider.connect()))
        except ClusterError:
            return False
        return True

    await_condition("an operator leads", leads, timeout=LEAD_SECONDS)
    return found[-1]


if __name__ == "__main__":
    sys.exit(main())
