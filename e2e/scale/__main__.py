"""`python -m e2e.scale [PART ...]`: measure Fray with many FrayJobs, and print JSON.

The parts are `throughput` (against the same JobSets), `gangs` (the same with many pods each), `workers`
(a thousand of one job), `restart` (of the operator over live jobs) and `finished` (the same over jobs that
have ended); all by default. Brings up the cluster and installs the
chart when they are not there; the fake nodes and all jobs are removed in the end. Needs what the test
cluster needs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from e2e.cluster import provider
from e2e.cluster.errors import MachineError
from e2e.cluster.fake_nodes import build_fake_pools
from e2e.installation import install_release, print_measured, say
from e2e.scale.cluster import Cluster
from e2e.scale.gangs import GANGS, measure_gangs
from e2e.scale.restart import measure_restart
from e2e.scale.throughput import measure_throughput
from e2e.scale.workers import measure_workers

__all__ = ["main"]

PARTS = ("throughput", "gangs", "workers", "restart", "finished")
PODS_PER_NODE = 100
ROUNDS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code. Faults of the cluster are printed, without a traceback."""
    parser = argparse.ArgumentParser(prog="python -m e2e.scale", description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--jobs", type=int, default=500, help="one-pod jobs at once (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each kind (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=1000, help="of one job (default: %(default)s)")
    parser.add_argument(
        "--live", type=int, default=5000, help="live jobs at a restart (default: %(default)s)"
    )
    parser.add_argument(
        "--finished", type=int, default=10000, help="finished jobs at a restart (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are: {', '.join(PARTS)}")
    return print_measured(lambda folder: json.dumps(run(options, folder), indent=2))


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure the parts that are asked for; returns the report. Raises ClusterError."""
    lacking = {"fake-nodes", "kill-program"} - provider.supported_faults()
    if lacking:
        raise MachineError("this cluster can't imitate nodes", f"run it with {provider.SETTING}=local")
    release = install_release(folder, say)
    most = max(options.jobs, options.live, options.workers, *(count * hosts for count, hosts in GANGS))
    nodes = -(-most // PODS_PER_NODE) + 1
    hosts = build_fake_pools(tpu_pools=0, cpu_nodes=nodes)
    try:
        provider.set_fake_nodes(tpu_pools=0, cpu_nodes=nodes, progress=say)
        cluster = Cluster(release, provider.connect(), tuple(host.name for host in hosts), say)
        parts: Mapping[str, Callable[[], Any]] = {
            "throughput": lambda: measure_throughput(cluster, options.jobs, options.rounds),
            "gangs": lambda: measure_gangs(cluster),
            "workers": lambda: measure_workers(cluster, options.workers),
            "restart": lambda: measure_restart(cluster, options.live, finished=False),
            "finished": lambda: measure_restart(cluster, options.finished, finished=True),
        }
        wanted = [part for part in PARTS if not options.parts or part in options.parts]
        report = {}
        for part in wanted:
            report[part] = parts[part]()
            # What was measured is told even if a later part can't be.
            say(json.dumps({part: report[part]}))
        return {"fake_nodes": len(hosts), "processors": os.cpu_count(), **report}
    finally:
        provider.set_fake_nodes(tpu_pools=0, cpu_nodes=0, progress=say)


if __name__ == "__main__":
    sys.exit(main())
