"""The FrayActor resource: a named actor, or a group of them, that jobs share.

These models are the source of `crds/frayactors.fray.dev.yaml`. What a FrayActor means is decided in
`fray.plan.actors`; which combinations are refused stands in `fray.wire.rules`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from fray.vocabulary import FRAYACTOR_KIND, FRAYACTOR_PLURAL, FRAYACTOR_SHORT_NAME, FRAYJOB_KIND
from fray.wire.frayjob import CallableEntrypoint, Environment, ObjectMeta, Placement
from fray.wire.model import CustomKind, ObjectName, WireModel, keyed_by
from fray.wire.pod import Resources
from fray.wire.status import AvoidedNode, Condition, Count

__all__ = [
    "FRAYACTOR",
    "ActorEntrypoint",
    "ActorError",
    "FrayActor",
    "FrayActorSpec",
    "FrayActorStatus",
    "HostedEntrypoint",
    "MemberFault",
    "MemberStatus",
]

CLASS_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*$"


class HostedEntrypoint(WireModel):
    """The process of a pod that serves an object of its own; written by `host_actor`."""

    pod: ObjectName
    """The pod, with which the actor ends."""
    pod_uid: Annotated[str, Field(min_length=1, max_length=64)]
    """uid of that pod."""
    server: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    """Tells this creation from others of the same pod."""


class ActorEntrypoint(WireModel):
    """What every member of the group is an instance of. Exactly one of callable, class and hosted."""

    callable: CallableEntrypoint | None = None
    """A pickled class with the arguments of its constructor, written by the fray client."""
    class_path: Annotated[str | None, Field(alias="class", max_length=512, pattern=CLASS_PATTERN)] = None
    """A class in the image, as module:Class; its constructor gets no arguments."""
    hosted: HostedEntrypoint | None = None
    """An object of a process that runs already. The actor has no pods of its own, and one member."""


class FrayActorSpec(WireModel):
    """What the members are, on what they run, and for how long.

    Immutable but for replicas, suspend, stopped and ttlSecondsAfterFinished.
    """

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^\x00-\x1f\x7f]*$")]
    """The name by which programs look the actor up, such as train_lm/curriculum."""
    entrypoint: ActorEntrypoint
    """What every member is an instance of. Exactly one of callable, class and hosted."""
    replicas: Annotated[int, Field(ge=0, le=256)] = 1
    """Members of the group; what `kubectl scale` changes. Each has an index, from 0."""
    lifetime: Literal["detached", "job"] = "detached"
    """detached lives until it is deleted or stopped, job ends with the job named by rootJob."""
    root_job: ObjectName | None = None
    """The job at the top of the tree that made it; needed where lifetime is job, and only there."""
    max_concurrency: Annotated[int | None, Field(ge=1, le=100000)] = None
    """Calls that a member runs at once; the class decides when unset, and one on several hosts runs 1."""
    max_restarts: Annotated[int | None, Field(ge=-1, le=1000000)] = None
    """How often a member is started again, in its pod or another one; 0 never, -1 or unset without limit."""
    max_task_retries: Annotated[int | None, Field(ge=-1, le=1000000)] = None
    """How often callers make a call again that was lost with its member, -1 without limit, never when unset.

    Only where a second run of any method does no harm. They also wait so often for a constructor that failed.
    """
    idle_seconds: Annotated[int | None, Field(ge=1, le=31536000)] = None
    """Seconds without a call after which it ends for good: once all members are idle; never when unset."""
    resources: Resources = Resources()
    """Resources of one member. A TPU slice of several hosts is one member, with a pod on each host."""
    placement: Placement = Placement()
    """Where the members' pods may run."""
    environment: Environment = Environment()
    """The image, variables and packages of the members' processes."""
    service_account_name: ObjectName | None = None
    """ServiceAccount of the members' pods; the operator's default for jobs when unset."""
    suspend: bool = False
    """true ends all members and starts none until it is false again; they begin with fresh state."""
    stopped: bool = False
    """true ends the actor for good; the object and its status stay."""
    ttl_seconds_after_finished: Annotated[int | None, Field(ge=0, le=2147483647)] = None
    """Seconds after which a finished actor is deleted; kept when unset."""


class ActorError(WireModel):
    """An exception that ended a member's process."""

    type: str
    """Its class."""
    message: str = ""
    """What it says."""
    traceback: str = ""
    """The end of its traceback."""


