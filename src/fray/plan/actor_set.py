"""The pods of a FrayActor: a StatefulSet of its name, whose pod of an index is that member.

A StatefulSet makes no second pod of an index before the first one is gone, and replaces a lost one without
the back-off of a Job. Its pods are those of a job's workers, but for what they run and when they are ready.
A member that is a TPU slice of several hosts has a JobSet of its own instead: a node pool of its own needs
one, and all of its hosts begin and end together. When there is one is `actor_slices`' to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fray.plan.command import KEYS_MOUNT, PAYLOAD_MOUNT
from fray.plan.environment import EnvEntry, build_accelerator_environment, build_host_environment
from fray.plan.expansion import escape_text
from fray.plan.gang import Gang, derive_gang
from fray.plan.gang_placement import NOTHING_READ, build_gang_placement
from fray.plan.injection import build_module_command, choose_injector
from fray.plan.jobset import build_jobset
from fray.plan.manifests import build_controller
from fray.plan.names import build_cluster_addresses, build_jobset_name
from fray.plan.placement import NodePlacement, build_placement
from fray.plan.pod import build_pod_template
from fray.plan.pool import build_ready_probe
from fray.plan.settings import PlanSettings
from fray.vocabulary import (
    ACTOR_PORT,
    ACTOR_READY_PORT,
    ANNOTATION_AVOIDED,
    ENV_ACTOR_CLASS,
    ENV_ACTOR_IDLE_SECONDS,
    ENV_ACTOR_INDEX,
    ENV_ACTOR_LABEL,
    ENV_ACTOR_MAX_CONCURRENCY,
    ENV_ACTOR_MAX_RESTARTS,
    ENV_ACTOR_NAME,
    ENV_ACTOR_PAYLOAD,
    ENV_ACTOR_PAYLOAD_PYTHON,
    ENV_ACTOR_PAYLOAD_SHA256,
    ENV_ACTOR_POD_UID,
    ENV_ACTOR_UID,
    ENV_ATTEMPT,
    ENV_POD_IP,
    ENV_POD_NAME,
    ENV_POOL_KEY,
    ENV_ROOT_JOB,
    LABEL_ACTOR,
    LABEL_ACTOR_UID,
    LABEL_ATTEMPT,
    LABEL_MANAGED_BY,
    LABEL_POD_INDEX,
    MANAGED_BY,
    Role,
)
from fray.wire.frayactor import ActorEntrypoint, FrayActor, FrayActorStatus
from fray.wire.frayjob import Entrypoint, FrayJob, FrayJobSpec, Workers

__all__ = [
    "build_actor_labels",
    "build_actor_set",
    "build_actor_slice",
    "build_slice_name",
    "derive_member",
    "name_avoided",
]

MODULE: Final = "fray.runtime.actors.pod"


def build_actor_labels(actor: FrayActor) -> dict[str, str]:
    """Return the labels of an actor's pods, by which its StatefulSet selects them.

    The uid is among them: a pod that was left of an actor of this name isn't one of this actor's.
    """
    return {
        LABEL_ACTOR: actor.metadata.name,
        LABEL_ACTOR_UID: actor.metadata.uid or "",
        LABEL_MANAGED_BY: MANAGED_BY,
    }


def name_avoided(status: FrayActorStatus) -> str:
    """Return the names of the nodes that members keep off, as their StatefulSet bears them."""
    return ",".join(sorted(entry.node for entry in status.avoided_nodes))


def derive_member(actor: FrayActor) -> Gang:
    """Return the shape of one member; for errors see `derive_gang`. Of several hosts it is a TPU slice."""
    return derive_gang(_build_spec(actor))


def build_actor_set(actor: FrayActor, *, replicas: int, settings: PlanSettings) -> dict[str, Any]:
    """Return the StatefulSet of an actor's members, which keep off the nodes that its status says to avoid.

    Raises `UnknownAcceleratorError` or `AcceleratorShapeError` for hardware that doesn't exist; a spec that
    the API server accepted never does.
    """
    labels = build_actor_labels(actor)
    shape = derive_member(actor)
    entries = build_accelerator_environment(shape, metadata_server=settings.metadata_server)
    placement = build_placement(actor.spec.placement, shape, avoided=actor.status.avoided_nodes)
    template = _build_template(actor, shape, entries, placement, labels=labels, settings=settings)
    template["spec"]["restartPolicy"] = "Always"  # a StatefulSet takes no other
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": actor.metadata.name,
            "namespace": actor.metadata.namespace,
            "labels": labels,
            "annotations": {ANNOTATION_AVOIDED: name_avoided(actor.status)},
            "ownerReferences": [build_controller(actor.api_version, actor.kind, actor.metadata)],
        },
        "spec": {
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }


def build_slice_name(actor: FrayActor, *, index: int, attempt: int) -> str:
    """Return the name of the JobSet number `attempt` of a member."""
    return build_jobset_name(f"{actor.metadata.name}-{index}", attempt=attempt, gang=derive_member(actor))


def build_actor_slice(
    actor: FrayActor, *, index: int, attempt: int, settings: PlanSettings
) -> dict[str, Any]:
    """Return the JobSet of a member that is a TPU slice of several hosts: number `attempt`, from 1.

    Its pods keep off the nodes that the actor's status says to avoid. Raises what `build_actor_set` raises.
    """
    gang = derive_member(actor)
    name = build_slice_name(actor, index=index, attempt=attempt)
    labels = {**build_actor_labels(actor), LABEL_POD_INDEX: str(index), LABEL_ATTEMPT: str(attempt)}
    placement = build_placement(actor.spec.placement, gang, avoided=actor.status.avoided_nodes)
    together = build_gang_placement(gang, NOTHING_READ, queue=None, selector=placement.selector)
    entries = [
        EnvEntry(ENV_ATTEMPT, "counts the JobSets of this member from 1", str(attempt)),
        EnvEntry(ENV_POD_NAME, "callers from outside reach it by its pod's name", path="metadata.name"),
        *build_host_environment(
            gang, build_cluster_addresses(name), metadata_server=settings.metadata_server
        ),
    ]
    template = _build_template(actor, gang, entries, placement, labels=labels, settings=settings)
    metadata = {
        "name": name,
        "namespace": actor.metadata.namespace,
        "labels": labels,
        "annotations": together.jobset_annotations,
        "ownerReferences": [build_controller(actor.api_version, actor.kind, actor.metadata)],
    }
    return build_jobset(metadata, gang, template, labels=labels)


def _build_template(
    actor: FrayActor,
    shape: Gang,
    entries: Sequence[EnvEntry],
    placement: NodePlacement,
    *,
    labels: dict[str, str],
    settings: PlanSettings,
) -> dict[str, Any]:
    """Return the template of an actor's pods, with these variables besides those of all actors."""
    template = build_pod_template(
        _build_job(actor, settings),
        shape,
        environment=[*_build_environment(actor, shape), *entries],
        placement=placement,
        labels=labels,
        settings=settings,
        role=Role.WORKER,
    ).manifest
    container = template["spec"]["containers"][0]
    container["readinessProbe"] = build_ready_probe(ACTOR_READY_PORT)
    container["ports"] = [{"name": "actor", "containerPort": ACTOR_PORT, "protocol": "TCP"}]
    return template


