"""FrayJobs for tests of the plan: changed ones, and any legal one by chance."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from fray.accelerators import (
    generations_by_spelling,
    legal_gpu_counts,
    legal_gpu_types,
    legal_topologies,
    lookup_tpu,
)
from fray.testing import build_frayjob
from fray.wire.frayjob import FrayJob
from fray.wire.status import FrayJobStatus

__all__ = ["any_job", "job_names", "with_spec", "with_status"]

FRAY_VARIABLES = (
    "FRAY_JOB_NAME",
    "FRAY_ATTEMPT",
    "FRAY_SLICE",
    "FRAY_HOST",
    "FRAY_NUM_SLICES",
    "FRAY_ROOT_JOB",
)
OVERRIDDEN = ("JAX_PLATFORMS", "LIBTPU_INIT_ARGS", "RANK", "JOB_INDEX", "TPU_WORKER_ID", "MEGASCALE_PORT")


def with_spec(job: FrayJob, **changes: Any) -> FrayJob:
    """Return the job after its author changed fields of the spec (Python names), as a new generation."""
    spec = job.spec.model_copy(update=changes)
    metadata = job.metadata.model_copy(update={"generation": (job.metadata.generation or 0) + 1})
    return job.model_copy(update={"spec": spec, "metadata": metadata})


def with_status(job: FrayJob, status: FrayJobStatus) -> FrayJob:
    """Return the job as it is read after the status was written: through JSON."""
    return job.model_copy(update={"status": FrayJobStatus.from_manifest(status.to_manifest())})


# --- any legal FrayJob ---------------------------------------------------------------------------------

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def job_names() -> st.SearchStrategy[str]:
    """Names of FrayJobs: DNS labels of up to 63 characters."""
    middle = st.text(_LETTERS + "-", max_size=61)
    edge = st.sampled_from(_LETTERS)
    return st.one_of(
        edge, st.tuples(edge, middle, edge).map("".join), st.text(_LETTERS, min_size=63, max_size=63)
    )


@cache
def _tpu_types() -> tuple[str, ...]:
    return tuple(
        f"{spelling}-{rest}"
        for spelling, generation in generations_by_spelling().items()
        for rest in (*generation.sizes, *generation.topologies)
    )


@st.composite
def _tpu(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(_tpu_types()))
    topology = draw(st.none() | st.sampled_from(legal_topologies(kind)))
    found = lookup_tpu(kind, topology=topology)
    tpu: dict[str, Any] = {"type": kind}
    if topology is not None:
        tpu["topology"] = topology
    if found.needs_accelerator_count and draw(st.booleans()):
        tpu["chipsPerHost"] = draw(st.sampled_from([4, 8]))
    return tpu


@st.composite
def _gpu(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(legal_gpu_types()))
    return {"type": kind, "count": draw(st.sampled_from(legal_gpu_counts(kind)))}


_QUANTITIES = st.sampled_from(["500m", 8, "32Gi", "1e3", "1000", "9E", "0.5"])
_VALUES = st.one_of(
    st.sampled_from(["", "plain", "$$(NOT)", "$(UNKNOWN)", "a$", "$(", "ä"]),
    st.sampled_from(FRAY_VARIABLES).map(lambda name: f"<$({name})>"),
)


@st.composite
def _variable(draw: st.DrawFn, name: str) -> dict[str, Any]:
    if draw(st.integers(0, 4)) == 0:
        return {"name": name, "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    return {"name": name, "value": draw(_VALUES)}


@st.composite
def _variables(draw: st.DrawFn) -> list[dict[str, Any]]:
    mine = st.sampled_from(["MY_A", "MY_B", "my.c", "FRAY_OWN", *FRAY_VARIABLES, *OVERRIDDEN])
    names = draw(st.lists(mine, unique=True, max_size=5))
    return [draw(_variable(name)) for name in names]


_OVERLAYS: dict[str, Any] = {
    "priorityClassName": "high",
    "restartPolicy": "Never",
    "terminationGracePeriodSeconds": 600,
    "serviceAccountName": None,
    "hostNetwork": True,
    "nodeSelector": {"team": "research", "cloud.google.com/gke-tpu-topology": None},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "volumes": [{"name": "shm", "hostPath": {"path": "/dev/shm"}}, {"name": "x", "emptyDir": {}}],
    "initContainers": [{"name": "init", "image": "i", "env": [{"name": "FRAY_HOST", "value": "9"}]}],
}


@st.composite
def _overlay(draw: st.DrawFn) -> dict[str, Any] | None:
    kind = draw(st.sampled_from(["none", "metadata", "spec"]))
    if kind == "none":
        return None
    if kind == "metadata":
        return {"metadata": {"labels": {"fray.dev/job": "other", "team": "x"}, "annotations": {"a/b": "c"}}}
    keys = draw(st.lists(st.sampled_from(sorted(_OVERLAYS)), unique=True, max_size=4))
    spec = {key: _OVERLAYS[key] for key in keys}
    if draw(st.booleans()):
        env = draw(st.none() | _variables())
        main = {"name": "main", "env": env, "resources": None, "securityContext": {"privileged": False}}
        spec["containers"] = draw(st.permutations([main, {"name": "sidecar", "image": "s"}]))
    return {"spec": spec}


@st.composite
def _placement(draw: st.DrawFn) -> dict[str, Any]:
    preemptible = draw(st.booleans())
    placement: dict[str, Any] = {"preemptible": preemptible}
    if preemptible and draw(st.booleans()):
        placement["spot"] = "Required"
    elif draw(st.booleans()):
        placement["flexStart"] = draw(st.sampled_from(["Required", "Queued"]))
    elif draw(st.booleans()):
        placement["reservation"] = draw(st.sampled_from(["block", "projects/p/reservations/block"]))
    further = {
        "computeClass": "cheap",
        "nodePool": "pool",
        "zones": ["z-a", "z-b"],
        "regions": ["r"],
        "nodeSelector": {"team": "x", "cloud.google.com/gke-tpu-accelerator": "other"},
        "tolerations": [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}],
    }
    chosen = draw(st.lists(st.sampled_from(sorted(further)), unique=True, max_size=3))
    return placement | {key: further[key] for key in chosen}


@st.composite
def any_job(draw: st.DrawFn) -> FrayJob:
    """Any FrayJob that the API server would accept, from the smallest to 10,000 slices of 2,304 hosts."""
    resources: dict[str, Any] = {}
    replicas = draw(st.sampled_from([1, 2, 3, 10, 11, 100, 10000]))
    kind = draw(st.sampled_from(["tpu", "gpu", "cpu"]))
    if kind == "tpu":
        resources["tpu"] = draw(_tpu())
        if resources["tpu"]["type"].startswith("v3-"):
            replicas = 1
    elif kind == "gpu":
        resources["gpu"] = draw(_gpu())
    for name in ("cpu", "memory", "disk"):
        if draw(st.integers(0, 2)) == 0:
            resources[name] = draw(_QUANTITIES)
    environment: dict[str, Any] = {"env": draw(_variables())}
    if draw(st.integers(0, 2)) == 0:
        environment["setup"] = draw(st.lists(st.text("$()ab \\\n'\"#{}", min_size=1, max_size=8), max_size=3))
    if draw(st.integers(0, 3)) == 0:
        environment["workspace"] = {"secretName": "code", "sha256": "ab" * 32}
        environment["cacheVolume"] = "cache"
    spec: dict[str, Any] = {
        "replicas": replicas,
        "resources": resources,
        "environment": environment,
        "placement": draw(_placement()),
    }
    if draw(st.integers(0, 3)) == 0:
        spec["ports"] = [{"name": "http-api", "port": 80}, {"name": "x1", "port": 65535}]
    if draw(st.integers(0, 3)) == 0:
        spec["entrypoint"] = {"callable": {"secretName": "p", "sha256": "ab" * 32, "python": "3.12"}}
    if draw(st.integers(0, 3)) == 0:
        spec["queue"] = {"name": "q", "priorityClass": "high"}
        spec["parent"] = {"name": "mother", "root": "grandmother"}
    overlay = draw(_overlay())
    if overlay is not None:
        spec["podTemplate"] = overlay
    metadata = {"namespace": "ml", "uid": "u-1"} if draw(st.booleans()) else {}
    return build_frayjob(draw(job_names()), metadata=metadata, **spec)