class MemberStatus(WireModel):
    """One member of the group: where it is, which incarnation, and how it fares."""

    index: Count
    """Index of the member."""
    pod: str | None = None
    """Its pod; of a TPU slice of several hosts that of the first one, which takes the calls."""
    pod_uid: str | None = None
    """uid of that pod. With startNumber it names the incarnation."""
    node: str | None = None
    """Node of that pod."""
    address: str | None = None
    """IP address of that pod."""
    start_number: Count = 0
    """Which process of the actor in that pod it is, from 1; 0 before the first."""
    ready: bool = False
    """Whether its constructor has returned and it takes calls."""
    attempt: Count = 0
    """Number of the JobSet that it has, or has next, where it is a TPU slice of several hosts; else 0."""
    begun: Count = 0
    """Number of the last JobSet of it that was seen, whether that is there or not; 0 before the first."""
    ends_in_a_row: Count = 0
    """How many of its JobSets ended in a row, each soon after it was made; the pauses grow with it."""
    start_after: str | None = None
    """When its next JobSet may start, while there is a pause before it."""
    failed: bool = False
    """Whether maxRestarts are used up: it isn't started again."""
    ended: bool = False
    """Whether its own code has ended it: it isn't started again."""
    restarts: Count = 0
    """How often it was started again, in its pod or in another one."""
    last_error: ActorError | None = None
    """The exception that ended it last."""
    message: str | None = None
    """Why its pod doesn't run, where that is known."""


class MemberFault(WireModel):
    """A fault of a node that a member's pod met."""

    node: str
    """Name of the node."""
    pod_uid: str
    """uid of the pod."""
    fault: str
    """What is wrong with the node."""


class FrayActorStatus(WireModel):
    """What has become of a FrayActor."""

    observed_generation: int | None = None
    """The generation of the spec that this status is about."""
    ready: str | None = None
    """Members that take calls, of all, such as 3/4; for printing."""
    replicas: Count = 0
    """Members whose pods exist."""
    restarts: Count = 0
    """Restarts of all members."""
    selector: str = ""
    """Label selector of the members' pods, for autoscalers."""
    completion_time: str | None = None
    """When the actor ended."""
    conditions: Annotated[list[Condition], keyed_by("type")] = []
    """Accepted, Ready, Suspended, MultiplePods and Finished."""
    members: Annotated[list[MemberStatus], keyed_by("index")] = []
    """The members, by index."""
    node_faults: list[MemberFault] = []
    """Faults of nodes that one pod of it has met, the last ten."""
    avoided_nodes: list[AvoidedNode] = []
    """Nodes that its next pods keep off: two of its pods failed there because the node is broken."""


class FrayActor(WireModel):
    """A named actor, or a group of them: objects that live in pods of their own and answer calls of jobs."""

    api_version: Literal["fray.dev/v1alpha1"] = "fray.dev/v1alpha1"
    kind: Literal["FrayActor"] = "FrayActor"
    metadata: ObjectMeta
    spec: FrayActorSpec
    """What the members are, on what they run, and for how long."""
    status: FrayActorStatus = FrayActorStatus()
    """What has become of it. Written by the operator."""

    def has_root(self, name: str | None, uid: str | None) -> bool:
        """Return whether a job of this name and uid is its root job.

        Another job may have had the name when the actor was made: the owner reference tells.
        """
        owners = {
            owner["uid"]
            for owner in self.metadata.owner_references
            if owner["kind"] == FRAYJOB_KIND and owner["name"] == name
        }
        return name is not None and self.spec.root_job == name and (not owners or uid in owners)


FRAYACTOR: Final = CustomKind(
    kind=FRAYACTOR_KIND,
    plural=FRAYACTOR_PLURAL,
    short_name=FRAYACTOR_SHORT_NAME,
    model=FrayActor,
    columns=[
        {"name": "Actor", "type": "string", "jsonPath": ".spec.name"},
        {
            "name": "Ready",
            "type": "string",
            "jsonPath": ".status.ready",
            "description": "Members that take calls, of all.",
        },
        {"name": "Restarts", "type": "integer", "jsonPath": ".status.restarts"},
        {
            "name": "Reason",
            "type": "string",
            "jsonPath": '.status.conditions[?(@.type=="Ready")].reason',
            "description": "Why it is ready or not.",
        },
        {"name": "Lifetime", "type": "string", "jsonPath": ".spec.lifetime", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ],
    scale={
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    },
)
