"""A FrayJob as a Ray job, and a Ray job as a FrayJob: pure.

The FrayJob stands in the metadata of its Ray job, so Ray itself keeps it. What its hosts do is in the
program that Ray starts (`driver`); of a job without such a program Ray's own status tells.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from fray.cluster.local.jobs import derive_ended
from fray.errors import FieldError, InvalidJobError, UnsupportedFeatureError
from fray.job.calls import NON_PREEMPTIBLE
from fray.job.engine_pods import holds
from fray.job.ray_options import name_resources, resource_arguments
from fray.plan.gang import derive_gang
from fray.plan.observation import Waiting
from fray.plan.status import Ending, Outlook, Stage, derive_status, is_finished
from fray.runtime.pool.machine.resources import describe_shape
from fray.vocabulary import ANNOTATION_LAUNCH, GROUP, ConditionType, Reason
from fray.wire.frayjob import FrayJob, FrayJobSpec
from fray.wire.quantities import parse_quantity
from fray.wire.status import RetryCounts

__all__ = [
    "RayJob",
    "build_metadata",
    "build_resources",
    "build_submission",
    "build_withdrawal",
    "derive_job",
    "name_devices",
    "read_submitted",
    "read_withdrawn",
    "reports_folder",
]

METADATA_JOB: Final = f"{GROUP}/frayjob"
METADATA_WITHDRAWS: Final = f"{GROUP}/withdraws"
MOST_METADATA: Final = 100_000
"""Bytes: Ray hands them to the program in one variable, and Linux takes 128 KiB in one."""
ANY_OF_A_TYPE: Final = 0.001
"""Of a node's resource `accelerator_type:...`, which says what it is and is none that is used up.
https://docs.ray.io/en/latest/ray-core/accelerator-types.html"""
STOP_SECONDS: Final = "RAY_JOB_STOP_WAIT_TIME_S"
"""Ray kills a job's processes so many seconds after SIGTERM; 3 where it isn't set."""
AFTER_GRACE: Final = 15
"""Seconds that the program has to tell of the end of its hosts."""
UNMATCHED: Final = "Ray ended the job before it could tell of its end"


@dataclass(frozen=True)
class RayJob:
    """What Ray's job API tells of one job.

    `status` is PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED; `node` the one that its program runs on, None
    before; `ended_at` in seconds since 1970.
    """

    id: str
    status: str
    metadata: Mapping[str, str]
    node: str | None = None
    message: str | None = None
    ended_at: float | None = None

    @property
    def ended(self) -> bool:
        """Whether Ray runs nothing of it any more."""
        return self.status in {"STOPPED", "SUCCEEDED", "FAILED"}


def build_resources(spec: FrayJobSpec) -> dict[str, float]:
    """Return what a job takes of a Ray cluster, by Ray's names: all of its hosts, on one node.

    Raises:
        UnsupportedFeatureError: Its hosts can't be on one node.
    """
    gang = derive_gang(spec)
    if gang.tpu is not None and gang.hosts > 1:
        reason = "Ray's job API places a job on one node"
        alternative = "Ask for a type with one host, such as v6e-8, or use a Kubernetes cluster with Fray."
        raise UnsupportedFeatureError(gang.describe(), reason, alternative)
    resources = name_devices(spec)
    resources["CPU"] = _whole_if_large(float(parse_quantity(spec.resources.cpu or 0)) * gang.hosts)
    resources["memory"] = float(parse_quantity(spec.resources.memory or 0)) * gang.hosts
    if gang.gpu is not None:
        resources["GPU"] *= gang.hosts
    return name_resources(resources)


def name_devices(spec: FrayJobSpec) -> dict[str, float]:
    """Return what one host of a job takes beyond CPUs and memory, by Ray's names.

    Ray gives the first host of a TPU slice one of `TPU-<type>-head`; the head node is where launchers stay
    that must not be preempted.
    """
    gang = derive_gang(spec)
    resources: dict[str, float] = {}
    if gang.tpu is not None:
        resources |= {"TPU": gang.tpu.chips_per_host, f"TPU-{gang.tpu.type}-head": 1}
    if gang.gpu is not None:
        kind = f"accelerator_type:{_name_gpu(gang.gpu.type)}"
        resources |= {"GPU": gang.gpu.count, kind: ANY_OF_A_TYPE}
    if not spec.placement.preemptible:
        resources |= NON_PREEMPTIBLE
    return name_resources(resources)


def build_metadata(job: FrayJob) -> dict[str, str]:
    """Return a Ray job's metadata that holds this FrayJob, without its status.

    Raises:
        InvalidJobError: It is too large.
    """
    metadata = {METADATA_JOB: json.dumps(job.model_copy(update={"status": type(job.status)()}).to_manifest())}
    if (size := len(json.dumps(metadata))) > MOST_METADATA:
        problem = (
            f"takes {size:,} bytes of the {MOST_METADATA:,} that Ray hands on. Put what its arguments and "
            "variables hold into files of the workspace"
        )
        raise InvalidJobError(job.metadata.name, (FieldError("spec", problem),))
    return metadata


