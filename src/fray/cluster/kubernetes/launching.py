"""Launching a job: its FrayJob first, then the Secrets that it owns, and nothing is left where that fails.

The order lets Kubernetes collect the Secrets with the job, and the kubelet waits for a Secret that a pod
mounts. A request is sent again when its answer was lost, so every object has a name or a word of this launch
alone, and one that is there already is known as its own or another's.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Coroutine, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fray.cluster.arguments import WhenTaken, find_workspace
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.api_errors import persistently
from fray.cluster.manifest import (
    LAUNCH_DIGITS,
    JobManifest,
    Uploads,
    build_manifest,
    mark_launch,
    rename_job,
)
from fray.cluster.progress import is_resumable
from fray.cluster.workspace import Archiver, WorkspaceLimits
from fray.errors import FieldError, InvalidJobError, JobExistsError, JobLeftBehindError
from fray.kube.api import Manifest
from fray.kube.errors import (
    AlreadyExistsError,
    ApiError,
    NotFoundError,
    RefusedError,
    ServerError,
    UnreachableError,
)
from fray.kube.resources import FRAYJOBS, SECRETS
from fray.payload.callables import PayloadLimits, encode_callable
from fray.payload.chunks import SecretPart, split_payload
from fray.payload.staging import STAGING_LIMIT, WritableStorage, staged_url, staged_workspace_url
from fray.plan.names import build_object_name
from fray.plan.status import is_finished
from fray.types import JobId
from fray.types.request import CompleteRequest
from fray.vocabulary import (
    ANNOTATION_LAUNCH,
    API_VERSION,
    FRAYJOB_KIND,
    LABEL_JOB,
    LABEL_JOB_UID,
    LABEL_MANAGED_BY,
    MANAGED_BY,
)
from fray.wire.frayjob import CallableEntrypoint, FrayJob, Parent, Workspace

__all__ = [
    "Launch",
    "Launchable",
    "WrittenJob",
    "create_secrets",
    "launch_job",
    "prepare_launch",
    "prepare_written",
    "withdraw_job",
]

T = TypeVar("T")

PART_SIZE = 750_000
"""Bytes of them in a Secret: as base64 in JSON less than the MiB that aiohttp sends in one piece."""
MOST_OF_A_JOB = 1 << 20
"""Bytes of a FrayJob as JSON: etcd takes 1.5 MiB, of the JobSet that holds the same and more, too."""
CLEANUP_SECONDS = 7.0
"""For a request under way, and again for its removal: both fit into the 15 s of a `LoopThread`."""


class Launchable(Protocol):
    """A job that is ready to be sent, under whichever name is free."""

    @property
    def name(self) -> str:
        """What its author calls it."""
        ...

    @property
    def word(self) -> str:
        """A word of this launch alone, hexadecimal, which the FrayJob tells in an annotation."""
        ...

    @property
    def parent(self) -> Parent | None:
        """The job that launches it; None outside of jobs."""
        ...

    def build(self, name: str) -> JobManifest:
        """Return the FrayJob under a name; raises `RequestError`."""
        ...

    def build_secrets(self, built: JobManifest, owner: Manifest) -> list[Manifest]:
        """Return the Secrets that the job needs; they go with `owner`, its FrayJob as stored."""
        ...


@dataclass(frozen=True)
class Launch:
    """A request that is ready to be sent: its callable is pickled and its workspace archived.

    What is too large for Secrets is staged.

    `word` is of this launch alone, hexadecimal.
    """

    request: CompleteRequest
    cluster: KubernetesSpec
    word: str
    parent: Parent | None = None
    uploads: Uploads = field(default_factory=Uploads)
    parts: tuple[SecretPart, ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        """What the request's author calls it."""
        return self.request.name

    def build(self, name: str) -> JobManifest:
        """Return the FrayJob under a name; raises `RequestError`."""
        return build_manifest(
            self.request, self.cluster, name=name, parent=self.parent, uploads=self.uploads, launch=self.word
        )

    def build_secrets(self, built: JobManifest, owner: Manifest) -> list[Manifest]:
        """Return the Secrets that the job needs; they go with `owner`, as stored."""
        secrets = _build_parts(self.parts, owner)
        if built.secret_variables:
            variables = {name: value.encode() for name, value in built.secret_variables.items()}
            secrets.append(_build_secret(built.secret_name, variables, owner))
        return secrets


