"""`python -m e2e.restart`: how long a gang of four takes from an eviction to the pods of its next attempt.

Prints JSON and judges nothing. Time counts from the eviction until all four new pods exist, and so includes
the end of the old ones, which leave within a second of SIGTERM, and the pause before the next attempt. That
and the settle window are those of all scenarios (see `e2e.release`): the default pause alone takes 10 s.
Brings up the cluster and installs the chart when they are not there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from e2e.cluster.command import await_condition
from e2e.installation import install_release, print_measured, say
from e2e.job_namespace import JobNamespace, build_shell, open_job_namespace, until_told

__all__ = ["main"]

HOSTS = 4
RUNS = 5
GOAL_SECONDS = 10.0
LATEST_SECONDS = 120.0


def main() -> int:
    """Measure and print; returns the exit code. Faults of the cluster are printed, without a traceback."""
    parser = argparse.ArgumentParser(prog="python -m e2e.restart", description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=RUNS, help="evictions (default: %(default)s)")
    options = parser.parse_args()
    return print_measured(lambda folder: json.dumps(_summarize(_run(options.runs, folder)), indent=2))


def _run(runs: int, folder: Path) -> list[float]:
    """Return the seconds of each run. Raises ClusterError."""
    release = install_release(folder, say)
    seconds = []
    for number in range(1, runs + 1):
        with open_job_namespace(release.kubectl, release) as space:
            seconds.append(_measure(space, f"gang-{number}"))
            say(f"run {number}: {seconds[-1]:.1f} s")
    return seconds


def _measure(jobs: JobNamespace, name: str) -> float:
    jobs.submit(build_shell(name, until_told(), replicas=HOSTS))
    jobs.await_job(name, "condition=Running")
    pod = jobs.pods(name)[0]["metadata"]["name"]
    begun = time.monotonic()
    jobs.evict(pod)
    await_condition(
        "all pods of the next attempt exist",
        lambda: len(jobs.pods(name, attempt=2)) == HOSTS,
        timeout=LATEST_SECONDS,
        details=jobs.describe,
    )
    return time.monotonic() - begun


def _summarize(seconds: list[float]) -> dict[str, Any]:
    return {
        "hosts": HOSTS,
        "seconds": [round(each, 2) for each in seconds],
        "median": round(statistics.median(seconds), 2),
        "longest": round(max(seconds), 2),
        "goal": GOAL_SECONDS,
    }


if __name__ == "__main__":
    sys.exit(main())
