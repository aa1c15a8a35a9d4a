"""The FrayJob resource: one job, its hardware, its code and its policies.

These models are the source of `crds/frayjobs.fray.dev.yaml`. What a FrayJob means is decided in
`fray.plan`; which combinations are refused stands in `fray.wire.rules`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, WithJsonSchema

from fray.wire.model import LabelledName, LabelValue, ObjectName, Sha256, WireModel, keyed_by
from fray.wire.pod import ContainerPort, EnvFromSource, EnvVar, Resources, Toleration
from fray.wire.pod_schema import POD_TEMPLATE
from fray.wire.status import FrayJobStatus

__all__ = [
    "CallableEntrypoint",
    "Entrypoint",
    "Environment",
    "FrayJob",
    "FrayJobSpec",
    "ObjectMeta",
    "Parent",
    "Placement",
    "Queue",
    "Retries",
    "Timeouts",
    "Workers",
    "Workspace",
]

Argument = Annotated[str, Field(max_length=131072)]


class CallableEntrypoint(WireModel):
    """A Python callable that the client pickled. Exactly one of secretName and url."""

    secret_name: ObjectName | None = None
    """Secret with the pickled callable; it is owned by this FrayJob."""
    more_secrets: Annotated[list[ObjectName], Field(max_length=63)] = []
    """Secrets with the rest of a callable that is too large for one."""
    url: Annotated[str | None, Field(min_length=1, max_length=2048)] = None
    """Address of the pickled callable in storage that fsspec can read."""
    sha256: Sha256
    """Digest of the payload, checked in the pod before anything is unpickled."""
    python: Annotated[str, Field(max_length=8, pattern=r"^3\.(1[1-9]|[2-9][0-9])$")]
    """Python minor version that pickled it, such as "3.11"; the image must have the same."""
    results_url: Annotated[str | None, Field(min_length=1, max_length=2048)] = None
    """Directory, in storage that fsspec can write, for a returned value of more than 1 MB."""


class Entrypoint(WireModel):
    """What every host runs. Exactly one of command and callable."""

    command: Annotated[list[Argument] | None, Field(min_length=1, max_length=1024)] = None
    """Program and arguments, run as they are in any image (no shell, no Fray or Python needed)."""
    callable: CallableEntrypoint | None = None
    """A Python callable, written by the fray client."""


class Placement(WireModel):
    """Where the job's pods may run."""

    preemptible: bool = True
    """true tolerates spot nodes, false keeps off them."""
    spot: Literal["Allowed", "Required"] = "Allowed"
    """Required asks for spot nodes and nothing else."""
    regions: Annotated[list[Annotated[LabelValue, Field(min_length=1)]], Field(max_length=32)] = []
    """Regions the pods may run in; any when empty."""
    zones: Annotated[list[Annotated[LabelValue, Field(min_length=1)]], Field(max_length=32)] = []
    """Zones the pods may run in; any when empty."""
    node_pool: Annotated[LabelValue, Field(min_length=1)] | None = None
    """The one node pool to run on."""
    reservation: Annotated[
        str | None,
        Field(max_length=253, pattern=r"^(projects/[-a-z0-9.:]+/reservations/)?[a-z]([-a-z0-9]*[a-z0-9])?$"),
    ] = None
    """Compute Engine reservation to consume: NAME, or projects/PROJECT/reservations/NAME."""
    flex_start: Literal["Required", "Queued"] | None = None
    """Required asks for flex-start nodes and nothing else, Queued for those that Kueue asks for at once."""
    compute_class: Annotated[LabelValue, Field(min_length=1)] | None = None
    """GKE compute class that chooses the nodes."""
    node_selector: Annotated[dict[str, LabelValue], Field(max_length=64)] = {}
    """Further node labels to require."""
    tolerations: Annotated[list[Toleration], Field(max_length=64)] = []
    """Further node taints to tolerate."""


class Workspace(WireModel):
    """An archive of the user's code, unpacked before the entrypoint. Exactly one of secretName and url."""

    secret_name: ObjectName | None = None
    """Secret with the archive, a tar, under any one key."""
    more_secrets: Annotated[list[ObjectName], Field(max_length=63)] = []
    """Secrets with the rest of an archive that is too large for one."""
    url: Annotated[str | None, Field(min_length=1, max_length=2048)] = None
    """Address of the archive in object storage."""
    sha256: Sha256
    """Digest of the archive, checked before it is unpacked."""


class Environment(WireModel):
    """The image, variables and packages of the job's processes."""

    image: Annotated[str | None, Field(min_length=1, max_length=1024)] = None
    """Container image; the operator's default runtime image when unset."""
    env: Annotated[list[EnvVar], keyed_by("name", most=1024)] = []
    """Environment variables. They win over those that Fray sets, except the identity of the host (FRAY_*)."""
    env_from: Annotated[list[EnvFromSource], Field(max_length=64)] = []
    """Secrets and ConfigMaps whose keys become environment variables."""
    pip_packages: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=1024)]], Field(max_length=256)
    ] = []
    """Python packages to install before the entrypoint starts."""
    extras: Annotated[list[Annotated[str, Field(min_length=1, max_length=253)]], Field(max_length=64)] = []
    """Extras of the workspace's own project to install."""
    workspace: Workspace | None = None
    """The user's code."""
    setup: Annotated[list[Annotated[str, Field(min_length=1, max_length=65536)]], Field(max_length=64)] = []
    """Shell commands (sh) run in the container before the entrypoint; one that fails ends the attempt."""
    cache_volume: ObjectName | None = None
    """PersistentVolumeClaim that keeps downloaded packages between attempts."""


