"""A gang as seen through its pods: from pod manifests to what decisions need.

Pods say where they belong by the labels that JobSet and the Job controller put on them. Fetching them
is the caller's; why pods wait is `scheduling`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from fray.plan.gang import Gang
from fray.plan.manifests import Manifest, find_condition
from fray.plan.observation import (
    DEADLINE_EXCEEDED,
    EVICTED_FOR_USE,
    NEVER_RAN,
    OOM_KILLED,
    START_FAILED,
    GangObservation,
    HostObservation,
    HostPhase,
    Suspension,
    Waiting,
)
from fray.plan.pod_disruption import (
    START_REASONS,
    find_mark,
    is_ended_by_deletion,
    is_lost,
    is_own_use,
    is_refused,
    read_deletion,
    read_evidence,
    was_never_made,
)
from fray.plan.sidecars import describe_failing_sidecar, find_sidecars
from fray.plan.timestamps import parse_time
from fray.termination import Ending, TerminationMessage
from fray.vocabulary import CONTAINER

__all__ = ["derive_gang_observation", "derive_pod_observation", "is_ending", "is_jobset_finished"]

NEVER_STARTED = "1970-01-01T00:00:00Z"
"""When a container began whose start failed, in the kubelet's words."""
LOG_LINES = 20
SHA256 = re.compile("[0-9a-f]{64}")


def is_jobset_finished(jobset: Manifest) -> str | None:
    """Return `Completed` or `Failed` for a JobSet that has ended, `Complete` for a Job, else None."""
    return _find_jobset_end(jobset).get("type")


def _find_jobset_end(jobset: Manifest) -> Manifest:
    """Return the condition that ended a JobSet or Job, empty while it lives."""
    return find_condition(jobset, "Completed", "Complete", "Failed", status="True")


def is_ending(manifest: Manifest) -> bool:
    """Return whether an object is being deleted."""
    return "deletionTimestamp" in manifest["metadata"]


def derive_gang_observation(
    gang: Gang,
    jobset: Manifest,
    pods: Iterable[Manifest],
    *,
    gone: Iterable[Manifest] = (),
    waiting: Waiting | None = None,
) -> GangObservation:
    """Return the state of every host of an attempt.

    `gone` are pods of it that aren't there any more, as they were last: each counts while its host has no
    other. A host without a pod is pending while the JobSet lives. Once the JobSet has ended, a host without a
    pod has ended with it: JobSet deletes the pods of a failed gang.
    """
    by_place = _sort(pods, gang)
    end = _find_jobset_end(jobset)
    suspension = find_condition(jobset, "Suspended")
    released_at = _time(suspension.get("lastTransitionTime")) if suspension.get("status") == "False" else None
    # Those of before a suspension ended by it.
    remains = _sort((pod for pod in gone if not _is_older(pod, released_at)), gang)
    hosts = []
    for slice_index in range(gang.slices):
        for host in range(gang.hosts_per_slice):
            found = by_place.get((slice_index, host))
            rank = gang.rank(slice_index=slice_index, host=host)
            if found is not None:
                hosts.append(_host(found, slice_index, host, rank, jobset_end=end))
            elif (last := remains.get((slice_index, host))) is not None:
                hosts.append(_gone_host(_host(last, slice_index, host, rank, jobset_end=end), jobset_end=end))
            else:
                hosts.append(HostObservation(slice_index, host, rank, None, _missing_phase(end)))
    ending = is_ending(jobset)
    # A Job that was deleted is created anew, and its pods with it, until the JobSet itself has ended.
    done = len(by_place) == gang.hosts and all(_has_succeeded(pod) for pod in by_place.values())
    suspended = not end and not ending and bool(jobset.get("spec", {}).get("suspend"))
    return GangObservation(
        tuple(hosts),
        waiting,
        settled=bool(end) or ending or done,
        failing_sidecar=describe_failing_sidecar(by_place.values()),
        suspension=Suspension() if suspended else None,
        held=suspended or suspension.get("status") == "True",
        released_at=None if suspended else released_at,
        created_at=_time(jobset["metadata"].get("creationTimestamp")),
    )


