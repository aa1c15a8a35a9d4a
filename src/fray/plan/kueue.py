"""Kueue: the queue that a job names, why its JobSet waits there, and the JobSet that was sent back into it.

Kueue suspends a JobSet that names a queue, and tells of it in an object of its own, the Workload:
https://kueue.sigs.k8s.io/docs/concepts/workload/. Fetching that is the caller's. Decisions rest on whether
the JobSet is suspended, never on what is shown here. A JobSet that Kueue evicts is kept, and resumed as the
job's next attempt, with its place in the queue.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fray.plan.manifests import Manifest, find_condition
from fray.plan.observation import Evidence, EvidenceKind, Waiting
from fray.plan.pod_observation import is_ending, is_jobset_finished
from fray.plan.texts import flatten
from fray.plan.timestamps import parse_time
from fray.vocabulary import (
    CONTAINER,
    ENV_ATTEMPT,
    LABEL_ATTEMPT,
    LABEL_KUEUE_PRIORITY,
    LABEL_KUEUE_QUEUE,
    Reason,
)
from fray.wire.frayjob import FrayJob

__all__ = [
    "QueueChoice",
    "WorkloadSummary",
    "build_renumbered",
    "build_workload_summary",
    "derive_deactivation",
    "derive_queue",
    "derive_queue_waiting",
    "is_misnumbered",
    "is_queued",
    "trim_number",
]

MESSAGE_LENGTH = 400
HELD = "its JobSet is suspended, and not by this job's spec.suspend"
INADMISSIBLE = frozenset({"Inadmissible", "NoMatchingFlavor", "ExceedsMaxQuota", "Misconfigured"})
"""Reasons of QuotaReserved=False for which waiting doesn't help: the first until Kueue 0.18, the others since
0.19 (`WorkloadQuotaReservedReason...` in apis/kueue/v1beta2/workload_types.go)."""

LABEL_LENGTH = 63
"""The longest that Kubernetes takes for a label's value."""


@dataclass(frozen=True)
class QueueChoice:
    """The LocalQueue and WorkloadPriorityClass of a job, None where it names none; `source` says where."""

    name: str | None
    priority_class: str | None
    source: str


def derive_queue(job: FrayJob) -> QueueChoice:
    """Return the queue that a job names: in `spec.queue`, or else by the labels of Kueue's own jobs."""
    if job.spec.queue is not None:
        return QueueChoice(job.spec.queue.name, job.spec.queue.priority_class, "spec.queue")
    labels = job.metadata.labels
    name, priority = labels.get(LABEL_KUEUE_QUEUE), labels.get(LABEL_KUEUE_PRIORITY)
    return QueueChoice(name or None, priority or None, "a label of the FrayJob")


@dataclass(frozen=True)
class WorkloadSummary:
    """What matters of a Workload.

    `owner` is the uid of its JobSet. `waits` is why it isn't admitted: WAITING_FOR_QUEUE, or a reason for
    which waiting doesn't help. `pending` says so in words, `eviction` that its admission was taken back; None
    where nothing is known of it.
    """

    owner: str
    queue: str
    waits: Reason = Reason.WAITING_FOR_QUEUE
    pending: str | None = None
    eviction: Evidence | None = None


def build_workload_summary(workload: Manifest) -> WorkloadSummary | None:
    """Return the summary of a Workload's manifest; None for one that no JobSet owns."""
    metadata, spec = workload["metadata"], workload.get("spec", {})
    owners = [owner["uid"] for owner in metadata.get("ownerReferences", []) if owner["kind"] == "JobSet"]
    if not owners:
        return None
    status = workload.get("status", {})
    queue = str(spec.get("queueName", ""))
    reserved = find_condition(workload, "QuotaReserved")
    waits = Reason.WAITING_FOR_QUEUE
    if spec.get("active") is False:
        waits = Reason.QUEUE_DEACTIVATED
        pending: str | None = f"its Workload {metadata['name']} is deactivated (spec.active is false)"
    elif reserved.get("status") == "True":
        checks = list(_pending_checks(status))
        pending = f"admission checks are pending: {', '.join(checks)}" if checks else None
    else:
        waits = Reason.QUEUE_INADMISSIBLE if reserved.get("reason") in INADMISSIBLE else waits
        pending = reserved.get("message") or reserved.get("reason")
    return WorkloadSummary(
        owners[0],
        queue,
        waits,
        flatten(pending, most=MESSAGE_LENGTH) if pending else None,
        _read_eviction(find_condition(workload, "Evicted", status="True"), queue),
    )


def _read_eviction(evicted: Manifest, queue: str) -> Evidence | None:
    if not evicted:
        return None
    why = ": ".join(filter(None, (evicted.get("reason"), evicted.get("message"))))
    text = f"Kueue evicted it from queue {queue} ({flatten(why, most=MESSAGE_LENGTH)})"
    at = evicted.get("lastTransitionTime")
    return Evidence(EvidenceKind.QUEUE_EVICTED, text, parse_time(at) if at else None)


