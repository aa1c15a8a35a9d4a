"""What the leading operator has used: memory and time from its process, the rest from its own metrics.

Requests of kopf, which watches FrayJobs, are not among them: it lists once and then watches. Writes to
FrayJobs and JobSets, from all clients, are counted by the API server too.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from e2e.cluster.api import Api, ApiError
from e2e.cluster.errors import NotReadyError
from e2e.release import OPERATOR, Release
from fray.kube.resources import FRAYJOBS, JOBSETS

__all__ = ["Counters", "Progress", "observe_counters", "observe_progress", "observe_server_writes"]

_SAMPLE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_MEMORY = re.compile(r"^(VmRSS|VmHWM):\s+(\d+) kB$", re.MULTILINE)
_PORT = 8080
_READS = frozenset({"GET", "LIST", "WATCH"})
_GROUPS = frozenset({FRAYJOBS.group, JOBSETS.group})
_LEASES = "leases."


@dataclass(frozen=True)
class Counters:
    """Of the leader since its start; `requests` are counted by "METHOD resource status"."""

    rss_mib: float
    peak_rss_mib: float
    cpu_seconds: float
    requests: Mapping[str, int]

    def since(self, before: Counters) -> dict[str, int]:
        """Requests that came after those of `before`."""
        grown = {what: count - before.requests.get(what, 0) for what, count in self.requests.items()}
        return {what: count for what, count in sorted(grown.items()) if count}

    @property
    def writes(self) -> dict[str, int]:
        """Those of the requests that write, but for the leader's Lease."""
        return {
            what: count
            for what, count in self.requests.items()
            if what.split()[0] not in _READS and not what.split()[1].startswith(_LEASES)
        }


@dataclass(frozen=True)
class Progress:
    """How far an operator has got since its start: its passes over FrayJobs, and what is left to look at."""

    leading: bool
    unfinished: int
    queued: int
    passes: Mapping[str, int]
    """By outcome."""

    def has_seen_all(self, unfinished: int) -> bool:
        """Whether it leads, knows so many unfinished FrayJobs, and has looked at each of them.

        A job that it gets to know is due at once, so each has had its pass when none is due any more.
        """
        known = self.leading and self.unfinished == unfinished
        return known and self.queued == 0 and sum(self.passes.values()) >= unfinished


def observe_counters(release: Release, api: Api) -> Counters:
    """The counters of the operator that leads now. Raises NotReadyError, ApiError, CommandError."""
    system = release.kubectl.within(release.namespace)
    for pod in system.items("pods", f"--selector={OPERATOR}"):
        name = pod["metadata"]["name"]
        metrics = _read_metrics(api, release.namespace, name)
        if parse_progress(metrics).leading:
            told = system("exec", name, "--", "cat", "/proc/1/status", "/proc/1/stat")
            memory = dict(_MEMORY.findall(told))
            # proc_pid_stat(5): utime and stime, counted behind the name, which may hold blanks.
            fields = told.rpartition(")")[2].split()
            return Counters(
                rss_mib=int(memory["VmRSS"]) / 1024,
                peak_rss_mib=int(memory["VmHWM"]) / 1024,
                cpu_seconds=(int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
                requests=parse_requests(metrics),
            )
    raise NotReadyError("an operator leads")


def observe_progress(release: Release, api: Api, pod: str) -> Progress:
    """How far the operator in `pod` has got. Raises ApiError when it doesn't answer."""
    return parse_progress(_read_metrics(api, release.namespace, pod))


def observe_server_writes(api: Api) -> Counter[str]:
    """How often anybody wrote to FrayJobs and JobSets since the API server's start, by "VERB resource".

    Raises ApiError.
    """
    answer = api.get("/metrics")
    if not answer.ok:
        raise ApiError("the API server's metrics can't be read", answer)
    return parse_server_writes(answer.body)


def parse_requests(metrics: str) -> dict[str, int]:
    """The operator's requests in its metrics, by "METHOD resource status"."""
    return {
        f"{labels['method']} {labels['resource']} {labels['status']}": count
        for labels, count in _find(metrics, "fray_api_requests_total")
    }


def parse_progress(metrics: str) -> Progress:
    """How far an operator has got, by its metrics."""

    def total(name: str) -> int:
        return sum(count for _, count in _find(metrics, name))

    passes = Counter[str]()
    for labels, count in _find(metrics, "fray_reconciles_total"):
        passes[labels["outcome"]] += count
    return Progress(
        leading=total("fray_leading") == 1,
        unfinished=total("fray_unfinished_objects"),
        queued=total("fray_queued_objects"),
        passes=passes,
    )


def parse_server_writes(metrics: str) -> Counter[str]:
    """Writes to FrayJobs and JobSets in an API server's metrics, by "VERB resource"; refused ones too."""
    counts: Counter[str] = Counter()
    for labels, count in _find(metrics, "apiserver_request_total"):
        if labels["group"] in _GROUPS and labels["verb"] not in _READS:
            part = f"/{labels['subresource']}" if labels["subresource"] else ""
            counts[f"{labels['verb']} {labels['resource']}{part}"] += count
    return counts


def _find(metrics: str, name: str) -> Iterator[tuple[dict[str, str], int]]:
    """Labels and value of each sample of this name in Prometheus' text format."""
    for sample in _SAMPLE.finditer(metrics):
        if sample["name"] == name:
            yield dict(_LABEL.findall(sample["labels"] or "")), int(float(sample["value"]))


def _read_metrics(api: Api, namespace: str, pod: str) -> str:
    answer = api.get(f"/api/v1/namespaces/{namespace}/pods/{pod}:{_PORT}/proxy/metrics")
    if not answer.ok:
        raise ApiError(f"the metrics of {pod} can't be read", answer)
    return str(answer.body)
