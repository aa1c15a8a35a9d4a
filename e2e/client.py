"""`python -m e2e.client`: what the Python client takes on a real cluster. Prints JSON and judges nothing.

`launch`: milliseconds of `launch()` of a callable with a small workspace, one after the other, and what 500
of them leave behind that 20 haven't.
The jobs want hardware that isn't there, so that the machine isn't measured. `wait`: the requests of a wait on
200 of them until all have ended. `logs`: memory of a program that follows 16 pods, and how often each byte
was read. Brings up the cluster and installs the chart when they are not there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e2e.cluster.paths import KUBECONFIG
from e2e.installation import install_release, print_measured, say
from e2e.job_namespace import open_job_namespace
from e2e.log_reader import CountedCluster
from fray.cluster import Entrypoint, JobId, JobRequest, ResourceConfig, create_environment
from fray.cluster.kubernetes import KubernetesCluster

__all__ = ["main", "measure_launches", "measure_logs"]

LAUNCHES = 500
FIRST = 20
"""Launches after which a process has the connections and threads that all further ones use."""
WAITED = 200
PODS = 16
LINES = 20_000
NOWHERE = ResourceConfig.with_tpu("v6e-4")
GOALS = {
    "p50_milliseconds": 150,
    "more_threads": 1,
    "WATCH frayjobs": 1,
    "peak_mib": 80,
    "read_bytes_for_each": 1,
}


def measure_launches(cluster: CountedCluster, count: int, waited: int, workspace: Path) -> dict[str, Any]:
    """Launch jobs that can't run, wait for some of them while they are ended, and close the cluster."""
    threads, sockets = 0, 0
    (workspace / "train.py").write_text("print('hello')\n", encoding="utf-8")
    environment = create_environment(workspace)
    request = JobRequest("launch", Entrypoint.from_callable(print, ["hello"]), NOWHERE, environment)
    jobs, milliseconds = list[JobId](), list[float]()
    for number in range(count):
        if number == FIRST:
            threads, sockets = threading.active_count(), _count_sockets()
        begun = time.perf_counter()
        jobs.append(cluster.launch(request))
        milliseconds.append((time.perf_counter() - begun) * 1000)
    launched = {
        "launches": count,
        "p50_milliseconds": round(statistics.median(milliseconds), 1),
        "p95_milliseconds": round(statistics.quantiles(milliseconds, n=20)[-1], 1),
        "more_threads": threading.active_count() - threads,
        "more_connections": _count_sockets() - sockets,
    }
    with KubernetesCluster(cluster.spec, environ={"KUBECONFIG": str(KUBECONFIG)}) as other:
        cluster.requests.clear()
        waiting = threading.Thread(target=lambda: cluster.wait(jobs[:waited]))
        waiting.start()
        for job in jobs[:waited]:
            other.terminate(job)
        waiting.join()
    return {"launch": launched, "wait": {"jobs": waited, "requests": dict(cluster.requests)}}


def print_much(lines: int) -> None:
    """What each host of the job does whose logs are read."""
    for number in range(lines):
        print(f"step {number} {'x' * 100}")


def measure_logs(cluster: CountedCluster, kubeconfig: Path, pods: int, lines: int) -> dict[str, Any]:
    """Launch a job of many pods, and follow it in a process that does nothing else."""
    resources = ResourceConfig(cpu=0.05, ram="256m", disk="100m", replicas=pods)
    job = cluster.launch(JobRequest("talk", Entrypoint.from_callable(print_much, [lines]), resources))
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    words = [str(kubeconfig), str(cluster.spec.namespace), job]
    told = subprocess.run(
        [sys.executable, "-m", "e2e.log_reader", *words], env=environ, stdout=subprocess.PIPE, check=True
    )
    found: dict[str, Any] = json.loads(told.stdout)
    return {"pods": pods, "lines_expected": pods * lines, **found}


def main() -> int:
    """Measure and print; returns the exit code. Faults of the cluster are printed, without a traceback."""
    parser = argparse.ArgumentParser(prog="python -m e2e.client", description=__doc__.partition("\n")[0])
    parser.add_argument("--launches", type=int, default=LAUNCHES, help="(default: %(default)s)")
    parser.add_argument("--pods", type=int, default=PODS, help="that are read (default: %(default)s)")
    parser.add_argument("--lines", type=int, default=LINES, help="of each pod (default: %(default)s)")
    options = parser.parse_args()
    return print_measured(lambda folder: json.dumps(_run(options, folder), indent=2))


def _run(options: argparse.Namespace, folder: Path) -> Mapping[str, Any]:
    release = install_release(folder, say)
    with open_job_namespace(release.kubectl, release) as space:
        with CountedCluster(KUBECONFIG, space.name) as cluster:
            say(f"following {options.pods} pods")
            logs = measure_logs(cluster, KUBECONFIG, options.pods, options.lines)
        say(f"launching {options.launches} jobs")
        with CountedCluster(KUBECONFIG, space.name) as cluster:
            launched = measure_launches(cluster, options.launches, min(WAITED, options.launches), folder)
    return {"goals": GOALS, "processors": os.cpu_count(), **launched, "logs": logs}


def _count_sockets() -> int:
    return sum(map(_leads_to_socket, Path("/proc/self/fd").iterdir()))


def _leads_to_socket(path: Path) -> bool:
    try:
        return str(path.readlink()).startswith("socket:")
    except OSError:
        return False  # that of the listing itself


if __name__ == "__main__":
    sys.exit(main())