def derive_pod_observation(pod: Manifest) -> HostObservation:
    """Return what a pod tells that is of no gang."""
    return _host(pod, 0, 0, 0, jobset_end={})


def _sort(pods: Iterable[Manifest], gang: Gang) -> dict[tuple[int, int], Manifest]:
    """Return the newest pod of each place in the gang."""
    by_place: dict[tuple[int, int], Manifest] = {}
    for pod in pods:
        place = gang.find_place(pod["metadata"].get("labels"))
        if place is None:
            continue
        current = by_place.get(place)
        if current is None or pod["metadata"]["creationTimestamp"] > current["metadata"]["creationTimestamp"]:
            by_place[place] = pod
    return by_place


def _is_older(pod: Manifest, moment: datetime | None) -> bool:
    return moment is not None and parse_time(pod["metadata"]["creationTimestamp"]) < moment


def _missing_phase(jobset_end: Manifest) -> HostPhase:
    """Return the state of a host that has no pod."""
    phases = {None: HostPhase.PENDING, "Completed": HostPhase.SUCCEEDED}
    return phases.get(jobset_end.get("type"), HostPhase.GONE)


def _gone_host(last: HostObservation, *, jobset_end: Manifest) -> HostObservation:
    """Return a host as its pod, which is gone, showed it; how it ended isn't known where that hadn't yet."""
    if last.ended:
        return last
    return replace(last, phase=_missing_phase(jobset_end), message=None, deletion=None)


def _has_succeeded(pod: Manifest) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Succeeded")


def _host(pod: Manifest, slice_index: int, host: int, rank: int, *, jobset_end: Manifest) -> HostObservation:
    status = pod.get("status", {})
    state = _container_state(pod)
    running, ended = state.get("running", {}), state.get("terminated", {})
    phase = _phase(status.get("phase"), running, ended, jobset_end=jobset_end)
    init = _find_failed_init(pod)
    message, log = _last_words(status, ended, phase)
    failed = phase is HostPhase.FAILED
    if failed and not ended and init:
        message, log = _describe_init(init)
    end = ended or init.get("state", {}).get("terminated", {})
    return HostObservation(
        slice_index=slice_index,
        host=host,
        rank=rank,
        name=pod["metadata"]["name"],
        phase=HostPhase.DELETED if failed and _is_deleted_from_outside(pod, end, jobset_end) else phase,
        node=pod.get("spec", {}).get("nodeName"),
        exit_code=ended.get("exitCode"),
        reason=_reason(status, ended),
        message=message,
        started_at=_time(running.get("startedAt") or _find_start(ended)),
        ended_at=_time(_find_end(pod, end)) if failed or ended else None,
        log_tail=tuple(log.splitlines()[-LOG_LINES:]),
        evidence=read_evidence(pod, state, end),
        deletion=read_deletion(pod["metadata"]),
        created_at=_time(pod["metadata"]["creationTimestamp"]),
        outcome=_find_outcome(ended),
    )


def _is_deleted_from_outside(pod: Manifest, ended: Manifest, jobset_end: Manifest) -> bool:
    """Return whether a pod that has failed did so because somebody deleted it.

    JobSet deletes those that never ran after its own end. In the same second either may have come first.
    """
    if not is_ended_by_deletion(pod, ended):
        return False
    if ended or pod.get("status", {}).get("phase") == "Failed":
        return True
    over, deletion = _time(jobset_end.get("lastTransitionTime")), read_deletion(pod["metadata"])
    return over is None or deletion is None or deletion.asked <= over


def _reason(status: Manifest, ended: Manifest) -> str | None:
    """Return the reason of a host: its container's, where its pod knows no better."""
    reason: str | None = ended.get("reason") or status.get("reason")
    if reason == OOM_KILLED:
        return reason
    if reason in START_REASONS or is_refused(status):
        return START_FAILED
    if status.get("reason") == DEADLINE_EXCEEDED:
        return DEADLINE_EXCEEDED  # its containers only say that they were killed
    termination = TerminationMessage.from_json(str(ended.get("message", "")))
    if termination is not None and termination.ending is Ending.NEVER_RAN:
        return NEVER_RAN
    return EVICTED_FOR_USE if is_own_use(status) else reason


