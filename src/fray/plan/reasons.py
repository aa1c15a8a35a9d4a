"""What each reason means: one row with everything that anything asks of it.

To add a reason, add its word in `fray.vocabulary` and its row here; docs/failures.md is generated from
the rows (`make docs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from fray.vocabulary import (
    EXIT_PACKAGES,
    EXIT_PAYLOAD_CHANGED,
    EXIT_PAYLOAD_CODE,
    EXIT_PAYLOAD_MISSING,
    EXIT_PAYLOAD_PYTHON,
    EXIT_PAYLOAD_UNREADABLE,
    EXIT_WORKSPACE,
    ConditionType,
    Reason,
    VerdictKind,
)

__all__ = ["REASONS", "EventType", "ReasonRow", "find_unrun", "get_row"]


class EventType(StrEnum):
    """Type of a Kubernetes Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True)
class ReasonRow:
    """Everything that anything asks of a reason."""

    meaning: str = ""
    """What happened, for docs/failures.md; empty for one that only tells how far a job is."""
    remedy: str = ""
    """What to do about it."""
    stands_on: tuple[ConditionType, ...] = ()
    """Conditions that have it."""
    event: EventType | None = None
    """The event that is sent when it begins to keep a job waiting; None for none. Ends always have theirs."""
    event_key: str = ""
    """The key of that event, where it has one of its own: what keeps an attempt waiting once it is out of a
    queue is shown too."""
    charge: VerdictKind | None = None
    """What an attempt that ends for it is charged to; None for one that no attempt ends for."""
    final: bool = False
    """Whether it ends the job, whatever is left of its budget."""
    certain: bool = True
    """False where the true cause may be seen only later: peers of a host that is taken away crash before it
    goes."""
    own_doing: bool = False
    """Whether it is the host's own doing: if it came first, no disruption of its peers excuses it."""
    ends_by_itself: bool = False
    """Whether JobSet ends such an attempt by itself (one failed pod fails its Job, and that the JobSet), so
    that the JobSet stays, with the logs of its pods."""
    refuses: bool = False
    """Whether it keeps an attempt's hosts from being created, which is tried again and again."""
    lacks_nodes: bool = False
    """Whether it keeps an attempt waiting that more nodes could help."""
    told_by_provider: bool = False
    """Whether the provider of node pools says it of nodes that are lacking."""
    timeout: bool = False
    """Whether a time limit was over."""
    unrun: str = ""
    """What a host didn't get to run, where Fray's own program in it says so by one of `exit_codes`."""
    exit_codes: tuple[int, ...] = ()
    charge_note: str = ""
    """What docs/failures.md adds to the charge."""


_WAITS = (ConditionType.SCHEDULED, ConditionType.RUNNING)
_SUSPENDED = (*_WAITS, ConditionType.SUSPENDED)
_ON_ITS_NODE = (ConditionType.RUNNING,)
_REFUSED = (ConditionType.ACCEPTED, *_WAITS)
_FAILED = (ConditionType.FINISHED, ConditionType.FAILED)

_waits = partial(ReasonRow, stands_on=_WAITS, event=EventType.WARNING)
"""Keeps a job waiting."""
_fails = partial(ReasonRow, stands_on=_FAILED, charge=VerdictKind.FAILURE, ends_by_itself=True)
"""Ends an attempt, and not well."""


