"""The workers of an attempt as a Job: plain, Indexed, and beside the JobSet.

The FrayJob controls it, not the JobSet: JobSet's reconcile fails on a Job of its own without its labels, and
Kubernetes may schedule a Job without a controller as a gang. A worker that is asked to go exits with 0, and
its index never comes back; `fray.plan.workers` says how many indexes there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fray.plan.environment import build_worker_environment
from fray.plan.gang import derive_gang
from fray.plan.injection import build_module_command, choose_injector
from fray.plan.kueue import derive_queue
from fray.plan.manifests import Fact, build_labels, build_owner_references
from fray.plan.names import build_jobset_name, build_worker_job_name
from fray.plan.placement import build_placement
from fray.plan.pod import build_pod_template
from fray.plan.settings import PlanSettings
from fray.plan.workers import has_fixed_size
from fray.vocabulary import (
    ANNOTATION_KUEUE_ELASTIC,
    CONTAINER,
    EXIT_ATTEMPT_OVER,
    LABEL_KUEUE_PRIORITY,
    LABEL_KUEUE_QUEUE,
    Role,
)
from fray.wire.frayjob import Entrypoint, Environment, FrayJob, FrayJobSpec, Placement

__all__ = ["WorkersPlan", "build_worker_job"]

NO_LIMIT: Final = 2**31 - 1
MODULES: Final = {
    "fray": ["fray.runtime.pool.worker_pod"],
    "dask": ["fray.job.dask_pods", "worker"],
    "ray": ["fray.job.ray_pods", "worker"],
}
"""What a worker runs, by the engine."""
FAIL_WHEN_OVER: Final = {
    "action": "FailJob",
    "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [EXIT_ATTEMPT_OVER]},
}
"""A worker that the head tells that the attempt is over ends them all, without the operator."""
IGNORE_DISRUPTED: Final = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}


@dataclass(frozen=True)
class WorkersPlan:
    """The Job of an attempt's workers: its manifest, why each part is so, and what isn't done as asked."""

    manifest: dict[str, Any]
    facts: tuple[Fact, ...]
    notices: tuple[str, ...]


def build_worker_job(
    job: FrayJob, *, attempt: int, generation: int, count: int, settings: PlanSettings
) -> WorkersPlan:
    """Return the Job of an attempt's workers; each after one that is complete is of the next generation.

    Raises what `build_attempt` raises.
    """
    gang = derive_gang(job.spec)
    own = job.model_copy(update={"spec": _build_spec(job.spec, settings)})
    shape = derive_gang(own.spec)
    labels = build_labels(job, attempt=attempt, role=Role.WORKER)
    environment = build_worker_environment(
        own, shape, attempt=attempt, metadata_server=settings.metadata_server
    )
    placement = build_placement(own.spec.placement, shape)
    pod = build_pod_template(
        own,
        shape,
        environment=environment,
        placement=placement,
        labels=labels,
        settings=settings,
        role=Role.WORKER,
    )
    pod.manifest["spec"]["subdomain"] = build_jobset_name(job.metadata.name, attempt=attempt, gang=gang)
    queue = derive_queue(job)
    elastic = settings.kueue_elastic_jobs and queue.name is not None
    queued = {LABEL_KUEUE_QUEUE: queue.name, LABEL_KUEUE_PRIORITY: queue.priority_class}
    metadata: dict[str, Any] = {
        "name": build_worker_job_name(job.metadata.name, attempt=attempt, generation=generation),
        "labels": {**labels, **{label: value for label, value in queued.items() if value is not None}},
        **build_owner_references(job),
    }
    if job.metadata.namespace is not None:
        metadata["namespace"] = job.metadata.namespace
    if elastic:
        metadata["annotations"] = {ANNOTATION_KUEUE_ELASTIC: "true"}
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            "backoffLimit": NO_LIMIT,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": [FAIL_WHEN_OVER, IGNORE_DISRUPTED]},
            "template": pod.manifest,
        },
    }
    size = _explain(own.spec, count, fixed=has_fixed_size(job, elastic=elastic), elastic=elastic)
    facts = (*size, *placement.facts, *pod.facts)
    return WorkersPlan(manifest, facts, (*placement.notices, *pod.notices))


def _explain(spec: FrayJobSpec, count: int, *, fixed: bool, elastic: bool) -> list[Fact]:
    if fixed:
        why = "workers wanted; Kueue evicts a Job whose size changes, so that it stays as it is"
    elif spec.workers.max_replicas is None:
        why = "workers wanted; you or an autoscaler change spec.workers.replicas"
    else:
        why = "workers wanted; by demand, the head of the pool changes spec.workers.replicas"
    facts = [
        Fact("parallelism, completions", str(count), why),
        Fact("podReplacementPolicy", "Failed", "a worker that ended is followed by another one, not joined"),
        Fact(
            "podFailurePolicy",
            f"FailJob on exit code {EXIT_ATTEMPT_OVER}, Ignore on DisruptionTarget",
            "workers end with their attempt without the operator, and one that is taken away is no failure",
        ),
        Fact("subdomain", "that of the JobSet", "workers and hosts find each other by name too"),
    ]
    if elastic:
        why = "Kueue admits more workers, and takes back the quota of fewer, while the others run"
        facts.append(Fact(f"annotation {ANNOTATION_KUEUE_ELASTIC}", "true", why))
    return facts


def _build_spec(spec: FrayJobSpec, settings: PlanSettings) -> FrayJobSpec:
    """Return the spec of a job whose one host is a worker."""
    workers = spec.workers
    own = spec.model_copy(
        update={
            "replicas": 1,
            "resources": workers.resources,
            "placement": workers.placement or Placement(),
            "environment": _merge(spec.environment, workers.environment or Environment()),
            "pod_template": workers.pod_template,
            "ports": [],
        }
    )
    command = build_module_command(
        *MODULES[workers.engine], injected=choose_injector(own, settings) is not None
    )
    return own.model_copy(update={"entrypoint": Entrypoint(command=command)})


def _merge(base: Environment, over: Environment) -> Environment:
    """Return an environment with what another one sets; the API server writes empty lists where none is."""
    kept: Mapping[str, Any] = {
        name: value for name in type(over).model_fields if (value := getattr(over, name))
    }
    named = {variable.name: variable for variable in (*base.env, *over.env)}
    return base.model_copy(update={**kept, "env": list(named.values())})
