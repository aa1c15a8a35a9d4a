"""The golden shapes: what FrayJobs become, written down as files that a reader can check.

`tests/golden/<shape>/job.yaml` is written by hand, and where they matter `cluster.yaml`, what the cluster
has, and `settings.yaml`, what its administrator decided. `jobset.yaml` beside them is the first attempt's
JobSet, preceded by the plan's notices as comments, and `worker-job.yaml` the Job of its workers, where it
wants some. `actor.yaml` is a FrayActor, written by hand too, and `jobset.yaml` beside it that of its first
member. `regenerate_golden` writes the others.
"""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import yaml

from fray.kube.resources import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, NODES, TOPOLOGIES
from fray.kube.topology import read_topology
from fray.plan.actor_set import build_actor_slice
from fray.plan.gang_placement import NOTHING_READ, ClusterTopology
from fray.plan.jobset import AttemptPlan, build_attempt
from fray.plan.settings import PlanSettings
from fray.plan.worker_job import build_worker_job
from fray.plan.workers import derive_wanted
from fray.testing.memory import MemoryApi, MemoryServer
from fray.wire.frayactor import FrayActor
from fray.wire.frayjob import FrayJob

__all__ = [
    "BY_HAND",
    "GOLDEN",
    "actor_shapes",
    "build_golden",
    "build_golden_actor",
    "build_golden_workers",
    "read_job",
    "render",
    "render_actor",
    "render_all",
    "shapes",
]

BY_HAND = ("job.yaml", "cluster.yaml", "settings.yaml")
GOLDEN = Path(__file__).parents[2] / "golden"
RESOURCES = {
    "LocalQueue": LOCAL_QUEUES[0],
    "ClusterQueue": CLUSTER_QUEUES[0],
    "ResourceFlavor": FLAVORS[0],
    "Topology": TOPOLOGIES[0],
    "Node": NODES,
}
LONGEST_LINE = 1000
"""Longer values are lists of hosts, of which the ends and a digest tell enough."""


class _Dumper(yaml.SafeDumper):
    """Writes scripts as they are and, in place of aliases, everything where it stands."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    if len(text) > LONGEST_LINE:
        first, *middle, last = text.split(",")
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        text = f"{first},({len(middle)} more),{last} # {len(text)} characters, sha256 {digest}"
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def shapes() -> list[str]:
    """Return the names of all golden shapes."""
    return sorted(path.parent.name for path in GOLDEN.glob("*/job.yaml"))


def actor_shapes() -> list[str]:
    """Return the names of the golden shapes of FrayActors."""
    return sorted(path.parent.name for path in GOLDEN.glob("*/actor.yaml"))


def render_actor(shape: str) -> dict[str, str]:
    """Return the files that are written for the shape of a FrayActor: names and texts."""
    return {"jobset.yaml": _dump(build_golden_actor(shape))}


def build_golden_actor(shape: str) -> dict[str, Any]:
    """Return the JobSet of the first member of a FrayActor's shape."""
    text = (GOLDEN / shape / "actor.yaml").read_text(encoding="utf-8")
    actor = FrayActor.from_manifest(yaml.safe_load(text))
    return build_actor_slice(actor, index=0, attempt=1, settings=PlanSettings())


def read_job(shape: str) -> FrayJob:
    """Return the FrayJob of a shape."""
    return FrayJob.from_manifest(yaml.safe_load((GOLDEN / shape / "job.yaml").read_text(encoding="utf-8")))


def build_golden(shape: str) -> AttemptPlan:
    """Return what the first attempt of a shape becomes on GKE."""
    job = read_job(shape)
    return build_attempt(job, attempt=1, settings=_read_settings(shape), topology=_read_topology(shape, job))


def _read_settings(shape: str) -> PlanSettings:
    decided = GOLDEN / shape / "settings.yaml"
    return PlanSettings(**yaml.safe_load(decided.read_text(encoding="utf-8")) if decided.exists() else {})


def _read_topology(shape: str, job: FrayJob) -> ClusterTopology:
    """Return what is read from a cluster that has the objects of `cluster.yaml`."""
    described = GOLDEN / shape / "cluster.yaml"
    if not described.exists():
        return NOTHING_READ
    server = MemoryServer()
    for manifest in yaml.safe_load_all(described.read_text(encoding="utf-8")):
        server.store(RESOURCES[manifest["kind"]], manifest)
    metadata = job.metadata.model_copy(update={"namespace": "default"})
    return asyncio.run(read_topology(MemoryApi(server), job.model_copy(update={"metadata": metadata})))


def build_golden_workers(shape: str) -> dict[str, Any] | None:
    """Return the first Job of workers of a shape, None for one that wants none."""
    job = read_job(shape)
    wanted = derive_wanted(job.spec)
    if not wanted:
        return None
    settings = _read_settings(shape)
    return build_worker_job(job, attempt=1, generation=1, count=wanted, settings=settings).manifest


def render_all(shape: str) -> dict[str, str]:
    """Return the files that are written for a shape: names and texts."""
    workers = build_golden_workers(shape)
    files = {"jobset.yaml": render(build_golden(shape))}
    return files if workers is None else {**files, "worker-job.yaml": _dump(workers)}


def render(plan: AttemptPlan) -> str:
    """Return the text of `jobset.yaml`."""
    notices = "".join(f"# notice: {notice}\n" for notice in plan.notices)
    return notices + _dump(plan.jobset)


def _dump(manifest: dict[str, Any]) -> str:
    return yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, width=10**6, allow_unicode=True)
