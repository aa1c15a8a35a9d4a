"""Whose an object is; which of a job's own are in the way of an attempt, in no status, or left without one.

What a FrayJob doesn't control is never touched, only reported. Usually there is nothing of the kind: it
takes somebody who deletes a JobSet, takes its owner away, or edits a status that names it. Nothing is read or
written here: callers bring the objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from fray.kube.api import Manifest
from fray.plan.manifests import has_ended, read_attempt_label
from fray.plan.names import read_attempt
from fray.plan.node_evidence import Nodes, is_late
from fray.plan.observation import Waiting
from fray.plan.pod_disruption import read_deletion
from fray.plan.pod_observation import is_ending, is_jobset_finished
from fray.plan.status import is_finished
from fray.plan.timestamps import format_time, parse_time
from fray.vocabulary import (
    FRAYJOB_KIND,
    LABEL_ATTEMPT,
    LABEL_JOB,
    LABEL_JOB_UID,
    LABEL_JOBSET_UID,
    LABEL_MANAGED_BY,
    MANAGED_BY,
    Reason,
)
from fray.wire.frayjob import FrayJob
from fray.wire.status import AttemptStatus
from fray_operator.list_watch import find_controller

__all__ = [
    "Leftovers",
    "describe_foreign",
    "find_leftovers",
    "find_obsolete",
    "find_orphans",
    "find_unrecorded",
    "get_job_uid",
    "is_child_of",
    "is_inherited",
    "is_labelled",
    "is_made_for",
    "is_of_attempt",
    "is_overdue",
    "is_owned",
    "may_be_obsolete",
]

UNKNOWN_NODES = Nodes()


@dataclass(frozen=True)
class Leftovers:
    """Hosts that must be gone before an attempt may start; `jobsets` are to be deleted."""

    jobsets: tuple[Manifest, ...]
    waiting: Waiting


def is_owned(manifest: Manifest, job: FrayJob) -> bool:
    """Return whether an object is this very FrayJob's, not that of one of the same name before it.

    It is when the FrayJob controls it, or when nobody does and it was made for it: an owner reference that
    somebody took away ends none of its pods.
    """
    controller = find_controller(manifest)
    return is_made_for(manifest, job) if controller is None else controller["uid"] == job.metadata.uid


def is_made_for(manifest: Manifest, job: FrayJob) -> bool:
    """Return whether an object carries the uid of this very FrayJob, whatever controls it now."""
    uid = manifest["metadata"].get("labels", {}).get(LABEL_JOB_UID)
    return uid is not None and uid == job.metadata.uid


def _is_made_for_some(manifest: Manifest) -> bool:
    return LABEL_JOB_UID in manifest["metadata"].get("labels", {})


def is_of_attempt(manifest: Manifest, number: int) -> bool:
    """Return whether an object is of this attempt, or doesn't say of which."""
    return manifest["metadata"].get("labels", {}).get(LABEL_ATTEMPT) in (None, str(number))


def is_child_of(child: Manifest, number: int) -> bool:
    """Return whether a child of a job is that of an attempt: a name can't be changed, a label can."""
    return is_of_attempt(child, number) or read_attempt(child["metadata"]["name"]) == number


def is_inherited(jobset: Manifest, job: FrayJob) -> bool:
    """Return whether the status says that the last attempt goes on with this JobSet of the one before."""
    name = jobset["metadata"]["name"]
    return len(job.status.attempts) > 1 and all(one.job_set == name for one in job.status.attempts[-2:])


def is_labelled(manifest: Manifest) -> bool:
    """Return whether an object carries the label of a FrayJob, by which it is watched."""
    return LABEL_JOB in manifest["metadata"].get("labels", {})


def describe_foreign(manifest: Manifest, job: FrayJob, *, kind: str = "JobSet") -> Waiting:
    """Return that an object of somebody else's has the name that a child of the job should have."""
    name = manifest["metadata"]["name"]
    owners = manifest["metadata"].get("ownerReferences", [])
    others = [owner["name"] for owner in owners if owner.get("kind") == FRAYJOB_KIND]
    if others and others[0] != job.metadata.name:
        # Names that are too long are cut and hashed, and another job may be called just that.
        message = f"{kind} {name} is that of FrayJob {others[0]}: this job needs another name"
        return Waiting(Reason.NAME_TAKEN, message)
    whose = f"{owners[0].get('kind')} {owners[0].get('name')}" if owners else "nobody"
    message = f"{kind} {name} exists and is owned by {whose} (another object, or one that is being deleted)"
    return Waiting(Reason.NAME_TAKEN, message)


def find_leftovers(
    job: FrayJob,
    number: int,
    *,
    jobsets: Iterable[Manifest],
    pods: Iterable[Manifest],
    now: datetime,
    nodes: Nodes = UNKNOWN_NODES,
) -> Leftovers | None:
    """Return what is left of the job's hosts although this attempt has none yet, None when nothing is.

    `jobsets` and `pods` are those that carry the job's name. A JobSet of the attempt itself isn't left over:
    it is adopted when its creation finds it. Pods of a deleted job of the same name count: hosts find each
    other by names, and would find those. What stands on a node that can't end it isn't waited for, nor is
    a JobSet that is deleted and held by nothing else.
    """
    running = [pod for pod in pods if _is_made_for_some(pod) and not has_ended(pod)]
    living = [pod for pod in running if not _cannot_end(pod, nodes, now)]
    held = {_jobset_uid(pod) for pod in running} - {_jobset_uid(pod) for pod in living}
    going = tuple(
        jobset
        for jobset in jobsets
        if is_owned(jobset, job)
        and not is_child_of(jobset, number)
        and is_jobset_finished(jobset) is None
        and not (is_ending(jobset) and jobset["metadata"].get("uid") in held)
    )
    left = [f"JobSet {_describe(one, job)}" for one in going]
    left = left or [f"pod {_describe(one, job)}" for one in living]
    if not left:
        return None
    more = f" and {len(left) - 1} more" if len(left) > 1 else ""
    message = f"{left[0]}{more} must be gone before attempt {number} starts"
    return Leftovers(going, Waiting(Reason.HOSTS_LEFT_OVER, message))