@dataclass(frozen=True)
class WrittenJob:
    """A FrayJob that is launched as its author wrote it; `word` is of this launch alone.

    `parts` hold its workspace, where that is a directory which goes along.
    """

    job: FrayJob
    word: str
    parts: tuple[SecretPart, ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        """Its name."""
        return self.job.metadata.name

    @property
    def parent(self) -> Parent | None:
        """The job that launches it."""
        return self.job.spec.parent

    def build(self, name: str) -> JobManifest:
        """Return it under a name; its own is legal, and stays as it is."""
        legal = name if name == self.name else build_object_name(name)
        job = rename_job(mark_launch(self.job, self.word), legal)
        return JobManifest(job=job, secret_name=f"{legal}-env", secret_variables={})

    def with_stored_workspace(self, stored: FrayJob) -> WrittenJob:
        """Return it with the Secrets of the job that is there, where these hold the same workspace."""
        own, found = self.job.spec.environment.workspace, stored.spec.environment.workspace
        if own is None or found is None or found.secret_name is None or own.sha256 != found.sha256:
            return self
        names = [found.secret_name, *found.more_secrets]
        if len(names) != len(self.parts):
            return self
        parts = [replace(part, secret_name=name) for part, name in zip(self.parts, names, strict=True)]
        return replace(self, job=_with_workspace(self.job, found), parts=tuple(parts))

    def build_secrets(self, built: JobManifest, owner: Manifest) -> list[Manifest]:  # noqa: ARG002
        """Return those of its workspace; any other Secret that a file names is there."""
        return _build_parts(self.parts, owner)


def prepare_launch(
    request: CompleteRequest,
    cluster: KubernetesSpec,
    *,
    word: str,
    parent: Parent | None,
    storage: WritableStorage,
    archiver: Archiver,
) -> Launch:
    """Return a launch of a request; of the cluster nothing is asked.

    Raises:
        RequestError: The callable can't be pickled, the workspace can't be archived, or one of them is too
            large for where it may go.
        PayloadStorageError: The staging URL doesn't take it.
    """
    uploading = _Uploading(build_object_name(request.name), word[:LAUNCH_DIGITS], cluster.staging, storage)
    payload = uploading.upload_payload(request)
    directory = request.environment.workspace
    workspace = uploading.upload_workspace(directory, archiver, field="EnvironmentConfig.workspace")
    uploads = Uploads(payload=payload, workspace=workspace)
    return Launch(request, cluster, word, parent, uploads, tuple(uploading.parts))


def prepare_written(
    job: FrayJob,
    cluster: KubernetesSpec,
    *,
    word: str,
    workspace: Path | None,
    storage: WritableStorage,
    archiver: Archiver,
) -> WrittenJob:
    """Return a launch of a FrayJob with the directory that is its workspace; the cluster is asked nothing.

    Raises:
        RequestError: The workspace can't be archived, or is too large for where it may go.
        PayloadStorageError: The staging URL doesn't take it.
    """
    if workspace is None:
        return WrittenJob(job, word)
    name = build_object_name(job.metadata.name)
    uploading = _Uploading(name, word[:LAUNCH_DIGITS], cluster.staging, storage)
    uploaded = uploading.upload_workspace(workspace, archiver, field="spec.environment.workspace")
    return WrittenJob(_with_workspace(job, uploaded), word, tuple(uploading.parts))


def _with_workspace(job: FrayJob, workspace: Workspace | None) -> FrayJob:
    environment = job.spec.environment.model_copy(update={"workspace": workspace})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"environment": environment})})


