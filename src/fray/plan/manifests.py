"""How objects of Kubernetes are read, labelled and owned, and why a part of one is as it is.

Reading: a field that is missing, or null, is as good as an empty one. A `Fact` is the material of
`fray explain`: it is made where the value is made, so that the explanation can't drift from the value, and it
must not influence anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fray.vocabulary import (
    API_VERSION,
    FRAYJOB_KIND,
    LABEL_ATTEMPT,
    LABEL_JOB,
    LABEL_JOB_UID,
    LABEL_MANAGED_BY,
    LABEL_ROLE,
    MANAGED_BY,
)
from fray.wire.frayjob import FrayJob, ObjectMeta

__all__ = [
    "Fact",
    "Manifest",
    "build_controller",
    "build_labels",
    "build_owner_references",
    "find_condition",
    "has_ended",
    "list_containers",
    "read_attempt_label",
    "read_label",
]

Manifest = Mapping[str, Any]
"""An object, or a part of one, as it is on the API server."""


def find_condition(manifest: Manifest, *types: str, status: str | None = None) -> Manifest:
    """Return an object's first condition of one of these types, and of this status; empty if it has none."""
    for condition in (manifest.get("status") or {}).get("conditions") or []:
        if condition.get("type") in types and status in (None, condition.get("status")):
            found: Manifest = condition
            return found
    return {}


def read_label(manifest: Manifest, label: str) -> str | None:
    """Return what a label of an object says; None where it has none of that name."""
    found: str | None = (manifest["metadata"].get("labels") or {}).get(label)
    return found


def has_ended(pod: Manifest) -> bool:
    """Return whether all processes of a pod have ended; those of one that is being deleted may run."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def list_containers(pod: Manifest) -> list[Manifest]:
    """Return what a pod's status tells of its containers, init containers first."""
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def build_labels(job: FrayJob, *, role: str, attempt: int | None = None) -> dict[str, str]:
    """Return the labels of an object, and of its pods; without an `attempt` it serves all of them."""
    labels = {
        LABEL_JOB: job.metadata.name,
        **({} if attempt is None else {LABEL_ATTEMPT: str(attempt)}),
        LABEL_ROLE: str(role),
        LABEL_MANAGED_BY: MANAGED_BY,
    }
    return labels if job.metadata.uid is None else {**labels, LABEL_JOB_UID: job.metadata.uid}


def read_attempt_label(manifest: Manifest) -> int:
    """Return the number of the attempt that an object says it is of, 0 when it says none."""
    label = read_label(manifest, LABEL_ATTEMPT) or ""
    return int(label) if label.isascii() and label.isdecimal() else 0


def build_owner_references(job: FrayJob) -> dict[str, Any]:
    """Return the metadata by which a job controls an object; none for a job that isn't in a cluster."""
    if job.metadata.uid is None:
        return {}
    return {"ownerReferences": [build_controller(API_VERSION, FRAYJOB_KIND, job.metadata)]}


def build_controller(api_version: str, kind: str, owner: ObjectMeta) -> dict[str, Any]:
    """Return the reference by which an object controls another one."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


@dataclass(frozen=True)
class Fact:
    """One value of a manifest and the reason behind it.

    `subject` is what it is about (`env TPU_WORKER_ID`, `node selector cloud.google.com/gke-spot`),
    `value` its printed value, `because` one sentence, `source` where an outside fact can be read.
    """

    subject: str
    value: str
    because: str
    source: str = ""
