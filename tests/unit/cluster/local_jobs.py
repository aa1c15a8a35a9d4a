"""Builders for tests of the local backend: a job from the few fields that matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fray.cluster.local.attempt import PLAN_SETTINGS
from fray.cluster.local.claims import JobLocks
from fray.cluster.local.store import JobFolder
from fray.plan.jobset import AttemptPlan, build_attempt
from fray.plan.names import Ports, build_loopback_addresses
from fray.wire.frayjob import FrayJob
from fray.wire.validation import validate_manifest

__all__ = ["frayjob", "held_locks", "local_plan"]


def frayjob(*, name: str = "job", tpu: str | None = None, **spec: Any) -> FrayJob:
    """Return a validated FrayJob that runs `train --fast` unless told otherwise."""
    resources = {"resources": {"tpu": {"type": tpu}}} if tpu else {}
    entrypoint = {"entrypoint": {"command": ["train", "--fast"]}}
    return validate_manifest(
        {
            "apiVersion": "fray.dev/v1alpha1",
            "kind": "FrayJob",
            "metadata": {"name": name},
            "spec": {**entrypoint, **resources, **spec},
        }
    )


def local_plan(job: FrayJob, *, attempt: int = 1) -> AttemptPlan:
    """Return the plan of an attempt with easily recognised ports."""
    addresses = build_loopback_addresses(Ports(20001, 20002, 20003, 20004))
    return build_attempt(job, attempt=attempt, settings=PLAN_SETTINGS, addresses=addresses)


def held_locks(folder: Path) -> JobLocks:
    """Return both locks of a job's folder, as its runner holds them."""
    job_folder = JobFolder(folder)
    job_folder.create()
    return JobLocks.acquire(job_folder, name=folder.name, waiting=lambda: None)