@dataclass
class _Uploading:
    """Puts what is small enough into `parts`, for Secrets, and stages the rest."""

    name: str
    digits: str
    staging: str | None
    storage: WritableStorage
    parts: list[SecretPart] = field(default_factory=list)

    def upload_payload(self, request: CompleteRequest) -> CallableEntrypoint | None:
        entrypoint = request.resolve_entrypoint().callable_entrypoint
        if entrypoint is None:
            return None
        limits = PayloadLimits(staging=STAGING_LIMIT if self.staging is not None else 0)
        payload = encode_callable(entrypoint.callable, entrypoint.args, entrypoint.kwargs, limits=limits)
        python = payload.stamp.python
        if self.staging is not None and not limits.fits_secrets(payload):
            url = staged_url(self.staging, payload.sha256)
            self.storage.write(url, payload.data)
            return CallableEntrypoint(url=url, sha256=payload.sha256, python=python, results_url=self.staging)
        names = self._split("payload", payload.data)
        return CallableEntrypoint(
            secret_name=names[0],
            more_secrets=names[1:],
            sha256=payload.sha256,
            python=python,
            results_url=self.staging,
        )

    def upload_workspace(
        self, directory: str | Path | None, archiver: Archiver, *, field: str
    ) -> Workspace | None:
        if directory is None:
            return None
        limits = WorkspaceLimits(staging=STAGING_LIMIT if self.staging is not None else 0)
        archive = archiver.archive(find_workspace(directory, field=field), limits)
        if archive is None:
            return None
        if self.staging is not None and archive.size > limits.secrets:
            url = staged_workspace_url(self.staging, archive.sha256)
            self.storage.write(url, archive.data)
            return Workspace(url=url, sha256=archive.sha256)
        names = self._split("workspace", archive.data)
        return Workspace(secret_name=names[0], more_secrets=names[1:], sha256=archive.sha256)

    def _split(self, what: str, data: bytes) -> list[str]:
        parts = split_payload(data, secret_name=f"{self.name}-{what}-{self.digits}", size=PART_SIZE)
        self.parts += parts
        return [part.secret_name for part in parts]


async def launch_job(
    access: Access, launch: Launchable, *, when_taken: WhenTaken, numbers: MutableMapping[str, int]
) -> JobId:
    """Create the job's objects, and return its id.

    `numbers` holds what further jobs of a name begin to be numbered with: `train` is 1, `train-2` is 2. What
    has a lower number was launched or resumed by its holder, or wasn't to be had.

    Raises:
        JobExistsError: A job of this name lives, and `when_taken` is `refuse`.
        InvalidJobError: The server refuses the job, or it is too large to be sent.
        JobLeftBehindError: It failed, and the FrayJob could not be removed.
        ApiError: Anything else that the server or the way to it did; nothing is left.
    """
    name = launch.name
    if when_taken == "resume" and launch.parent is None:
        when_taken = "rename"
    number = numbers.get(name, 1) if when_taken in ("rename", "resume") else 1
    step = 1
    while True:
        built = launch.build(name if number == 1 else f"{name}-{number}")
        job = await _create_job(access, launch, built)
        if job is not None:
            await _complete(access, launch, built, job)
            numbers[name] = max(number + 1, numbers.get(name, 1))
            return JobId(built.name)
        if when_taken != "rename" and (living := await _find_living(access, built.name)) is not None:
            if when_taken == "refuse":
                raise JobExistsError(built.name)
            if when_taken == "adopt":
                return JobId(built.name)
            if is_resumable(living, name, launch.parent):
                numbers[name] = max(number + 1, numbers.get(name, 1))
                return JobId(built.name)
        number += step
        if when_taken == "rename" and number > 2:
            step *= 2  # many that are taken are soon passed; to find one that lives, each is looked at


async def withdraw_job(access: Access, launch: Launchable, job_id: JobId) -> None:
    """Delete what a launch has made, if it made this job; its Secrets go with it.

    For a launch that has ended, but whose caller was interrupted and doesn't know the job.

    Raises:
        JobLeftBehindError: It could not be deleted.
    """
    await _remove(access, launch, job_id, KeyboardInterrupt("the launch was interrupted"))


async def _create_job(access: Access, launch: Launchable, built: JobManifest) -> Manifest | None:
    """Return the FrayJob as stored; None where another job has its name."""
    _check_size(built)
    lost = False

    async def create() -> Manifest:
        nonlocal lost
        try:
            return await access.api.create(FRAYJOBS, built.manifest, namespace=access.namespace)
        except (ServerError, UnreachableError) as error:
            lost = lost or isinstance(error, ServerError) or error.was_sent
            raise

    try:
        try:
            return await _unhurried(persistently(create))
        except AlreadyExistsError:
            return await _find_own(access, launch, built.name)
    except RefusedError as refused:
        raise InvalidJobError(built.name, (FieldError("", refused.detail),)) from refused
    except ApiError as error:
        if lost:
            await _remove(access, launch, built.name, error)
        raise
    except asyncio.CancelledError as interrupted:
        await _remove(access, launch, built.name, interrupted)
        raise


