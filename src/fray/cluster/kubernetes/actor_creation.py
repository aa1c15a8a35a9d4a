"""FrayActors on a cluster, created from outside of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fray.cluster.kubernetes.actor_reach import ClusterReach
from fray.cluster.kubernetes.launching import Launch
from fray.job.actors import ActorHandle
from fray.job.calls import Call
from fray.job.named_actors import build_handles
from fray.job.options import ActorOptions
from fray.kube.api import Manifest
from fray.runtime.actors.identity import DETACHED, build_actor_name
from fray.runtime.actors.objects import build_limits, claim_actor
from fray.vocabulary import API_VERSION, FRAYACTOR_KIND, LABEL_MANAGED_BY, MANAGED_BY
from fray.wire.frayactor import FRAYACTOR
from fray.wire.frayjob import FrayJob
from fray.wire.validation import validate_object

__all__ = ["create_actors"]

TAKEN: Final = ("entrypoint", "environment", "placement", "resources", "serviceAccountName")
"""Fields that a FrayActor and a FrayJob have in common."""


def create_actors(
    reach: ClusterReach, launch: Launch, options: ActorOptions, count: int
) -> Sequence[ActorHandle[Any]]:
    """Create an actor with the class, environment and hosts of a launch; see `Cluster.create_actor`.

    Raises `InvalidJobError` for what the API server would refuse.
    """
    label = options.name or launch.name
    built = launch.build(build_actor_name(DETACHED, label))
    body = build_actor(label, built.job, options, count)
    validate_object(body, FRAYACTOR)
    member, own = claim_actor(
        reach.api,
        body,
        lambda made: launch.build_secrets(built, made),
        get_if_exists=options.get_if_exists,
    )
    made_by = launch.request.resolve_entrypoint().callable_entrypoint
    call = None if made_by is None or not own else Call(made_by.callable, (), {})
    return build_handles(member, count, call, reach)


def build_actor(label: str, job: FrayJob, options: ActorOptions, count: int) -> Manifest:
    """Return the FrayActor that users call `label`: it has the class, the environment and the hosts of a job.

    It belongs to no job, and lives until it is deleted.
    """
    spec = job.to_manifest()["spec"]
    return {
        "apiVersion": API_VERSION,
        "kind": FRAYACTOR_KIND,
        "metadata": {"name": job.metadata.name, "labels": {LABEL_MANAGED_BY: MANAGED_BY}},
        "spec": {
            "name": label,
            "lifetime": "detached",
            "replicas": count,
            **{field: spec[field] for field in TAKEN if field in spec},
            **build_limits(
                options.max_concurrency,
                options.max_restarts,
                options.max_task_retries or None,
                options.idle_timeout,
            ),
        },
    }
