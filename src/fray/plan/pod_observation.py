"""A gang as seen through its pods: from pod manifests to what decisions need.

Pods say where they belong by the labels that JobSet and the Job controller put on them. Fetching them
is the caller's; why pods wait is `scheduling`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from fray.plan.gang import Gang, GangKind
from fray.plan.observation import START_FAILED, GangObservation, HostObservation, HostPhase, Waiting
from fray.plan.timestamps import parse_time
from fray.vocabulary import CONTAINER, LABEL_COMPLETION_INDEX, LABEL_JOB_INDEX

__all__ = ["derive_gang_observation", "is_ending", "is_jobset_finished"]

START_REASONS = frozenset({"StartError", "ContainerCannotRun"})
"""Container reasons of the kubelet when the runtime could not start the command."""
LOG_LINES = 20

Manifest = Mapping[str, Any]


def is_jobset_finished(jobset: Manifest) -> str | None:
    """Return `Completed` or `Failed` for a JobSet that has ended, else None."""
    for condition in jobset.get("status", {}).get("conditions", []):
        if condition["type"] in ("Completed", "Failed") and condition["status"] == "True":
            return str(condition["type"])
    return None


def is_ending(manifest: Manifest) -> bool:
    """Return whether an object is being deleted."""
    return "deletionTimestamp" in manifest["metadata"]


def derive_gang_observation(
    gang: Gang, jobset: Manifest, pods: Iterable[Manifest], *, waiting: Waiting | None = None
) -> GangObservation:
    """Return the state of every host of an attempt.

    A host without a pod is pending while the JobSet lives. Once the JobSet has ended, a host without a pod
    has ended with it: JobSet deletes the pods of a failed gang.
    """
    by_place: dict[tuple[int, int], Manifest] = {}
    for pod in pods:
        place = _place(pod, gang)
        if place is None:
            continue
        current = by_place.get(place)
        if current is None or pod["metadata"]["creationTimestamp"] > current["metadata"]["creationTimestamp"]:
            by_place[place] = pod
    end = is_jobset_finished(jobset)
    jobset_name = jobset["metadata"]["name"]
    hosts = []
    for slice_index in range(gang.slices):
        for host in range(gang.hosts_per_slice):
            found = by_place.get((slice_index, host))
            rank = gang.rank(slice_index=slice_index, host=host)
            if found is not None:
                hosts.append(_host(found, slice_index, host, rank, jobset_end=end))
            else:
                phase = {None: HostPhase.PENDING, "Completed": HostPhase.SUCCEEDED}.get(end, HostPhase.FAILED)
                name = f"{jobset_name}-{slice_index}-{host}"
                message = "its pod is gone" if phase is HostPhase.FAILED else None
                hosts.append(HostObservation(slice_index, host, rank, name, phase, message=message))
    return GangObservation(tuple(hosts), waiting)


def _place(pod: Manifest, gang: Gang) -> tuple[int, int] | None:
    """Return slice and host of a pod; None for a pod that no controller has labelled."""
    labels = pod["metadata"].get("labels", {})
    slice_index = labels.get(LABEL_JOB_INDEX, "0") if gang.kind is GangKind.TPU else "0"
    host = labels.get(LABEL_COMPLETION_INDEX, "")
    return (int(slice_index), int(host)) if slice_index.isdecimal() and host.isdecimal() else None


def _host(
    pod: Manifest, slice_index: int, host: int, rank: int, *, jobset_end: str | None
) -> HostObservation:
    status = pod.get("status", {})
    state = _container_state(status)
    running, ended = state.get("running", {}), state.get("terminated", {})
    phase = _phase(status.get("phase"), running, ended, jobset_end=jobset_end)
    reason = ended.get("reason") or status.get("reason")
    log = ended.get("message", "")
    message = log or status.get("message")
    if phase is HostPhase.FAILED and not ended:
        unstarted = None if status.get("phase") == "Failed" else "its JobSet failed before it ran"
        message, log = _init_failure(status) or (message or unstarted, "")
    start_failed = reason in START_REASONS
    return HostObservation(
        slice_index=slice_index,
        host=host,
        rank=rank,
        name=pod["metadata"]["name"],
        phase=phase,
        node=pod.get("spec", {}).get("nodeName"),
        exit_code=ended.get("exitCode"),
        reason=START_FAILED if start_failed else reason,
        message=message,
        started_at=_time(running.get("startedAt") or ended.get("startedAt")),
        ended_at=_time(ended.get("finishedAt")),
        # FallbackToLogsOnError puts the end of the log into the message of a container that failed.
        log_tail=() if start_failed else tuple(log.splitlines()[-LOG_LINES:]),
    )


def _container_state(status: Manifest) -> Manifest:
    for container in status.get("containerStatuses", []):
        if container.get("name") == CONTAINER:
            state: Manifest = container.get("state", {})
            return state
    return {}


def _init_failure(status: Manifest) -> tuple[str, str] | None:
    """Return which init container failed and the end of its log, or None."""
    for container in status.get("initContainerStatuses", []):
        ended = container.get("state", {}).get("terminated", {})
        if ended.get("exitCode"):
            told = f"init container {container['name']!r} exited with code {ended['exitCode']}"
            return told, ended.get("message", "")
    return None


def _phase(phase: str | None, running: Manifest, ended: Manifest, *, jobset_end: str | None) -> HostPhase:
    if phase == "Succeeded":
        return HostPhase.SUCCEEDED
    if phase == "Failed":
        return HostPhase.FAILED
    if ended:
        # The container has ended; the pod's phase follows. A sidecar may keep the pod alive meanwhile.
        return HostPhase.SUCCEEDED if ended.get("exitCode") == 0 else HostPhase.FAILED
    if running:
        return HostPhase.RUNNING
    if jobset_end == "Failed":
        # It never ran, and with its JobSet ended it never will.
        return HostPhase.FAILED
    return HostPhase.PENDING


def _time(text: str | None) -> datetime | None:
    return None if text is None else parse_time(text)