REASONS: Final[Mapping[Reason, ReasonRow]] = {
    # --- how far a job is ---------------------------------------------------------------------------------
    Reason.VALID: ReasonRow(stands_on=(ConditionType.ACCEPTED,)),
    Reason.ALL_HOSTS_PLACED: ReasonRow(stands_on=(ConditionType.SCHEDULED,)),
    Reason.ALL_HOSTS_RUNNING: ReasonRow(stands_on=(ConditionType.RUNNING,)),
    Reason.ALL_WORKERS_READY: ReasonRow(stands_on=(ConditionType.WORKERS_READY,)),
    Reason.IN_PROGRESS: ReasonRow(stands_on=(ConditionType.FINISHED, ConditionType.SUSPENDED)),
    Reason.STOPPING: ReasonRow(stands_on=_WAITS),
    Reason.ENDED: ReasonRow(stands_on=_SUSPENDED),
    # --- what keeps it waiting ----------------------------------------------------------------------------
    Reason.HOSTS_STARTING: _waits(
        "pods are being created, placed, or pull their image",
        "wait; a new pool with large images takes minutes",
        event=None,
    ),
    Reason.WORKERS_STARTING: _waits(
        "worker pods are being created, placed, or pull their image. The job runs without them, and tasks "
        "wait; where one can't be placed or started, the condition WorkersReady has the reason that a host's "
        "would have",
        "wait, or do what the message says",
        event=None,
        stands_on=(ConditionType.WORKERS_READY,),
    ),
    Reason.WAITING_FOR_QUEUE: _waits(
        "Kueue has not admitted the attempt to [its queue](gke.md#queues-with-kueue); the message has the "
        "queue's name, and Kueue's reason where the operator may read it",
        "wait, stop another job of the queue, or ask for quota; correct what the message says is wrong. "
        "`kubectl get workloads,localqueues` shows Kueue's side",
        event=EventType.NORMAL,
        event_key="queued",
    ),
    Reason.QUEUE_INADMISSIBLE: _waits(
        "Kueue says that waiting doesn't help: the queue doesn't exist, no flavor fits the pods, or the job "
        "asks for more than the queue may ever have; the message has its words",
        "correct the job's queue or its resources, or the queue",
        event_key="inadmissible",
    ),
    Reason.QUEUE_DEACTIVATED: _waits(
        "somebody set `spec.active: false` on the attempt's Workload, or Kueue did after too many requeues. "
        "An attempt that ran was evicted, and no next one starts",
        '`kubectl patch workload NAME --type=merge -p \'{"spec":{"active":true}}\'`, and the next attempt '
        "queues; or stop the job",
        event_key="deactivated",
        stands_on=_SUSPENDED,
    ),
    Reason.NO_MATCHING_NODE_POOL: _waits(
        "no node at this moment has the labels that the job selects; the message names the labels, the "
        "nodes that the job needs, and the pools there are",
        "make [the pool](gke.md#2-node-pools), or correct type, topology or `chipsPerHost`; a pool that "
        "scales from zero, or auto-provisioning, may still bring one",
        lacks_nodes=True,
    ),
    Reason.INSUFFICIENT_CAPACITY: _waits(
        "nodes match but are taken, as the scheduler says, or too small for the job's cpu, memory or chips: "
        "then the message has what the largest offers; or none of them is in service",
        "wait, stop another job, or add a pool; where the nodes are too small, ask for less or add larger "
        "ones. If the pool should grow: "
        "`kubectl get events --field-selector=reason=NotTriggerScaleUp`",
        lacks_nodes=True,
    ),
    Reason.UNTOLERATED_TAINT: _waits(
        "no matching node can be used, and some only for a taint that the job doesn't tolerate; the "
        "message names it, and counts nodes that aren't ready or are cordoned",
        "tolerate it in `placement.tolerations`; for `cloud.google.com/gke-spot` don't say `preemptible: "
        "false`",
        lacks_nodes=True,
    ),
    Reason.UNSCHEDULABLE: _waits(
        "no node takes the pods, in the scheduler's own words: for another reason than room, such as hosts "
        "that may not be neighbours, or for one that isn't known where "
        "[nodes can't be read](../charts/fray/README.md#some-namespaces)",
        "read the words; compare `fray explain -f job.yaml` with `kubectl get nodes --show-labels`",
        lacks_nodes=True,
    ),
    Reason.PODS_UNPLACEABLE: _waits(
        "the scheduler has looked at no node, for something that is wrong with the pods: mostly a "
        "PersistentVolumeClaim or ResourceClaim is missing or not bound; the message has its words",
        "create or correct what the message names; more nodes don't help",
    ),
    Reason.NODES_AVOIDED: _waits(
        "no other node takes the pods, and they keep off nodes on which hosts of two attempts failed "
        "because the node is broken; the message names the nodes, and until when",
        "repair or replace them, or add nodes; when the first may be used again, the attempt ends, charged "
        "to nothing, and the next one starts. So it does when `timeouts.pendingSeconds` is over before, and "
        "the next one may use them all. [More](#nodes-that-are-avoided)",
        charge=VerdictKind.UNPLACED,
    ),
    Reason.SCHEDULING_GATED: _waits(
        "the pods carry the scheduling gates that the message names, so no scheduler has looked at them",
        "the program or person that set the gates must remove them; more nodes don't help",
    ),
    Reason.CREATING_NODE_POOLS: _waits(
        "no node takes the pods, and the operator has asked GKE for "
        "[node pools](node-pools.md#by-the-operator), or waits for another operation of the cluster; the "
        "message says which",
        "wait: a pool takes minutes, slices of many hosts longer. Allow for it in `timeouts.pendingSeconds`",
        event=EventType.NORMAL,
        event_key="pools",
        lacks_nodes=True,
        told_by_provider=True,
    ),
    Reason.NODE_POOLS_REFUSED: _waits(
        "no node takes the pods, and GKE refused the node pools or gave them up: no quota, no machines, no "
        "right. The message begins with [GKE's reason](node-pools.md#what-gke-says) and says when it is "
        "tried again",
        "do what the message says; once the cause is gone, the next try succeeds by itself",
        event_key="pools-refused",
        lacks_nodes=True,
        told_by_provider=True,
    ),
    Reason.NODE_POOL_LIMIT: _waits(
        "no node takes the pods, and the node pools that the job needs are more than the operator may make "
        "([the chart's](node-pools.md#by-the-operator) `nodePools.maxChips` and `maxPools`)",
        "stop another job and wait until its pools are idle, or raise the limit",
        event_key="pool-limit",
        lacks_nodes=True,
        told_by_provider=True,
    ),
    Reason.QUOTA_EXCEEDED: _waits(
        "a ResourceQuota of the namespace is used up",
        "`kubectl describe resourcequota`; end something or raise it",
        refuses=True,
    ),
    Reason.IMAGE_PULL_FAILED: _waits(
        "the image's name is wrong, or the nodes may not read it",
        "check the name and [the nodes' right to read it](gke.md#4-images)",
        stands_on=_ON_ITS_NODE,
    ),
    Reason.CONTAINER_CONFIG_INVALID: _waits(
        "the container can't be set up, mostly because of a Secret, ConfigMap or key that is missing",
        "create what the message names",
        stands_on=_ON_ITS_NODE,
    ),
    Reason.VOLUME_MOUNT_FAILED: _waits(
        "the pods are on their nodes, but a volume can't be mounted, mostly because its Secret, ConfigMap "
        "or key is missing; the message names the volume and what is missing",
        "create what the message names; the pods start by themselves within two minutes. A Secret "
        "`NAME-payload-...` never comes: the program that launched the job was killed in that moment, so "
        "stop the job and launch it anew",
        stands_on=_ON_ITS_NODE,
    ),
    Reason.SIDECAR_FAILING: _waits(
        "a further container of `podTemplate` ends again and again; the message names it, a pod and its "
        "exit code. The job runs on, unless the sidecar never got as far as to let it start",
        "`kubectl logs POD -c SIDECAR --previous`; correct it, and make the job anew",
        stands_on=_ON_ITS_NODE,
    ),
    Reason.ADMISSION_REFUSED: _waits(
        "the API server or a webhook refused the JobSet or its pods; the message has its words",
        "often the account `fray-job` that is [missing in the namespace](gke.md#5-fray), a policy such as "
        "Pod Security, or JobSet's webhook being down",
        refuses=True,
    ),
    Reason.NAME_TAKEN: _waits(
        "a JobSet of the attempt's name exists and isn't this job's",
        "delete it, or wait until it is gone",
        refuses=True,
    ),
    Reason.HOSTS_LEFT_OVER: _waits(
        "pods of an earlier attempt, or of a deleted job of the same name, may still run; no attempt "
        "starts beside them",
        "wait until they are gone; pods whose node is silent or removed aren't waited for longer than a "
        "minute, or five past their deletion where [nodes can't be "
        "read](../charts/fray/README.md#some-namespaces)",
        event=EventType.NORMAL,
        refuses=True,
    ),
    Reason.BACK_OFF: _waits(
        "the last attempt ended, the next one starts at the time in the message",
        "wait, or read why: `kubectl get frayjob NAME -o yaml`, `status.attempts`",
        event=None,
    ),
    Reason.SUSPENDED: _waits(
        "`spec.suspend` is true; of an attempt also: somebody else suspended its JobSet, mostly Kueue, "
        "whose reason the message has then. That is charged to no budget, and the next attempt queues at "
        "once, in the place of this one where Kueue keeps its JobSet",
        '`kubectl patch frayjob NAME --type=merge -p \'{"spec":{"suspend":false}}\'`',
        event=None,
        stands_on=_SUSPENDED,
        charge=VerdictKind.SUSPENDED,
    ),
    Reason.POD_TEMPLATE_INVALID: _waits(
        "`spec.podTemplate` can't be merged into the pods; the message names each field and what it must be",
        "correct it",
        stands_on=_REFUSED,
    ),
    # --- what another version wrote -------------------------------------------------------------------------
    Reason.STATUS_UNREADABLE: ReasonRow(
        "the status has a word that this version of the operator doesn't know, or a time that is none; the "
        "condition `StatusReadable` names it. No attempt is judged or started, and what runs, runs on",
        "run the version that wrote it, or a newer one, or correct the status. `spec.stopped`, "
        "`spec.suspend`, deletion and `ttlSecondsAfterFinished` work until then",
        stands_on=(ConditionType.STATUS_READABLE,),
        event=EventType.WARNING,
    ),
    # --- how an attempt, or the job, ended ------------------------------------------------------------------
    Reason.COMPLETED: ReasonRow(
        "every host exited with 0",
        "-",
        stands_on=(ConditionType.FINISHED, ConditionType.SUCCEEDED),
        charge=VerdictKind.SUCCESS,
        ends_by_itself=True,
    ),
    Reason.NON_ZERO_EXIT: _fails(
        "a host exited with another code; the message names the first rank that failed, and "
        "`status.attempts[].logTail` has its last lines",
        "fix the program; `retries.failures` tries again",
        certain=False,
    ),
    Reason.KILLED_BY_SIGNAL: _fails(
        "a host was killed: 143 is SIGTERM, 137 SIGKILL",
        "the program itself, or somebody on its node: `kubectl describe pod`, `kubectl get events`",
        certain=False,
    ),
    Reason.DISRUPTED: _fails(
        "a host was taken away: a spot node taken back, a drain, a lost node, an eviction, a pod of higher "
        "priority, a kubelet that refused the pod, or a node whose runtime couldn't start it (broken GPUs, "
        "a full disk, no answer in time); the message names the rank and the sign",
        "nothing: the next attempt starts by itself",
        charge=VerdictKind.PREEMPTION,
    ),
    Reason.OUT_OF_MEMORY: _fails(
        "the kernel killed a host that went over its memory",
        "ask for more `resources.memory`; TPU hosts: load less per host",
        own_doing=True,
    ),
    Reason.EVICTED: _fails(
        "the kubelet ended a host for what that used itself: more than it asked for of what its node was "
        "short of, or more disk than its limit; the message has the figures",
        "ask for more `resources.memory` or `resources.disk`, or use less",
        own_doing=True,
    ),
    Reason.HOSTS_GONE: _fails(
        "pods, or what makes them, were deleted from outside",
        "find out who deletes JobSets or pods; the next attempt starts by itself",
        charge=VerdictKind.PREEMPTION,
        ends_by_itself=False,
    ),
    Reason.WORKERS_FAILED: _fails(
        "worker pods crashed eight times, or couldn't pull their image within `timeouts.pendingSeconds`, and "
        "none ever took a task; the message has the last one's story",
        "correct what the log says is wrong, such as the workers' image or packages",
        ends_by_itself=False,
    ),
    Reason.WORKER_IMAGE_MISMATCH: _fails(
        "the workers' image lacks the package of their engine, or has another version of it, of Python or of "
        "Fray than the head; none ever took a task",
        "the message says which, and what to write into `workers.environment`",
        final=True,
        ends_by_itself=False,
    ),
    Reason.EXCLUSIVE_PLACEMENT_VIOLATION: _fails(
        "a host was placed outside its slice's node pool, and JobSet removed it",
        "give each slice a node pool of its own, free of other work, and create the job anew",
        charge=VerdictKind.MISPLACEMENT,
        charge_note="at most ten",
        ends_by_itself=False,
    ),
    Reason.START_FAILED: _fails(
        "the command could not be started, or the kubelet refused what the pod asks for, such as a sysctl",
        "check `entrypoint.command`, or use an image that has it; functions need one with `python3`, and "
        "the message says so where it is missing",
    ),
    Reason.WORKSPACE_INVALID: _fails(
        "the job's workspace isn't where its pods look for it, isn't what was launched, or is no tar; the "
        "entrypoint never ran",
        "the message says which; launch the job anew, or give its pods the right to read the URL, and an "
        "image with fsspec and the package of its scheme",
        unrun="got no workspace",
        exit_codes=(EXIT_WORKSPACE,),
    ),
    Reason.PACKAGES_NOT_INSTALLED: _fails(
        "uv couldn't find or build a package of `pipPackages` or `extras`, or the image's Python can't be "
        "written to; the entrypoint never ran",
        "the message has uv's words. Correct the name, name another index (`UV_INDEX_URL`), or put the "
        "packages into the image",
        unrun="couldn't install its packages",
        exit_codes=(EXIT_PACKAGES,),
    ),
    Reason.PAYLOAD_MISSING: _fails(
        "the job's callable wasn't where its pods look for it: not in its Secrets, or not at its staging "
        "URL, or that couldn't be read; it never ran",
        "the message says what is missing; launch the job anew, or give its pods the right to read the URL",
        unrun="never ran its program",
        exit_codes=(EXIT_PAYLOAD_MISSING,),
    ),
    Reason.PAYLOAD_INVALID: _fails(
        "what was there isn't what was launched, or can't be unpickled; the callable never ran",
        "launch the job anew; the message says which versions differ, or whose code failed",
        final=True,
        own_doing=True,
        unrun="never ran its program",
        exit_codes=(EXIT_PAYLOAD_CHANGED, EXIT_PAYLOAD_UNREADABLE),
    ),
    Reason.IMAGE_MISMATCH: _fails(
        "the image has another minor version of Python than the program that launched the job, or lacks a "
        "module that the callable needs, or the package of the workers' engine; the program never ran",
        "the message says which; use an image that has it, or name it in the job's environment",
        final=True,
        own_doing=True,
        unrun="never ran its program",
        exit_codes=(EXIT_PAYLOAD_PYTHON, EXIT_PAYLOAD_CODE),
    ),
    Reason.DEADLINE_EXCEEDED: _fails(
        "a host ran longer than `activeDeadlineSeconds` of `podTemplate.spec`, and the kubelet ended it",
        "raise it, or leave it out for `timeouts.activeSeconds`, which counts from when all hosts run",
    ),
    Reason.PENDING_TIMEOUT: _fails(
        "the hosts didn't all run within `timeouts.pendingSeconds`, which counts from the moment they were "
        "asked for and out of their queue; for another reason than `NodesAvoided`",
        "see why it waited, above; allow more time for pools that have to be made",
        ends_by_itself=False,
        timeout=True,
    ),
    Reason.ACTIVE_TIMEOUT: _fails(
        "the attempt ran longer than `timeouts.activeSeconds`",
        "raise it, or find what hangs: a lost peer often shows as a collective that never ends",
        ends_by_itself=False,
        timeout=True,
    ),
    Reason.TOTAL_TIMEOUT: _fails(
        "all attempts together took longer than `timeouts.totalSeconds`",
        "raise it",
        final=True,
        ends_by_itself=False,
        timeout=True,
    ),
    Reason.STOP_REQUESTED: ReasonRow(
        "somebody set `spec.stopped`, or deleted the FrayJob, which something still holds; or the job that "
        "launched it (`spec.parent`) failed, was stopped or deleted. The message says which",
        "a finalizer that holds it is removed by the program that set it: `kubectl get frayjob NAME -o "
        "jsonpath='{.metadata.finalizers}'`",
        stands_on=(ConditionType.FINISHED, ConditionType.STOPPED),
        charge=VerdictKind.STOPPED,
        final=True,
    ),
    Reason.RUNNER_LOST: ReasonRow(
        "local jobs only: the `fray run` process is gone",
        "run it again",
        stands_on=_FAILED,
    ),
}

_UNKNOWN: Final = ReasonRow()
_ROWS: Final = {reason.value: row for reason, row in REASONS.items()}
_UNRUN: Final = {code: reason for reason, row in REASONS.items() for code in row.exit_codes}


def find_unrun(exit_code: int | None) -> Reason | None:
    """Return why a host never ran its entrypoint, by the exit code of Fray's own program in it."""
    return _UNRUN.get(exit_code) if exit_code is not None else None


def get_row(word: str | None) -> ReasonRow:
    """Return the row of a reason that stands in a status; an empty one for a word of another version."""
    return _ROWS.get(word or "", _UNKNOWN)