def build_submission(job: FrayJob, *, grace_seconds: float, bundle: str) -> dict[str, Any]:
    """Return the arguments of Ray's `submit_job`; `bundle` is the folder that goes along.

    Raises:
        UnsupportedFeatureError: Ray has no word for what it asks.
        InvalidJobError: It is too large.
    """
    arguments = resource_arguments(build_resources(job.spec))
    if "memory" in arguments:
        arguments["memory"] = int(arguments["memory"])
    environment = {
        "working_dir": bundle,
        "env_vars": {STOP_SECONDS: str(math.ceil(grace_seconds) + AFTER_GRACE)},
    }
    if packages := job.spec.environment.pip_packages:
        environment["pip"] = list(packages)
    return {
        "entrypoint": f"exec python3 -m fray.cluster.ray.driver {reports_folder(job)}",
        "submission_id": job.metadata.name,
        "runtime_env": environment,
        "metadata": build_metadata(job),
        **{f"entrypoint_{name}": value for name, value in arguments.items()},
    }


def build_withdrawal(job_id: str) -> dict[str, Any]:
    """Return the arguments of `submit_job` for a job that ends another one, which Ray still holds back.

    Ray's own stop reaches a job only once it runs.
    """
    return {
        "entrypoint": f"exec python3 -m fray.cluster.ray.withdrawal {job_id}",
        "metadata": {METADATA_WITHDRAWS: job_id},
    }


def read_submitted(found: RayJob) -> FrayJob | None:
    """Return the FrayJob that a Ray job was launched as; None for other Ray jobs."""
    text = found.metadata.get(METADATA_JOB)
    return None if text is None else FrayJob.from_manifest(json.loads(text))


def read_withdrawn(found: RayJob) -> str | None:
    """Return the id of the job that a Ray job ends; None for other Ray jobs."""
    return found.metadata.get(METADATA_WITHDRAWS)


def reports_folder(job: FrayJob) -> str:
    """Return where, below a node's logs, the program of a job writes; another launch writes elsewhere."""
    return f"fray/{job.metadata.name}-{job.metadata.annotations[ANNOTATION_LAUNCH][:8]}"


def derive_job(
    submitted: FrayJob,
    found: RayJob,
    reported: FrayJob | None,
    *,
    withdrawn: bool,
    now: datetime,
    nodes: Sequence[Mapping[str, float]] = (),
) -> FrayJob:
    """Return a FrayJob with its status.

    Args:
        submitted: As it was launched.
        found: Its Ray job.
        reported: As its program reported last; None before it runs, and where its node has gone.
        withdrawn: Whether somebody ended it while Ray held it back.
        now: The time.
        nodes: What each node has, in use or not; empty: nobody knows.
    """
    job = reported or submitted
    if is_finished(job.status):
        return job
    ended_at = now if found.ended_at is None else datetime.fromtimestamp(found.ended_at, UTC)
    if found.status == "STOPPED" or (withdrawn and found.node is None):
        ending = Ending(ConditionType.STOPPED, Reason.STOP_REQUESTED, "somebody asked for its end")
        return job.model_copy(update={"status": derive_ended(job, ending, ended_at)})
    if found.ended:
        reason = Reason.START_FAILED if reported is None else Reason.RUNNER_LOST
        ending = Ending(ConditionType.FAILED, reason, found.message or UNMATCHED)
        return job.model_copy(update={"status": derive_ended(job, ending, ended_at)})
    if reported is not None:
        return job
    waiting = _derive_waiting(job.spec, found, nodes)
    outlook = Outlook(Stage.STARTING, waiting=waiting)
    counts = RetryCounts(failures_used=0, preemptions_used=0)
    return job.model_copy(update={"status": derive_status(job, None, [], counts, outlook, now)})


def _derive_waiting(spec: FrayJobSpec, found: RayJob, nodes: Sequence[Mapping[str, float]]) -> Waiting:
    """Return why a job doesn't run yet. Ray's own message is the same whatever it waits for."""
    asked = build_resources(spec)
    if found.node is None and nodes and not any(holds(node, asked) for node in nodes):
        shape = describe_shape(tuple(sorted(asked.items())))
        return Waiting(Reason.UNSCHEDULABLE, f"no node of Ray has {shape}; the job waits until one has")
    return Waiting(Reason.HOSTS_STARTING, found.message or "Ray is starting the job")


def _whole_if_large(amount: float) -> float:
    """Return what Ray takes: fractions of one, and whole numbers above."""
    return amount if amount <= 1 else math.ceil(amount)


def _name_gpu(kind: str) -> str:
    """Return Ray's name of a type of GPU. https://docs.ray.io/en/latest/ray-core/accelerator-types.html"""
    model = kind.removeprefix("nvidia-").removeprefix("tesla-").upper()
    return model if model.startswith("RTX") else model.partition("-")[0]