def _build_spec(actor: FrayActor) -> FrayJobSpec:
    """Return the spec of the job whose one worker has the pod of a member."""
    spec = actor.spec
    # Its payload is mounted as that of a job's callable, and the command reads it.
    return FrayJobSpec(
        entrypoint=Entrypoint(callable=spec.entrypoint.callable),
        resources=spec.resources,
        placement=spec.placement,
        environment=spec.environment,
        service_account_name=spec.service_account_name,
        workers=Workers(),
    )


def _build_job(actor: FrayActor, settings: PlanSettings) -> FrayJob:
    own = _build_spec(actor)
    command = build_module_command(MODULE, injected=choose_injector(own, settings) is not None)
    entrypoint = own.entrypoint.model_copy(update={"command": command})
    return FrayJob(metadata=actor.metadata, spec=own.model_copy(update={"entrypoint": entrypoint}))


def _build_environment(actor: FrayActor, shape: Gang) -> list[EnvEntry]:
    spec = actor.spec
    entries = [
        EnvEntry(ENV_ACTOR_NAME, "names the FrayActor", actor.metadata.name),
        EnvEntry(ENV_ACTOR_LABEL, "what programs call it", escape_text(spec.name)),
        EnvEntry(ENV_ACTOR_UID, "tells it from an earlier one of its name", actor.metadata.uid or ""),
        EnvEntry(ENV_ACTOR_INDEX, "which member this is", label=LABEL_POD_INDEX),
        EnvEntry(ENV_ACTOR_POD_UID, "tells its incarnations from those of other pods", path="metadata.uid"),
        EnvEntry(ENV_POD_IP, "where callers reach it", path="status.podIP"),
        EnvEntry(ENV_POOL_KEY, "it and its callers know each other by these keys", KEYS_MOUNT),
        *_build_payload(spec.entrypoint),
    ]
    limits = {ENV_ACTOR_MAX_CONCURRENCY: spec.max_concurrency}
    limits[ENV_ACTOR_IDLE_SECONDS] = spec.idle_seconds
    if not shape.multi_host_slices:  # the operator counts JobSets, so that no slice starts for nothing
        limits[ENV_ACTOR_MAX_RESTARTS] = spec.max_restarts
    entries += [
        EnvEntry(name, "the spec says so", str(limit))
        for name, limit in limits.items()
        if limit is not None and limit >= 0
    ]
    if spec.root_job is not None:
        entries.append(EnvEntry(ENV_ROOT_JOB, "names of other actors are scoped by it", spec.root_job))
    return entries


def _build_payload(entrypoint: ActorEntrypoint) -> list[EnvEntry]:
    payload = entrypoint.callable
    if payload is None:
        return [EnvEntry(ENV_ACTOR_CLASS, "the class, in the image", entrypoint.class_path or "")]
    return [
        EnvEntry(ENV_ACTOR_PAYLOAD, "holds the pickled class", payload.url or PAYLOAD_MOUNT),
        EnvEntry(ENV_ACTOR_PAYLOAD_SHA256, "its digest", payload.sha256),
        EnvEntry(ENV_ACTOR_PAYLOAD_PYTHON, "the Python that pickled it", payload.python),
    ]
