"""The FrayJobs that have not finished, as last seen: what kopf's events and our own writes told.

Finished jobs are not kept: there may be thousands, and nothing is left to do for them.
"""

from __future__ import annotations

from collections.abc import Iterator

from fray.kube.api import Manifest
from fray.vocabulary import ConditionType
from fray_operator.informer import JobKey

__all__ = ["JobStore"]


class JobStore:
    """The newest known manifest of each unfinished FrayJob."""

    def __init__(self) -> None:
        self._jobs: dict[JobKey, Manifest] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[JobKey]:
        return iter(list(self._jobs))

    def get(self, key: JobKey) -> Manifest | None:
        """Return a job's manifest, or None when it has finished or is gone."""
        return self._jobs.get(key)

    def put(self, manifest: Manifest) -> bool:
        """Keep a manifest, or drop it once it has finished; return whether it tells anything new.

        A version that is known, or older than the one known, changes nothing: it is a watch event that was
        overtaken by the answer to our own write.
        """
        metadata = manifest["metadata"]
        key = metadata["namespace"], metadata["name"]
        known = self._jobs.get(key)
        if known is not None and not _is_newer(metadata, known["metadata"]):
            return False
        if _has_finished(manifest) or "deletionTimestamp" in metadata:
            return self._jobs.pop(key, None) is not None
        kept = {name: value for name, value in metadata.items() if name != "managedFields"}
        self._jobs[key] = {**manifest, "metadata": kept}
        return True

    def update(self, manifest: Manifest) -> bool:
        """Keep the answer to our own write; return False when the job was dropped meanwhile."""
        metadata = manifest["metadata"]
        known = self._jobs.get((metadata["namespace"], metadata["name"]))
        if known is None or known["metadata"]["uid"] != metadata["uid"]:
            return False
        self.put(manifest)
        return True

    def discard(self, key: JobKey, *, uid: str) -> None:
        """Drop a job that is gone, but not another one that has taken its name."""
        known = self._jobs.get(key)
        if known is not None and known["metadata"]["uid"] == uid:
            del self._jobs[key]


def _is_newer(new: Manifest, known: Manifest) -> bool:
    """Return whether `new` is a newer version of the same object, or another object.

    Resource versions may be compared as numbers: Kubernetes promises it since 1.35, etcd gives nothing else.
    """
    return new["uid"] != known["uid"] or int(new["resourceVersion"]) > int(known["resourceVersion"])


def _has_finished(manifest: Manifest) -> bool:
    conditions = manifest.get("status", {}).get("conditions", [])
    return any(c["type"] == ConditionType.FINISHED and c["status"] == "True" for c in conditions)