def _find_start(ended: Manifest) -> str | None:
    """Return when a container that has ended began; None for one that never did."""
    start: str | None = ended.get("startedAt")
    return None if start == NEVER_STARTED else start


def _find_end(pod: Manifest, ended: Manifest) -> str | None:
    """Return when a pod ended, as its container or its mark says; None where nothing tells.

    One that the kubelet refused has neither: it did so when the pod was placed.
    """
    status = pod.get("status", {})
    end: str | None = ended.get("finishedAt") or find_mark(pod).get("lastTransitionTime")
    if end is None and status.get("reason") and not status.get("containerStatuses"):
        return find_condition(pod, "PodScheduled", status="True").get("lastTransitionTime")
    return end


def _last_words(status: Manifest, ended: Manifest, phase: HostPhase) -> tuple[str | None, str]:
    """Return what is said of how a host ended, and the end of its log.

    FallbackToLogsOnError puts the end of the log into the message of a container that failed.
    """
    message: str | None = status.get("message")
    log = _log_of(ended)
    if ended.get("reason") in START_REASONS:
        return log or message, ""
    if ended:
        return message if is_own_use(status) else log or message, "" if is_lost(ended) else log
    if phase is HostPhase.FAILED and status.get("phase") != "Failed":
        return message or "its JobSet failed before it ran", ""
    return message, ""


def _log_of(ended: Manifest) -> str:
    """Return the last words of a container: what a callable left for a reader, or the end of its log."""
    text = str(ended.get("message", ""))
    termination = TerminationMessage.from_json(text)
    return text if termination is None else "\n".join(termination.lines)


def _find_outcome(ended: Manifest) -> str | None:
    """Return the digest of what a callable left; text of a process that isn't one is never stored for it."""
    termination = TerminationMessage.from_json(str(ended.get("message", "")))
    known = (
        termination is not None and termination.sha256 is not None and SHA256.fullmatch(termination.sha256)
    )
    return termination.sha256 if termination is not None and known else None


def _container_state(pod: Manifest) -> Manifest:
    for container in pod.get("status", {}).get("containerStatuses", []):
        if container.get("name") == CONTAINER:
            state: Manifest = container.get("state", {})
            return {} if is_ending(pod) and was_never_made(container) else state
    return {}


def _find_failed_init(pod: Manifest) -> Manifest:
    """Return the status of the init container that failed, empty where none has; sidecars are restarted."""
    sidecars = find_sidecars(pod)
    for container in pod.get("status", {}).get("initContainerStatuses", []):
        ended = container.get("state", {}).get("terminated", {})
        if ended.get("exitCode") and container["name"] not in sidecars:
            failed: Manifest = container
            return failed
    return {}


def _describe_init(container: Manifest) -> tuple[str, str]:
    """Return how an init container failed, and the end of its log."""
    ended = container["state"]["terminated"]
    sentence = f"init container {container['name']!r} exited with code {ended['exitCode']}"
    return sentence, ended.get("message", "")


def _phase(phase: str | None, running: Manifest, ended: Manifest, *, jobset_end: Manifest) -> HostPhase:
    if phase == "Succeeded":
        return HostPhase.SUCCEEDED
    if phase == "Failed":
        return HostPhase.FAILED
    # The phase may lag behind the container's state: a short command has ended while its pod is Pending.
    if ended:
        # Another one may still keep the pod alive.
        return HostPhase.SUCCEEDED if ended.get("exitCode") == 0 else HostPhase.FAILED
    if running:
        return HostPhase.RUNNING
    if jobset_end.get("type") == "Failed":
        # It never ran, and with its JobSet ended it never will.
        return HostPhase.FAILED
    return HostPhase.STARTING if phase == "Pending" else HostPhase.PENDING


def _time(text: str | None) -> datetime | None:
    return None if text is None else parse_time(text)
