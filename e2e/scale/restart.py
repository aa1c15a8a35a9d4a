"""Kill an operator that has thousands of FrayJobs to look after, and measure the one that follows it.

The jobs are copies of one that really got there (`copies`), written while no operator runs. One is then
started over them, which shows that the copies are what it would have made: it has nothing to write. It is
killed, and its successor measured from that moment.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from e2e.cluster import kubelets, provider
from e2e.cluster.api import ApiError
from e2e.cluster.command import await_condition
from e2e.cluster.errors import NotReadyError
from e2e.cluster.keep_alive import KeepAliveApi
from e2e.job_namespace import JobNamespace, open_job_namespace
from e2e.release import OPERATOR
from e2e.scale.cluster import Cluster
from e2e.scale.copies import Original
from e2e.scale.counters import Progress, observe_counters, observe_progress, observe_server_writes
from e2e.scale.population import empty, populate
from e2e.scale.workload import RUNS_ON, build_frayjob
from fray.kube.resources import FRAYJOBS, JOBSETS

__all__ = ["measure_restart"]

ORIGINAL = "scale-original"
LAST = "zz-last"
"""A live job that the operator is told of after all others: lists are in order of names."""
PROGRAM = "fray_operator"
REPLICAS = 2
END_SECONDS = 60.0
BEGIN_SECONDS = 120.0
CONVERGE_SECONDS = 900.0
SETTLE_SECONDS = 10.0
"""After which what was needed only to begin has been given back."""


def measure_restart(cluster: Cluster, count: int, *, finished: bool) -> dict[str, Any]:
    """Measure a restart with `count` jobs that have finished, or else live. Raises ClusterError."""
    with open_job_namespace(cluster.release.kubectl, cluster.release) as space:
        original = _make_original(space, finished=finished)
        with _one_operator(cluster) as start_operator:
            try:
                names = [f"copy-{number:05}" for number in range(count - 1)]
                cluster.say(f"writing {count - 1} copies of a {'finished' if finished else 'live'} job")
                begun = time.monotonic()
                populate(cluster.api, original, names, nodes=cluster.nodes)
                written = time.monotonic() - begun
                live = 1 if finished else count + 1
                before = observe_server_writes(cluster.api)
                begun = time.monotonic()
                pod = start_operator()
                first = _measure_start(cluster, pod, live, begun=begun)
                first["server_writes"] = dict(observe_server_writes(cluster.api) - before)
                before = observe_server_writes(cluster.api)
                cluster.say("killing the operator")
                begun = _kill(pod)
                second = _measure_start(cluster, pod, live, begun=begun)
                second["server_writes"] = dict(observe_server_writes(cluster.api) - before)
                cluster.say(f"restarted: {json.dumps(second)}")
            finally:
                cluster.say("removing the jobs")
                for resource in (FRAYJOBS, JOBSETS):
                    empty(cluster.api, resource.path(namespace=space.name))
                empty(cluster.api, f"/api/v1/namespaces/{space.name}/pods")
    return {"jobs": count, "seconds_to_write": round(written, 1), "first": first, "restarted": second}


def _make_original(space: JobNamespace, *, finished: bool) -> Original:
    """Have the job that is to be copied, and the live one that is the last, made by all whose work it is."""
    space.submit(build_frayjob(ORIGINAL, **({} if finished else {"podTemplate": RUNS_ON})))
    space.submit(build_frayjob(LAST, podTemplate=RUNS_ON))
    space.await_job(ORIGINAL, "condition=Succeeded" if finished else "condition=Running")
    space.await_job(LAST, "condition=Running")
    (jobset,) = space.kubectl.items("jobsets", f"--field-selector=metadata.name={ORIGINAL}-a1")
    return Original(space.job(ORIGINAL), jobset, space.pods(ORIGINAL))


@contextmanager
def _one_operator(cluster: Cluster) -> Iterator[Callable[[], dict[str, Any]]]:
    """Take all operators away; yields what starts one and returns its pod. In the end all are back."""
    release = cluster.release
    system = release.kubectl.within(release.namespace)
    scale = ("scale", f"deployment/{release.deployment}")

    def start() -> dict[str, Any]:
        system(*scale, "--replicas=1")
        await_condition("the operator is ready", release.is_ready, timeout=BEGIN_SECONDS)
        (pod,) = system.items("pods", f"--selector={OPERATOR}")
        return pod

    try:
        system(*scale, "--replicas=0")
        system.wait("pods", "delete", seconds=END_SECONDS, selector=OPERATOR)
        yield start
    finally:
        system(*scale, f"--replicas={REPLICAS}")
        await_condition("the operator is ready", release.is_ready, timeout=BEGIN_SECONDS)


def _kill(pod: dict[str, Any]) -> float:
    """End the process of an operator at once, and return when; its kubelet starts another in the same pod."""
    host = provider.current_layout().host_named(pod["spec"]["nodeName"])
    begun = time.monotonic()
    if not kubelets.kill_in_pod(host, pod["metadata"]["uid"], PROGRAM):
        raise NotReadyError("the operator has a process", pod["metadata"]["name"])
    return begun


def _measure_start(cluster: Cluster, pod: dict[str, Any], live: int, *, begun: float) -> dict[str, Any]:
    """Measure an operator from `begun` until it has looked at all jobs, and what it needed for that."""
    name = pod["metadata"]["name"]
    api = KeepAliveApi(cluster.api)  # it asks often, and must not keep the machine busy by it
    leading: list[float] = []
    last: list[Progress] = []

    def has_converged() -> bool:
        try:
            last.append(observe_progress(cluster.release, api, name))
        except (ApiError, OSError, http.client.HTTPException):
            return False  # it isn't there yet
        if last[-1].leading and not leading:
            leading.append(time.monotonic() - begun)
        return last[-1].has_seen_all(live)

    await_condition(
        "the operator has looked at all jobs",
        has_converged,
        timeout=CONVERGE_SECONDS,
        details=lambda: str(last[-1:]),
    )
    api.close()
    converged = time.monotonic() - begun
    time.sleep(SETTLE_SECONDS)
    counters = observe_counters(cluster.release, cluster.api)
    return {
        "seconds_until_leading": round(leading[0], 1),
        "seconds_until_converged": round(converged, 1),
        "rss_mib": round(counters.rss_mib, 1),
        "peak_rss_mib": round(counters.peak_rss_mib, 1),
        "cpu_seconds": round(counters.cpu_seconds, 1),
        "passes": observe_progress(cluster.release, cluster.api, name).passes,
        "requests": dict(sorted(counters.requests.items())),
        "writes": counters.writes,
    }
