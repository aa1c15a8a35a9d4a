"""How soon a job has a thousand worker pods, and whether its status says so. The pods imitate running."""

from __future__ import annotations

import time
from typing import Any

from e2e.cluster.command import await_condition
from e2e.job_namespace import JobNamespace, open_job_namespace
from e2e.scale.cluster import Cluster
from e2e.scale.measure import slowed
from e2e.scale.workload import PLACEMENT, RUNS_ON, build_frayjob
from fray.vocabulary import LABEL_ROLE, Role

__all__ = ["measure_workers"]

NAME = "many-workers"
GOAL_SECONDS = 60.0
LIMIT_SECONDS = 600.0
SMALL = {"cpu": "100m", "memory": "64Mi"}


def measure_workers(cluster: Cluster, count: int) -> dict[str, Any]:
    """Ask a running job for `count` workers. Raises ClusterError."""
    with open_job_namespace(cluster.release.kubectl, cluster.release) as space:
        workers = {"replicas": 0, "resources": SMALL, "placement": PLACEMENT}
        space.submit(build_frayjob(NAME, workers=workers, resources=SMALL, podTemplate=RUNS_ON))
        space.await_job(NAME, "condition=Running")
        cluster.say(f"asking for {count} workers")
        began = time.monotonic()
        space.kubectl("scale", f"frayjob/{NAME}", f"--replicas={count}")
        await_condition(
            f"{count} worker pods exist",
            slowed(lambda: _count(cluster, space) >= count),
            timeout=LIMIT_SECONDS,
        )
        created = time.monotonic() - began
        told: dict[str, Any] = {}

        def is_told() -> bool:
            told.update(space.workers(NAME))
            return told.get("desired") == count

        await_condition("the status tells of them", is_told, timeout=LIMIT_SECONDS, details=lambda: str(told))
    return {
        "workers": count,
        "seconds_until_created": round(created, 1),
        "goal_seconds": GOAL_SECONDS,
        "status": {name: told.get(name) for name in ("desired", "ready", "draining")},
    }


def _count(cluster: Cluster, space: JobNamespace) -> int:
    """How many worker pods there are."""
    path = f"/api/v1/namespaces/{space.name}/pods"
    found = cluster.api.get(path, labelSelector=f"{LABEL_ROLE}={Role.WORKER}").body["items"]
    return len(found)