def is_queued(jobset: Manifest) -> bool:
    """Return whether a JobSet names a queue of Kueue's."""
    return bool(jobset["metadata"].get("labels", {}).get(LABEL_KUEUE_QUEUE))


def derive_queue_waiting(
    jobset: Manifest, workload: WorkloadSummary | None, *, missing: bool = False
) -> Waiting:
    """Return why the hosts of a suspended JobSet, which have not begun, wait.

    `workload` is None where it can't be read, or isn't there; `missing` is True when it should be there.
    """
    labels = jobset["metadata"].get("labels", {})
    queue = workload.queue if workload is not None else labels.get(LABEL_KUEUE_QUEUE)
    if workload is None and queue is None:
        return Waiting(Reason.SUSPENDED, HELD)
    place = f"queue {queue}" if queue else "a queue: the job names none in spec.queue"
    message = f"Kueue has not admitted it to {place}"
    if workload is not None and workload.pending is not None:
        message = f"{message}: {workload.pending}"
    elif missing:
        message = f"{message}: there is no Workload of JobSet {jobset['metadata']['name']}"
        if (priority := labels.get(LABEL_KUEUE_PRIORITY)) is not None:
            message = f"{message}; is there a WorkloadPriorityClass {priority}?"
    return Waiting(Reason.WAITING_FOR_QUEUE if workload is None else workload.waits, message)


def derive_deactivation(workload: WorkloadSummary | None) -> Waiting | None:
    """Return why an evicted attempt gives way to no next one, None where it does.

    Who deactivates a Workload wants its work to rest: another attempt would queue at once, as a new Workload.
    """
    if workload is None or workload.waits is not Reason.QUEUE_DEACTIVATED:
        return None
    message = f"Kueue evicted it from queue {workload.queue}, and no next attempt starts: {workload.pending}"
    return Waiting(Reason.QUEUE_DEACTIVATED, message)


def _pending_checks(status: Manifest) -> Iterator[str]:
    for check in status.get("admissionChecks") or []:
        if check.get("state") != "Ready":
            message = check.get("message")
            yield f"{check['name']} ({message})" if message else str(check["name"])


def is_misnumbered(jobset: Manifest, number: int) -> bool:
    """Return whether pods that a JobSet makes would carry the number of another attempt."""
    return any(_read_label(template) not in (None, str(number)) for template in _templates(jobset))


def build_renumbered(jobset: Manifest, number: int) -> dict[str, Any] | None:
    """Return a JobSet with the number of another attempt on itself and on the pods that it will make.

    While a JobSet is suspended, its webhook lets the labels of its pod template change, and gives them to its
    Jobs as it is resumed:
    https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/webhooks/jobset_webhook.go. The pods take the
    number of their attempt from such a label. Kueue puts the template back as it first was with each
    eviction, so the number is checked whenever the JobSet is suspended, not once.

    None where that can't be: it isn't suspended, it has ended, or its program has its number from elsewhere.
    """
    if not jobset["spec"].get("suspend") or is_jobset_finished(jobset) is not None or is_ending(jobset):
        return None
    renumbered: dict[str, Any] = copy.deepcopy(dict(jobset))
    templates = list(_templates(renumbered))
    if not all(map(_has_number_from_label, templates)):
        return None
    for metadata in (renumbered["metadata"], *(template["metadata"] for template in templates)):
        metadata["labels"][LABEL_ATTEMPT] = str(number)
    return renumbered


def trim_number(jobset: Manifest) -> list[dict[str, Any]]:
    """Return what `is_misnumbered` needs of a JobSet's `spec.replicatedJobs`: little of one of them."""
    for template in _templates(jobset):
        if (label := _read_label(template)) is not None:
            # Anybody may write more there than fits into memory.
            metadata = {"labels": {LABEL_ATTEMPT: label[:LABEL_LENGTH]}}
            return [{"template": {"spec": {"template": {"metadata": metadata}}}}]
    return []


def _templates(jobset: Manifest) -> Iterator[Any]:
    for replicated in jobset.get("spec", {}).get("replicatedJobs", []):
        yield replicated.get("template", {}).get("spec", {}).get("template", {})


def _read_label(template: Manifest) -> str | None:
    label: str | None = template.get("metadata", {}).get("labels", {}).get(LABEL_ATTEMPT)
    return label


def _has_number_from_label(template: Manifest) -> bool:
    path = f"metadata.labels['{LABEL_ATTEMPT}']"
    return any(
        entry["name"] == ENV_ATTEMPT
        and entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") == path
        for container in template["spec"]["containers"]
        if container["name"] == CONTAINER
        for entry in container.get("env", [])
    )
