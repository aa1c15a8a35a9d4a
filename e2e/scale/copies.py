"""A FrayJob with all that was made for it, and the same under any number of other names. Pure.

What operator, JobSet, scheduler and kubelet would need many minutes for is copied from one job that they
really brought there. The copies are told apart by name, uid and time only. JobSet's controller is told to
leave the copies' JobSets alone, and their pods belong to the JobSet itself: there is no Job between them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fray.vocabulary import API_VERSION, FRAYJOB_KIND, JOBSET_API_VERSION

__all__ = ["Copy", "Original", "build_job"]

Manifest = dict[str, Any]

COPIED_METADATA = ("name", "namespace", "labels", "annotations")
NOBODY = "fray.test/nobody"
"""Who manages the copies' JobSets, so that JobSet's controller doesn't:
https://jobset.sigs.k8s.io/docs/concepts/#jobset-spec"""
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")


@dataclass(frozen=True)
class Original:
    """A FrayJob, its JobSet and its pods, as the server has them."""

    job: Mapping[str, Any]
    jobset: Mapping[str, Any]
    pods: Sequence[Mapping[str, Any]]


def build_job(original: Original, name: str) -> Manifest:
    """The FrayJob called `name`, as its user creates it."""
    whole = {"apiVersion": API_VERSION, "kind": FRAYJOB_KIND, **original.job}
    return _rename(original, {**whole, "status": {}}, {}, name=name)


@dataclass(frozen=True)
class Copy:
    """What there is of the copy `job`, a FrayJob as the server has it."""

    original: Original
    job: Mapping[str, Any]

    def build_status(self) -> Manifest:
        """The status of the FrayJob."""
        status: Manifest = self._rename(self.original.job, {})["status"]
        return status

    def build_jobset(self) -> Manifest:
        """The JobSet with the status that it is to get once it exists."""
        copy = self._rename({"apiVersion": JOBSET_API_VERSION, "kind": "JobSet", **self.original.jobset}, {})
        copy["metadata"]["ownerReferences"] = [_build_owner(self.job, API_VERSION, FRAYJOB_KIND)]
        copy["spec"]["managedBy"] = NOBODY
        return copy

    def build_pods(self, jobset: Mapping[str, Any], *, node: str) -> list[Manifest]:
        """The pods of the JobSet, as the server has that, on `node`; with their statuses."""
        uids = {_uid(self.original.jobset): _uid(jobset)}
        copies = []
        for pod in self.original.pods:
            copy = self._rename({"apiVersion": "v1", "kind": "Pod", **pod}, uids)
            copy["metadata"]["ownerReferences"] = [_build_owner(jobset, JOBSET_API_VERSION, "JobSet")]
            copy["spec"]["nodeName"] = node
            copies.append(copy)
        return copies

    def _rename(self, manifest: Mapping[str, Any], uids: Mapping[str, str]) -> Manifest:
        later = _read_creation(self.job) - _read_creation(self.original.job)
        name, known = self.job["metadata"]["name"], {_uid(self.original.job): _uid(self.job)}
        return _rename(self.original, manifest, {**known, **uids}, name=name, later=later)


def _rename(
    original: Original,
    manifest: Mapping[str, Any],
    uids: Mapping[str, str],
    *,
    name: str,
    later: timedelta = timedelta(),
) -> Manifest:
    """A manifest with other uids, the copy's name and later times, in all places where they stand."""
    metadata = {key: manifest["metadata"][key] for key in COPIED_METADATA if key in manifest["metadata"]}
    text = json.dumps({**manifest, "metadata": metadata})
    for old, new in {str(original.job["metadata"]["name"]): name, **uids}.items():
        text = text.replace(old, new)
    text = _TIME.sub(lambda found: _move(found[0], later), text)
    renamed: Manifest = json.loads(text)
    return renamed


def _move(time: str, later: timedelta) -> str:
    moved = datetime.fromisoformat(time) + later
    # Kubernetes' own kinds have whole seconds; Fray's have milliseconds.
    unit = "milliseconds" if "." in time else "seconds"
    return moved.isoformat(timespec=unit).replace("+00:00", "Z")


def _read_creation(manifest: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(manifest["metadata"]["creationTimestamp"])


def _uid(manifest: Mapping[str, Any]) -> str:
    return str(manifest["metadata"]["uid"])


def _build_owner(owner: Mapping[str, Any], version: str, kind: str) -> Manifest:
    name = owner["metadata"]["name"]
    return {"apiVersion": version, "kind": kind, "name": name, "uid": _uid(owner), "controller": True}
