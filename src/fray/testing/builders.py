"""Builders of FrayJobs, pods and JobSets, for tests of programs that read what Kubernetes returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from fray.vocabulary import (
    API_VERSION,
    CONTAINER,
    FRAYJOB_KIND,
    LABEL_ATTEMPT,
    LABEL_COMPLETION_INDEX,
    LABEL_JOB,
    LABEL_JOB_INDEX,
    LABEL_JOB_UID,
    LABEL_JOBSET_NAME,
)
from fray.wire.frayjob import FrayJob

__all__ = [
    "MOMENT",
    "build_disruption_mark",
    "build_end",
    "build_frayjob",
    "build_jobset",
    "build_pod",
    "exited",
    "running",
    "waiting",
]

Manifest = dict[str, Any]

MOMENT: Final = "2026-01-31T12:00:00Z"
"""When things happen, unless another moment is given."""


def build_frayjob(
    name: str = "train", *, metadata: Mapping[str, Any] | None = None, status: Any = None, **spec: Any
) -> FrayJob:
    """Return a FrayJob of a plain command on one CPU host.

    Parameters: further `metadata`; `status` as a manifest; fields of the `spec` by their names in a manifest.

    Raises `pydantic.ValidationError` for values that no FrayJob has.
    """
    manifest = {
        "apiVersion": API_VERSION,
        "kind": FRAYJOB_KIND,
        "metadata": {"name": name, "generation": 1, **(metadata or {})},
        "spec": {"entrypoint": {"command": ["python", "-m", "train"]}, **spec},
    }
    return FrayJob.from_manifest(manifest if status is None else manifest | {"status": status})


def build_end(
    how: str = "Succeeded",
    reason: str = "Completed",
    message: str = "",
    *,
    at: str = MOMENT,
    attempt: Mapping[str, Any] | None = None,
) -> Manifest:
    """Return the status of a FrayJob that has ended.

    Parameters: `how`: Succeeded, Failed or Stopped; the `reason` of its end, as docs/failures.md has
    it, and the `message`; when it ended (`at`); what it says of its last `attempt`.
    """
    true = {"status": "True", "reason": reason, "message": message, "lastTransitionTime": at}
    conditions = [{"type": kind, **true} for kind in (how, "Finished")]
    attempts = {"attempts": [{"number": 1, **attempt}]} if attempt else {}
    return {"phase": how, "conditions": conditions, "completionTime": at, **attempts}


def running(since: str = MOMENT) -> Manifest:
    """Return the state of a container that runs."""
    return {"running": {"startedAt": since}}


def waiting(reason: str = "ContainerCreating", message: str = "") -> Manifest:
    """Return the state of a container that hasn't started."""
    return {"waiting": {"reason": reason} | ({"message": message} if message else {})}


def exited(code: int, *, at: str = MOMENT, **more: Any) -> Manifest:
    """Return the state of a container that ended; `more`: its `reason`, `message` or `startedAt`."""
    reason = "Completed" if code == 0 else "Error"
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at, **more}}


def build_disruption_mark(
    reason: str, message: str = "", *, at: str = MOMENT, status: str = "True"
) -> Manifest:
    """Return the condition DisruptionTarget, by which Kubernetes marks pods that it takes away."""
    condition = {"type": "DisruptionTarget", "status": status, "lastTransitionTime": at, "reason": reason}
    return condition | ({"message": message} if message else {})


def build_jobset(
    name: str = "train-a1", *, end: str = "", suspended: bool = False, labels: Mapping[str, str] | None = None
) -> Manifest:
    """Return the JobSet of an attempt, as far as Fray reads it; `end`: Failed or Completed."""
    metadata = {"name": name, "labels": dict(labels or {})}
    ended = [{"type": end, "status": "True", "lastTransitionTime": MOMENT}] if end else []
    return {"metadata": metadata, "spec": {"suspend": suspended}, "status": {"conditions": ended}}


def build_pod(  # noqa: PLR0913 - a pod has many parts, and tests of one of them name that one
    rank: int = 0,
    phase: str = "Running",
    state: Manifest | None = None,
    *,
    name: str = "",
    job: str = "train",
    job_uid: str = "",
    attempt: int = 1,
    hosts: int = 0,
    created: str = MOMENT,
    deleted: str | None = None,
    node: str = "",
    init: Manifest | None = None,
    marks: Iterable[Manifest] = (),
    spec: Mapping[str, Any] | None = None,
    **status: Any,
) -> Manifest:
    """Return the pod of a rank of an attempt.

    Parameters: the `phase` and the `state` of its main container (None: the kubelet reported none); `name`
    (else that of its rank); the `job`, by name and uid, and the `attempt` that it is of; `hosts` of a slice,
    where a gang has several slices; when it was `created`, and when its time is up where it was `deleted`,
    which is 30 s after that was asked; the `node` that it is on; the state of its `init` container;
    conditions, as `marks`; further parts of its `spec` and its `status`.
    """
    slice_index, host = divmod(rank, hosts) if hosts else (0, rank)
    labels = {
        LABEL_JOB: job,
        LABEL_ATTEMPT: str(attempt),
        LABEL_JOBSET_NAME: f"{job}-a{attempt}",
        LABEL_JOB_INDEX: str(slice_index),
        LABEL_COMPLETION_INDEX: str(host),
    }
    if job_uid:
        labels[LABEL_JOB_UID] = job_uid
    metadata: Manifest = {"name": name or f"pod-{rank}", "labels": labels, "creationTimestamp": created}
    if deleted is not None:
        metadata |= {"deletionTimestamp": deleted, "deletionGracePeriodSeconds": 30}
    described: Manifest = {"phase": phase, "conditions": list(marks)}
    if state is not None:
        described["containerStatuses"] = [{"name": CONTAINER, "image": "train:1", "state": state}]
    if init is not None:
        described["initContainerStatuses"] = [{"name": "fetch", "image": "train:1", "state": init}]
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": CONTAINER}], **({"nodeName": node} if node else {}), **(spec or {})},
        "status": {**described, **status},
    }
