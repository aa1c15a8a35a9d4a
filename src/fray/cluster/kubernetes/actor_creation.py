"""FrayActors on a cluster, created from outside of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fray.cluster.kubernetes.actor_reach import ClusterReach
from fray.cluster.kubernetes.launching import Launch
from fray.job.actors import ActorHandle
from fray.job.calls import Call
from fray.job.named_actors import build_handles
from fray.job.options import ActorOptions
from fray.runtime.actors.identity import DETACHED, build_actor_name
from fray.runtime.actors.objects import claim_actor, count_members, round_idle
from fray.vocabulary import LABEL_MANAGED_BY, MANAGED_BY
from fray.wire.frayactor import FRAYACTOR, ActorEntrypoint, FrayActor, FrayActorSpec
from fray.wire.frayjob import FrayJob, ObjectMeta
from fray.wire.model import build_unjudged
from fray.wire.validation import validate_object

__all__ = ["create_actors"]


def create_actors(
    reach: ClusterReach, launch: Launch, options: ActorOptions, count: int
) -> Sequence[ActorHandle[Any]]:
    """Create an actor with the class, environment and hosts of a launch; see `Cluster.create_actor`.

    Raises `InvalidJobError` for what the API server would refuse.
    """
    label = options.name or launch.name
    built = launch.build(build_actor_name(DETACHED, label))
    body = build_actor(label, built.job, options, count).to_manifest()
    validate_object(body, FRAYACTOR)
    member, own = claim_actor(
        reach.api,
        body,
        lambda made: launch.build_secrets(built, made),
        get_if_exists=options.get_if_exists,
    )
    if not own and count > 1:
        count = count_members(reach.api, member)
    made_by = launch.request.resolve_entrypoint().callable_entrypoint
    call = None if made_by is None or not own else Call(made_by.callable, (), {})
    return build_handles(member, count, call, reach)


def build_actor(label: str, job: FrayJob, options: ActorOptions, count: int) -> FrayActor:
    """Return the FrayActor that users call `label`: it has the class, the environment and the hosts of a job.

    It belongs to no job, and lives until it is deleted. Nothing of it is judged.
    """
    spec = build_unjudged(
        FrayActorSpec,
        name=label,
        lifetime="detached",
        replicas=count,
        entrypoint=build_unjudged(ActorEntrypoint, callable=job.spec.entrypoint.callable),
        environment=job.spec.environment,
        placement=job.spec.placement,
        resources=job.spec.resources,
        service_account_name=job.spec.service_account_name,
        max_concurrency=options.max_concurrency,
        max_restarts=options.max_restarts,
        max_task_retries=options.max_task_retries or None,
        idle_seconds=round_idle(options.idle_timeout),
    )
    metadata = build_unjudged(ObjectMeta, name=job.metadata.name, labels={LABEL_MANAGED_BY: MANAGED_BY})
    return build_unjudged(
        FrayActor, api_version="fray.dev/v1alpha1", kind="FrayActor", metadata=metadata, spec=spec
    )
