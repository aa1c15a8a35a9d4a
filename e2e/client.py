"""`python -m e2e.client`: what the Python client takes on a real cluster. Prints JSON and judges nothing.

`launch`: milliseconds of `launch()` of a callable, one after the other, and what 500 of them leave behind.
The jobs want hardware that isn't there, so that the machine isn't measured. `wait`: the requests of a wait on
200 of them until all have ended. `logs`: memory of a program that follows 16 pods, and how often each byte
was read. Brings up the cluster and installs the chart when they are not there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from e2e.cluster.errors import ClusterError
from e2e.cluster.kubeconfig import CONTEXT
from e2e.cluster.paths import KUBECONFIG
from e2e.installation import install_release
from e2e.job_namespace import open_job_namespace
from fray.cluster import Entrypoint, JobId, JobRequest, ResourceConfig
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes import KubernetesCluster
from fray.cluster.kubernetes.access import Access
from fray.kube.client import KubernetesApi, load_configuration

__all__ = ["main", "measure_launches", "measure_logs"]

LAUNCHES = 500
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


class CountingApi(KubernetesApi):
    """Access to a server that counts the bytes of logs."""

    log_bytes = 0

    async def stream_log(self, *args: Any, **options: Any) -> AsyncIterator[bytes]:
        """As it is, and counted."""
        async for piece in super().stream_log(*args, **options):
            self.log_bytes += len(piece)
            yield piece


class CountedCluster(KubernetesCluster):
    """A cluster whose requests are counted, by method and kind."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.requests: Counter[str] = Counter()
        self.api: CountingApi | None = None

        async def open_access() -> Access:
            configuration = await load_configuration(kubeconfig=str(kubeconfig), context=CONTEXT)
            configuration.connection_pool_maxsize = 0
            self.api = api = CountingApi(configuration, on_answer=self._count)
            return Access(api, str(configuration.host), namespace, api.close)

        super().__init__(KubernetesSpec(namespace=namespace), environ={}, open_access=open_access)

    def _count(self, method: str, resource: Any, _status: int) -> None:
        self.requests[f"{method} {resource.plural}"] += 1


def measure_launches(cluster: CountedCluster, count: int, waited: int) -> dict[str, Any]:
    """Launch jobs that can't run, wait for some of them while they are ended, and close the cluster."""
    cluster.list_jobs()  # the connection is there
    threads, sockets = threading.active_count(), _count_sockets()
    request = JobRequest("launch", Entrypoint.from_callable(print, ["hello"]), NOWHERE)
    jobs, milliseconds = list[JobId](), list[float]()
    for _ in range(count):
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


def measure_logs(kubeconfig: Path, namespace: str, pods: int, lines: int) -> dict[str, Any]:
    """Follow a job of many pods in a process of its own."""
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    words = ["--read-logs", str(kubeconfig), namespace, str(pods), str(lines)]
    told = subprocess.run(
        [sys.executable, "-m", "e2e.client", *words], env=environ, stdout=subprocess.PIPE, check=True
    )
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def read_logs(cluster: CountedCluster, pods: int, lines: int) -> dict[str, Any]:
    """Launch a job of many pods, follow it, and return what that took of this very process."""
    resources = ResourceConfig(cpu=0.05, ram="256m", disk="100m", replicas=pods)
    job = cluster.launch(JobRequest("talk", Entrypoint.from_callable(print_much, [lines]), resources))
    count, size = 0, 0
    with closing(cluster.logs(job, follow=True)) as read:  # type: ignore[type-var]
        for line in read:
            count += 1
            size += len(line.text.encode()) + 1
    assert cluster.api is not None
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    assert peak is not None
    followed = cluster.api.log_bytes
    cluster.api.log_bytes = 0
    for _ in cluster.logs(job):  # once again, by what reads each byte once
        pass
    return {
        "pods": pods,
        "lines": count,
        "lines_expected": pods * lines,
        "text_bytes": size,
        "peak_mib": round(int(peak[1]) / 1024, 1),
        "read_bytes_for_each": round(followed / max(cluster.api.log_bytes, 1), 4),
    }


def main() -> int:
    """Measure and print; returns the exit code. Faults of the cluster are printed, without a traceback."""
    parser = argparse.ArgumentParser(prog="python -m e2e.client", description=__doc__.partition("\n")[0])
    parser.add_argument("--launches", type=int, default=LAUNCHES, help="(default: %(default)s)")
    parser.add_argument("--pods", type=int, default=PODS, help="that are read (default: %(default)s)")
    parser.add_argument("--lines", type=int, default=LINES, help="of each pod (default: %(default)s)")
    parser.add_argument("--read-logs", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read_logs:
        kubeconfig, namespace, pods, lines = options.read_logs
        with CountedCluster(Path(kubeconfig), namespace) as cluster:
            print(json.dumps(read_logs(cluster, int(pods), int(lines))))
        return 0
    try:
        with tempfile.TemporaryDirectory(prefix="fray-client-") as folder:
            report = _run(options, Path(folder))
    except ClusterError as error:
        _say(f"{type(error).__name__}: {error}")
        return 1
    print(json.dumps(report, indent=2))
    return 0


def _run(options: argparse.Namespace, folder: Path) -> Mapping[str, Any]:
    release = install_release(folder, _say)
    with open_job_namespace(release.kubectl, release) as space:
        _say(f"following {options.pods} pods")
        logs = measure_logs(KUBECONFIG, space.name, options.pods, options.lines)
        _say(f"launching {options.launches} jobs")
        with CountedCluster(KUBECONFIG, space.name) as cluster:
            launched = measure_launches(cluster, options.launches, min(WAITED, options.launches))
    return {"goals": GOALS, "processors": os.cpu_count(), **launched, "logs": logs}


def _count_sockets() -> int:
    return sum(map(_leads_to_socket, Path("/proc/self/fd").iterdir()))


def _leads_to_socket(path: Path) -> bool:
    try:
        return str(path.readlink()).startswith("socket:")
    except OSError:
        return False  # that of the listing itself


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
