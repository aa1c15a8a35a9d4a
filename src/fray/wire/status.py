"""The status of a FrayJob: conditions, counts and the story of its attempts.

Verdicts and counters here are state; everything else is derived anew on each pass (`fray.plan.status`).
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from fray.wire.model import WireModel, keyed_by

__all__ = [
    "AttemptStatus",
    "AvoidedNode",
    "Condition",
    "Count",
    "Disruption",
    "FrayJobStatus",
    "NodeFault",
    "ReplicaCounts",
    "RetryCounts",
    "WorkerCounts",
]

AttemptNumber: TypeAlias = Annotated[int, Field(ge=1)]
Count: TypeAlias = Annotated[int, Field(ge=0)]


class Condition(WireModel):
    """A Kubernetes condition (metav1.Condition)."""

    type: str
    """Accepted, Scheduled, Running, WorkersReady, Suspended, Finished, Succeeded, Failed, Stopped, or
    StatusReadable."""
    status: str
    """"True", "False" or "Unknown"."""
    reason: str
    """One stable word; docs say what to do about each."""
    message: str = ""
    """One English sentence."""
    last_transition_time: str
    """When the status of this condition last changed."""
    observed_generation: int | None = None
    """The generation of the spec that this is about."""


class ReplicaCounts(WireModel):
    """Hosts of the current attempt, by state."""

    total: Count = 0
    """All hosts of the gang."""
    pending: Count = 0
    """Hosts that don't run yet."""
    running: Count = 0
    """Hosts that run."""
    succeeded: Count = 0
    """Hosts that ended with exit code 0."""
    failed: Count = 0
    """Hosts that ended otherwise."""


class WorkerCounts(WireModel):
    """Workers of the in-job pool."""

    demand: Count = 0
    """Worker pods that spec.workers.replicas asks for."""
    desired: Count = 0
    """Worker pods that there are to be: that many, within minReplicas and maxReplicas."""
    replicas: Count = 0
    """Worker pods that exist, but for those that are leaving."""
    ready: Count = 0
    """Worker pods that take tasks."""
    draining: Count = 0
    """Worker pods that are leaving: they take no more tasks and hand over what they have."""
    selector: str = ""
    """Label selector of the worker pods, for autoscalers."""


class NodeFault(WireModel):
    """A node on which a host failed because the node is broken."""

    node: str
    """Name of the node."""
    node_pool: str | None = None
    """Its node pool, where a slice of several hosts stood in it."""
    fault: str
    """What is wrong with it."""


class Disruption(WireModel):
    """A sign that a host is taken away from outside."""

    rank: Count
    """Rank of the host."""
    pod: str | None = None
    """Its pod."""
    node: str | None = None
    """Node of that pod."""
    kind: str
    """What takes it, in one word."""
    time: str | None = None
    """When the sign was put there."""
    message: str
    """The sign, in the words of who takes it away."""


class AttemptStatus(WireModel):
    """One attempt: when, how it ended, and its first cause."""

    number: AttemptNumber
    """Number of the attempt, from 1."""
    job_set: str | None = None
    """Name of the attempt's JobSet."""
    start_time: str | None = None
    """When the attempt was started."""
    running_time: str | None = None
    """When all its hosts ran."""
    workers_time: str | None = None
    """When the first of its workers was ready."""
    end_time: str | None = None
    """When the attempt ended."""
    verdict: str | None = None
    """The charge: Success, Failure, Preemption, Misplacement, Unplaced, Suspended or Stopped."""
    reason: str | None = None
    """One stable word for the first cause."""
    message: str | None = None
    """One sentence on the first cause."""
    log_tail: list[str] = []
    """The last lines of the log of what ended first."""
    pod: str | None = None
    """Pod (local backend: host) that ended first."""
    node: str | None = None
    """Node of that pod."""
    rank: Count | None = None
    """Rank of that pod in the gang."""
    exit_code: int | None = None
    """Exit code of that pod's main container."""
    outcome: str | None = None
    """sha256 of the pickled outcome of a callable."""
    disruption: Disruption | None = None
    """A host that is being taken away, while the attempt has no verdict: its pod may be gone before that."""
    node_faults: Annotated[list[NodeFault], keyed_by("node")] = []
    """Broken nodes on which hosts of it failed, at most 10."""

    @property
    def story(self) -> str:
        """The sentence on the first cause, and the lines of its log."""
        return "\n".join([self.message or "", *self.log_tail])


class AvoidedNode(WireModel):
    """A node that the next attempts keep off."""

    node: str
    """Name of the node."""
    node_pool: str | None = None
    """Its node pool, which is avoided as a whole: a slice of several hosts needs all of its nodes."""
    until: str
    """When it may be used again."""
    reason: str
    """Why it is avoided."""


class RetryCounts(WireModel):
    """What has been charged to the budgets of spec.retries."""

    failures_used: Count = 0
    """Attempts charged to retries.failures."""
    preemptions_used: Count = 0
    """Attempts charged to retries.preemptions."""
    misplacements_used: Count | None = None
    """Attempts charged to neither: hosts stood in another slice's node pool. The 10th ends the job."""


class FrayJobStatus(WireModel):
    """What has become of a FrayJob."""

    phase: str | None = None
    """One word for printing; derived from the conditions."""
    attempt: AttemptNumber | None = None
    """Number of the current or last attempt; for printing."""
    reason: str | None = None
    """Reason of the condition that tells most about the phase; for printing."""
    observed_generation: int | None = None
    """The generation of the spec that this status is about."""
    start_time: str | None = None
    """When the first attempt started."""
    completion_time: str | None = None
    """When the job finished, however it ended."""
    conditions: Annotated[list[Condition], keyed_by("type")] = []
    """Accepted, Scheduled, Running, WorkersReady, Suspended, Finished, and Succeeded, Failed or Stopped."""
    ready: str | None = None
    """Hosts of the current attempt that run, of all, such as 3/8; for printing, and as old as `replicas`."""
    replicas: ReplicaCounts | None = None
    """Hosts of the current attempt, by state; up to 30 s old while hosts start or end one by one."""
    workers: WorkerCounts | None = None
    """Workers of the in-job pool; unset in a job that can't have any."""
    attempts: Annotated[list[AttemptStatus], keyed_by("number")] = []
    """The last 10 attempts, oldest first."""
    avoided_nodes: Annotated[list[AvoidedNode], keyed_by("node")] = []
    """Nodes that the next attempts keep off."""
    retries: RetryCounts | None = None
    """What has been charged to the budgets of spec.retries."""