def _check_size(built: JobManifest) -> None:
    size = len(json.dumps(built.manifest).encode())
    if size > MOST_OF_A_JOB:
        problem = (
            f"takes {size:,} bytes of the {MOST_OF_A_JOB:,} that a cluster takes. Put what its arguments "
            "and variables hold into files of the workspace, or into storage"
        )
        raise InvalidJobError(built.name, (FieldError("spec", problem),))


async def _complete(access: Access, launch: Launchable, built: JobManifest, job: Manifest) -> None:
    try:
        await create_secrets(access, launch.build_secrets(built, job))
    except BaseException as error:
        await _remove(access, launch, built.name, error)
        raise


async def create_secrets(access: Access, secrets: Sequence[Manifest]) -> None:
    """Create the Secrets that are not there yet; raises an `ApiError` once all requests have ended."""
    requests = [_unhurried(_create_secret(access, each)) for each in secrets]
    # Each is waited for: one that comes after a clean-up would stay until it is collected.
    results = await asyncio.gather(*requests, return_exceptions=True)
    if failures := [result for result in results if result is not None]:
        raise failures[0]


def _build_parts(parts: Sequence[SecretPart], owner: Manifest) -> list[Manifest]:
    return [_build_secret(part.secret_name, {part.key: part.data}, owner) for part in parts]


async def _create_secret(access: Access, secret: Manifest) -> None:
    try:
        await persistently(lambda: access.api.store(SECRETS, secret, namespace=access.namespace))
    except AlreadyExistsError:
        return  # by a request whose answer was lost, or an earlier `apply`: nobody else knows the name


async def _unhurried(request: Coroutine[Any, Any, T]) -> T:
    """Like the request; a caller who is interrupted during it first learns how it ended."""
    task = asyncio.ensure_future(request)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=CLEANUP_SECONDS)
        task.cancel()
        raise


async def _find_own(access: Access, launch: Launchable, name: str) -> Manifest | None:
    """Return the FrayJob of this name if this launch made it."""
    try:
        found = await persistently(lambda: access.api.get(FRAYJOBS, name, namespace=access.namespace))
    except NotFoundError:
        return None
    annotations: Mapping[str, str] = found["metadata"].get("annotations") or {}
    return found if annotations.get(ANNOTATION_LAUNCH) == launch.word else None


async def _find_living(access: Access, name: str) -> FrayJob | None:
    try:
        found = await persistently(lambda: access.api.get(FRAYJOBS, name, namespace=access.namespace))
    except NotFoundError:
        return None
    job = FrayJob.from_manifest(found)
    return None if is_finished(job.status) or job.metadata.deletion_timestamp is not None else job


async def _remove(access: Access, launch: Launchable, name: str, cause: BaseException) -> None:
    """Delete what this launch has made; its Secrets go with it. Raises `JobLeftBehindError`."""

    async def delete() -> None:
        found = await _find_own(access, launch, name)
        if found is not None:
            uid = found["metadata"]["uid"]
            await access.api.delete(FRAYJOBS, name, namespace=access.namespace, uid=uid)

    try:
        async with asyncio.timeout(CLEANUP_SECONDS):
            await persistently(delete)
    except (ApiError, TimeoutError) as error:
        problem = f"{type(cause).__name__}: {cause}"
        raise JobLeftBehindError(name, access.namespace, problem) from error


def _build_secret(name: str, content: Mapping[str, bytes], owner: Manifest) -> Manifest:
    metadata = owner["metadata"]
    reference = {
        "apiVersion": API_VERSION,
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    labels = {LABEL_MANAGED_BY: MANAGED_BY}
    if owner["kind"] == FRAYJOB_KIND:
        labels |= {LABEL_JOB: metadata["name"], LABEL_JOB_UID: metadata["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [reference],
        },
        "type": "Opaque",
        "immutable": True,
        "data": {key: base64.b64encode(value).decode() for key, value in content.items()},
    }
