"""`python -m e2e.log_reader KUBECONFIG NAMESPACE JOB`: what a program takes that only follows a job.

Prints JSON, for `e2e.client`. It imports nothing that a user's program wouldn't: its memory is measured.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

from fray.cluster import JobId
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes import KubernetesCluster
from fray.cluster.kubernetes.access import Access
from fray.kube.client import KubernetesApi
from fray.kube.configuration import load_configuration

__all__ = ["CountedCluster"]


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
            configuration = await load_configuration(kubeconfig=str(kubeconfig))
            configuration.connection_pool_maxsize = 0
            self.api = api = CountingApi(configuration, on_answer=self._count)
            return Access(api, str(configuration.host), namespace, api.close)

        super().__init__(KubernetesSpec(namespace=namespace), environ={}, open_access=open_access)

    def _count(self, method: str, resource: Any, _status: int) -> None:
        self.requests[f"{method} {resource.plural}"] += 1


def read_logs(cluster: CountedCluster, job: JobId) -> dict[str, Any]:
    """Follow a job, and return what that took of this very process."""
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
    deque(cluster.logs(job), maxlen=0)  # once again, by what reads each byte once
    return {
        "lines": count,
        "text_bytes": size,
        "peak_mib": round(int(peak[1]) / 1024, 1),
        "read_bytes_for_each": round(followed / max(cluster.api.log_bytes, 1), 4),
    }


if __name__ == "__main__":
    with CountedCluster(Path(sys.argv[1]), sys.argv[2]) as cluster:
        print(json.dumps(read_logs(cluster, JobId(sys.argv[3]))))
