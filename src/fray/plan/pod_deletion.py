"""Whether a host ended because its pod was deleted, by `kubectl delete pod` for example.

Such a pod gets no condition DisruptionTarget: only its deletion, which came before its end, tells. Who
deleted it doesn't show: the Job controller deletes the peers of a pod that failed in just this way, so
what follows for the gang is `verdict`'s to say.
"""

from __future__ import annotations

from datetime import timedelta

from fray.plan.manifests import Manifest
from fray.plan.observation import KILL_CODES, OOM_KILLED, Deletion
from fray.plan.timestamps import CLOCK_SKEW, parse_time

__all__ = ["is_ended_by_deletion", "read_deletion"]


def is_ended_by_deletion(pod: Manifest, ended: Manifest) -> bool:
    """Return whether a pod that has failed did so because it was deleted.

    `ended` is the state of the container that failed, empty where none has ended. A container that was
    killed ended by the deletion unless that came long after; one that exited by another code, as programs
    do that catch SIGTERM, only when it did so after it. A pod that the kubelet refused, evicted or ended for
    its deadline says so, and memory that ran out is no deletion either.
    """
    deletion = read_deletion(pod["metadata"])
    if deletion is None or pod.get("status", {}).get("reason"):
        return False
    if not ended:
        return True
    if ended.get("reason") == OOM_KILLED or not ended.get("finishedAt"):
        return False
    finished = parse_time(ended["finishedAt"])
    killed = ended.get("exitCode") in KILL_CODES
    return finished >= deletion.asked - CLOCK_SKEW if killed else finished > deletion.asked


def read_deletion(metadata: Manifest) -> Deletion | None:
    """Return since when a pod is being deleted, None while it isn't: its timestamp is when its time is up.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/
    """
    deleted = metadata.get("deletionTimestamp")
    if deleted is None:
        return None
    due = parse_time(deleted)
    return Deletion(due - timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0), due)
