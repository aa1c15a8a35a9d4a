"""What Kueue tells of an attempt: why its JobSet waits in a queue, and why it was sent back into one.

Kueue suspends a JobSet that names a queue, and tells of it in an object of its own, the Workload:
https://kueue.sigs.k8s.io/docs/concepts/workload/. Fetching that is the caller's. Decisions rest on whether
the JobSet is suspended, never on what is told here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fray.plan.observation import Waiting
from fray.plan.outside_text import flatten
from fray.vocabulary import LABEL_KUEUE_PRIORITY, LABEL_KUEUE_QUEUE, Reason

__all__ = ["WorkloadSummary", "build_workload_summary", "derive_queue_waiting", "describe_eviction"]

Manifest = Mapping[str, Any]

MESSAGE_LENGTH = 400
HELD = "its JobSet is suspended, and not by this job's spec.suspend"


@dataclass(frozen=True)
class WorkloadSummary:
    """What matters of a Workload.

    `owner` is the uid of its JobSet. `pending` says why it isn't admitted, `eviction` why its admission was
    taken back; None where nothing is told of it.
    """

    owner: str
    queue: str
    pending: str | None = None
    eviction: str | None = None


def build_workload_summary(workload: Manifest) -> WorkloadSummary | None:
    """Return the summary of a Workload's manifest; None for one that no JobSet owns."""
    metadata, spec = workload["metadata"], workload.get("spec", {})
    owners = [owner["uid"] for owner in metadata.get("ownerReferences", []) if owner["kind"] == "JobSet"]
    if not owners:
        return None
    status = workload.get("status", {})
    conditions = {condition["type"]: condition for condition in status.get("conditions") or []}
    evicted = conditions.get("Evicted", {})
    eviction = ": ".join(filter(None, (evicted.get("reason"), evicted.get("message"))))
    if spec.get("active") is False:
        pending: str | None = f"its Workload {metadata['name']} is deactivated (spec.active is false)"
    elif _holds(conditions.get("QuotaReserved", {})):
        checks = list(_pending_checks(status))
        pending = f"admission checks are pending: {', '.join(checks)}" if checks else None
    else:
        pending = conditions.get("QuotaReserved", {}).get("message")
    return WorkloadSummary(
        owners[0],
        str(spec.get("queueName", "")),
        flatten(pending, most=MESSAGE_LENGTH) if pending else None,
        flatten(eviction, most=MESSAGE_LENGTH) if _holds(evicted) else None,
    )


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
    told = f"Kueue has not admitted it to {place}"
    if workload is not None and workload.pending is not None:
        told = f"{told}: {workload.pending}"
    elif missing:
        told = f"{told}: there is no Workload of JobSet {jobset['metadata']['name']}"
        if (priority := labels.get(LABEL_KUEUE_PRIORITY)) is not None:
            told = f"{told}; is there a WorkloadPriorityClass {priority}?"
    return Waiting(Reason.WAITING_FOR_QUEUE, told)


def describe_eviction(workload: WorkloadSummary | None) -> str | None:
    """Return that Kueue took back the admission of a JobSet, and why; None where nothing tells of it."""
    if workload is None or workload.eviction is None:
        return None
    return f"Kueue evicted it from queue {workload.queue} ({workload.eviction})"


def _holds(condition: Manifest) -> bool:
    return bool(condition.get("status") == "True")


def _pending_checks(status: Manifest) -> Iterator[str]:
    for check in status.get("admissionChecks") or []:
        if check.get("state") != "Ready":
            message = check.get("message")
            yield f"{check['name']} ({message})" if message else str(check["name"])