class Workers(WireModel):
    """The in-job pool: pods beside the gang that run tasks and actors of the job."""

    replicas: Annotated[int, Field(ge=0, le=100000)] = 0
    """Worker pods asked for; what `kubectl scale` changes, or the job's own head where maxReplicas is set.

    There are as many, but no fewer than minReplicas and no more than maxReplicas.
    """
    min_replicas: Annotated[int, Field(ge=0, le=100000)] = 0
    """Least number of workers."""
    max_replicas: Annotated[int | None, Field(ge=0, le=100000)] = None
    """Largest number of workers; unlimited when unset. Where it is set, the head of the pool writes replicas.

    Without it users or a HorizontalPodAutoscaler do.
    """
    idle_seconds: Annotated[int, Field(ge=0, le=86400)] = 60
    """For how long there must have been less work before the head asks for fewer workers."""
    engine: Literal["fray", "ray", "dask"] = "fray"
    """What runs on the workers."""
    resources: Resources = Resources()
    """Resources of one worker pod."""
    placement: Placement | None = None
    """Where the worker pods may run; nothing is taken over from the job's."""
    environment: Environment | None = None
    """What differs from the job's environment: fields that are set win, and so do variables of a name."""
    pod_template: Annotated[dict[str, Any], WithJsonSchema(POD_TEMPLATE)] | None = None
    """Overlay on the worker pods' template, as the job's own, which they don't have."""


NO_WORKERS: Final = Workers(max_replicas=0)


class Retries(WireModel):
    """How often the job is tried again. Failures and preemptions have budgets of their own."""

    failures: Annotated[int, Field(ge=0, le=1000000)] = 0
    """Retries after the job's own failures: exit codes, exceptions, out of memory, timeouts of an attempt."""
    preemptions: Annotated[int, Field(ge=0, le=1000000)] = 100
    """Retries after disruptions: spot preemption, drain, lost nodes."""


TimeLimit = Annotated[int, Field(ge=1, le=2147483647)]


class Timeouts(WireModel):
    """Time limits in whole seconds; none when unset."""

    pending_seconds: TimeLimit | None = None
    """For an attempt, from the moment its hosts are asked for and out of their queue, until all run."""
    active_seconds: TimeLimit | None = None
    """For an attempt, from the moment all its hosts run."""
    total_seconds: TimeLimit | None = None
    """For the whole job with all its attempts and the pauses between them."""


class Parent(WireModel):
    """The job that launched this one."""

    name: ObjectName
    """Name of the parent job, in the same namespace; this one is stopped unless that succeeds and stays."""
    root: ObjectName
    """Name of the job at the top of the tree; names of actors are scoped by it."""


class Queue(WireModel):
    """Admission by Kueue."""

    name: LabelledName
    """LocalQueue in the job's namespace."""
    priority_class: LabelledName | None = None
    """WorkloadPriorityClass. A change counts from the next attempt."""


class FrayJobSpec(WireModel):
    """What to run, on what, and how often.

    Immutable but for suspend, stopped, ttlSecondsAfterFinished, retries, timeouts, queue.priorityClass and
    workers.replicas.
    """

    entrypoint: Entrypoint
    """What every host runs. Exactly one of command and callable."""
    replicas: Annotated[int, Field(ge=1, le=10000)] = 1
    """TPU: number of slices. GPU: hosts of one gang. CPU: copies of one gang.

    All start together; one that fails ends the attempt.
    """
    resources: Resources = Resources()
    """Resources of one host."""
    placement: Placement = Placement()
    """Where the job's pods may run."""
    environment: Environment = Environment()
    """The image, variables and packages of the job's processes."""
    service_account_name: ObjectName | None = None
    """ServiceAccount of the job's pods; the operator's default when unset."""
    workers: Workers = NO_WORKERS
    """The in-job pool; without one, maxReplicas is 0."""
    retries: Retries = Retries()
    """How often the job is tried again."""
    timeouts: Timeouts = Timeouts()
    """Time limits."""
    ports: Annotated[list[ContainerPort], keyed_by("name", most=64)] = []
    """Named TCP ports on which every host listens."""
    parent: Parent | None = None
    """The job that launched this one; set by the fray client for child jobs."""
    ttl_seconds_after_finished: Annotated[int | None, Field(ge=0, le=2147483647)] = None
    """Seconds after which a finished job is deleted with its pods; kept when unset.

    0 deletes it at once. A job is kept until the jobs that it launched have finished too.
    """
    suspend: bool = False
    """true ends the current attempt and starts none until it is false again."""
    stopped: bool = False
    """true terminates the job for good; the object and its status stay."""
    queue: Queue | None = None
    """Admission by Kueue."""
    pod_template: Annotated[dict[str, Any], WithJsonSchema(POD_TEMPLATE)] | None = None
    """Overlay on the pods' template (metadata, spec), merged by container, env and volume names."""


class ObjectMeta(WireModel):
    """The part of the object's metadata that Fray reads."""

    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[dict[str, Any]] = []
    finalizers: list[str] = []


class FrayJob(WireModel):
    """A job that runs on one gang of hosts: TPU slices, GPU hosts or plain copies."""

    api_version: Literal["fray.dev/v1alpha1"] = "fray.dev/v1alpha1"
    kind: Literal["FrayJob"] = "FrayJob"
    metadata: ObjectMeta
    spec: FrayJobSpec
    """What to run, on what, and how often."""
    status: FrayJobStatus = FrayJobStatus()
    """What has become of it. Written by the operator."""