def find_unrecorded(job: FrayJob, jobsets: Iterable[Manifest]) -> AttemptStatus | None:
    """Return the attempt whose hosts there are although the status doesn't tell of it, None when it does.

    Somebody has taken it from the status, or given it another number. What it was charged to before isn't
    known any more, and when it ran only if it still is in the status by its JobSet's name.
    """
    numbers = {attempt.number for attempt in job.status.attempts}
    last = job.status.attempts[-1] if job.status.attempts else None
    going = [(_read_number(one), one) for one in jobsets if is_owned(one, job) and _goes_on(one)]
    number, jobset = max(going, key=lambda found: found[0], default=(0, {}))
    if not number or number in numbers:
        return None
    metadata = jobset["metadata"]
    if last is not None and last.verdict is None:
        renumbered = last.job_set == metadata["name"]
        return last.model_copy(update={"number": number}) if renumbered else None
    if last is not None and number < last.number:
        return None
    started = format_time(parse_time(metadata["creationTimestamp"]))
    return AttemptStatus(number=number, job_set=metadata["name"], start_time=started)


def find_obsolete(job: FrayJob, children: Iterable[Manifest]) -> list[Manifest]:
    """Return which of these children still run although their attempt has ended, or the job has.

    A request to create one may be carried out long after its sender gave up on it, and the server doesn't
    check what has become of the attempt. Never that of an attempt without a verdict, unless the job has
    ended; and one of a later attempt than the status tells of is `find_unrecorded`'s to judge.
    """
    last = job.status.attempts[-1] if job.status.attempts else None
    live = last.number if last is not None and last.verdict is None else 0
    finished = is_finished(job.status)

    def is_obsolete(child: Manifest) -> bool:
        if not (is_made_for(child, job) and is_owned(child, job) and _goes_on(child)):
            return False
        number = read_attempt_label(child)
        if finished:
            return number > 0
        recorded = last is not None and 0 < number <= last.number
        return recorded and not (live and (is_child_of(child, live) or is_inherited(child, job)))

    return [child for child in children if is_obsolete(child)]


def may_be_obsolete(child: Manifest) -> bool:
    """Return whether a child would be obsolete if its job had ended: Fray made it, and it goes on."""
    return get_job_uid(child) is not None and read_attempt_label(child) > 0 and _goes_on(child)


def _goes_on(child: Manifest) -> bool:
    return is_jobset_finished(child) is None and not is_ending(child)


def _read_number(jobset: Manifest) -> int:
    """Return the number of a JobSet's attempt if label and name agree about it, else 0."""
    number = read_attempt_label(jobset)
    return number if number and read_attempt(jobset["metadata"]["name"]) == number else 0


def find_orphans(children: Iterable[Manifest], *, living: Callable[[str], bool]) -> list[Manifest]:
    """Return children that Fray made and that nobody owns any more, but for those whose FrayJob is living.

    The garbage collector passes them by when their FrayJob is deleted. What has any owner is left to it.
    """
    return [child for child in children if _is_ownerless(child) and not living(get_job_uid(child) or "")]


def get_job_uid(manifest: Manifest) -> str | None:
    """Return the uid of the FrayJob that an object was made for, None for what Fray didn't make."""
    labels = manifest["metadata"].get("labels", {})
    uid: str | None = labels.get(LABEL_JOB_UID) if labels.get(LABEL_MANAGED_BY) == MANAGED_BY else None
    return uid


def _is_ownerless(child: Manifest) -> bool:
    owned = child["metadata"].get("ownerReferences")
    return get_job_uid(child) is not None and not owned and not is_ending(child)


def _describe(manifest: Manifest, job: FrayJob) -> str:
    name, labels = manifest["metadata"]["name"], manifest["metadata"].get("labels", {})
    if labels.get(LABEL_JOB_UID) not in (None, job.metadata.uid):
        return f"{name} of a deleted job of this name"
    return f"{name} of attempt {labels.get(LABEL_ATTEMPT, '?')}"


def is_overdue(pod: Manifest, *, now: datetime) -> bool:
    """Return whether a pod still runs, as far as one can see, some time after it was asked to end."""
    return not has_ended(pod) and is_late(read_deletion(pod["metadata"]), now=now)


def _cannot_end(pod: Manifest, nodes: Nodes, now: datetime) -> bool:
    node = pod.get("spec", {}).get("nodeName")
    return nodes.cannot_end(node, read_deletion(pod["metadata"]), now=now)


def _jobset_uid(pod: Manifest) -> str | None:
    uid: str | None = pod["metadata"]["labels"].get(LABEL_JOBSET_UID)
    return uid
