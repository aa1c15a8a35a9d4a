"""Changes that a client makes to a FrayJob: fills in what its author left open, applies it, and stops it.

`apply_job` does what `kubectl apply` does. `stop_job` sets `spec.stopped`; the job stays with its status.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

from fray.cluster.answers import Applied
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.api_errors import BUSY, Sleep, persistently
from fray.cluster.kubernetes.launching import WrittenJob, create_secrets
from fray.errors import FieldError, InvalidJobError
from fray.kube.api import Manifest
from fray.kube.errors import ConflictError, NotFoundError, RefusedError
from fray.kube.resources import FRAYJOBS
from fray.plan.status import is_finished
from fray.types import JobId
from fray.vocabulary import ANNOTATION_STOPPED_BECAUSE, STOPPED_BECAUSE
from fray.wire.frayjob import FrayJob, Parent, Queue

__all__ = ["apply_job", "fill_in", "stop_job"]

FIELD_MANAGER = "fray"
"""Who has set fields that `apply` sets, in `metadata.managedFields`."""


def fill_in(job: FrayJob, spec: KubernetesSpec, *, parent: Parent | None) -> FrayJob:
    """Return a FrayJob with what a cluster spec gives to jobs that leave it open, and its parent."""
    own = job.spec
    found: dict[str, Any] = {}
    if spec.image is not None and own.environment.image is None:
        found["environment"] = own.environment.model_copy(update={"image": spec.image})
    if spec.service_account is not None and own.service_account_name is None:
        found["service_account_name"] = spec.service_account
    if spec.queue is not None and own.queue is None:
        found["queue"] = Queue(name=spec.queue)
    if parent is not None and own.parent is None:
        found["parent"] = parent
    return job.model_copy(update={"spec": own.model_copy(update=found)}) if found else job


async def apply_job(access: Access, written: WrittenJob) -> Applied:
    """Make a job be as it is written, and return what that did.

    A call that ends between the job and the Secrets of its workspace is completed by the next one.

    Raises `InvalidJobError` where the server refuses it, for what it says or since it would change what a job
    can't have changed; else `ApiError`.
    """
    name, namespace = written.name, access.namespace
    try:
        before = await persistently(lambda: access.api.get(FRAYJOBS, name, namespace=namespace))
    except NotFoundError as missing:
        if not missing.reason:
            raise  # no such kind
        before = None
    if before is not None:
        written = written.with_stored_workspace(FrayJob.from_manifest(before))
    manifest = written.job.to_manifest()
    try:
        after = await persistently(
            lambda: access.api.apply(FRAYJOBS, manifest, manager=FIELD_MANAGER, namespace=namespace)
        )
    except (ConflictError, RefusedError) as refused:
        raise InvalidJobError(name, (FieldError("", refused.detail),)) from refused
    await create_secrets(access, written.build_secrets(written.build(name), after))
    if before is None or before["metadata"]["uid"] != after["metadata"]["uid"]:
        return Applied.CREATED
    return Applied.UNCHANGED if _meant(before) == _meant(after) else Applied.CONFIGURED


def _meant(job: Manifest) -> tuple[Any, ...]:
    """What a user says of a job; all else in it is the server's and the operator's."""
    metadata = job["metadata"]
    return job["spec"], metadata.get("labels"), metadata.get("annotations")


async def stop_job(access: Access, name: JobId, *, sleep: Sleep = asyncio.sleep) -> None:
    """Ask a job to end; nothing is written where it has, or was asked before. Raises `ApiError`.

    A conflict means that somebody else has just written the job, mostly the operator. There is no limit to
    how often that may be, only longer pauses.
    """

    async def stop() -> bool:
        manifest = await access.api.get(FRAYJOBS, name, namespace=access.namespace)
        job = FrayJob.from_manifest(manifest)
        if job.spec.stopped or is_finished(job.status):
            return True
        metadata = manifest["metadata"]
        annotations = {**metadata.get("annotations", {}), ANNOTATION_STOPPED_BECAUSE: STOPPED_BECAUSE}
        stopped: Manifest = {
            **manifest,
            "metadata": {**metadata, "annotations": annotations},
            "spec": {**manifest["spec"], "stopped": True},
        }
        try:
            await access.api.replace(FRAYJOBS, stopped)
        except ConflictError:
            return False  # the operator was faster
        return True

    # A write whose answer was lost is seen by the next look.
    for conflicts in count(1):
        if await persistently(stop):
            return
        await sleep(BUSY.pause(conflicts))
