"""What the leading operator has used: memory and time from its process, requests from its own metrics.

Requests of kopf, which watches FrayJobs, are not among them: it lists once and then watches.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from e2e.cluster.api import Api, ApiError
from e2e.cluster.errors import NotReadyError
from e2e.release import OPERATOR, Release

__all__ = ["Counters", "observe_counters"]

_SAMPLE = re.compile(r"^fray_api_requests_total\{(?P<labels>[^}]*)\} (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_MEMORY = re.compile(r"^(VmRSS|VmHWM):\s+(\d+) kB$", re.MULTILINE)
_PORT = 8080


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


def observe_counters(release: Release, api: Api) -> Counters:
    """The counters of the operator that leads now. Raises NotReadyError, ApiError, CommandError."""
    system = release.kubectl.within(release.namespace)
    for pod in system.items("pods", f"--selector={OPERATOR}"):
        name = pod["metadata"]["name"]
        answer = api.get(f"/api/v1/namespaces/{release.namespace}/pods/{name}:{_PORT}/proxy/metrics")
        if not answer.ok:
            raise ApiError(f"the metrics of {name} can't be read", answer)
        if "fray_leading 1.0" in answer.body:
            told = system("exec", name, "--", "cat", "/proc/1/status", "/proc/1/stat")
            memory = dict(_MEMORY.findall(told))
            # proc_pid_stat(5): utime and stime, counted behind the name, which may hold blanks.
            fields = told.rpartition(")")[2].split()
            return Counters(
                rss_mib=int(memory["VmRSS"]) / 1024,
                peak_rss_mib=int(memory["VmHWM"]) / 1024,
                cpu_seconds=(int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
                requests=parse_requests(answer.body),
            )
    raise NotReadyError("an operator leads")


def parse_requests(metrics: str) -> dict[str, int]:
    """The counts of requests in Prometheus' text format."""
    counts: dict[str, int] = {}
    for sample in _SAMPLE.finditer(metrics):
        labels = dict(_LABEL.findall(sample["labels"]))
        counts[f"{labels['method']} {labels['resource']} {labels['status']}"] = int(float(sample["value"]))
    return counts
