"""The job that a user names on the command line: read from its file, judged, and changed as options say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from fray.accelerators import lookup_gpu, lookup_tpu
from fray.cli.job_options import JobOptions
from fray.cli.named_job import read_timeout, read_variables
from fray.errors import (
    AcceleratorShapeError,
    FieldError,
    InvalidJobError,
    InvalidRequestError,
    UnknownAcceleratorError,
)
from fray.jobfile import STDIN, read_job_file, read_job_files
from fray.plan.expansion import escape_text
from fray.types.environment import is_confidential
from fray.wire.frayjob import FrayJob
from fray.wire.pod import EnvVar
from fray.wire.status import FrayJobStatus
from fray.wire.validation import check_job, validate_manifest

__all__ = ["LoadedJob", "LoadedJobs", "as_sent", "load_job", "load_jobs", "override_job"]

NAME_PATH = "metadata.name"
SERVERS_OWN = ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink")
"""What the API server writes into `metadata`, and doesn't take back."""
SERVERS_OWN_FIELDS = ("uid", "creation_timestamp", "deletion_timestamp", "generation")
"""Those of them that a FrayJob's model has."""


@dataclass(frozen=True)
class LoadedJob:
    """The FrayJob of a file, judged, and the names of the file's other objects.

    `directory` is the folder of the file, `workspace` the directory that the file names as its workspace, to
    be packed as that of a request is (`workspace: .`), which may not be there; None where it names none, or
    an archive.
    """

    job: FrayJob
    others: tuple[str, ...]
    directory: Path
    workspace: Path | None


@dataclass(frozen=True)
class LoadedJobs:
    """The FrayJobs of a file, each judged, and the names of its other objects."""

    jobs: tuple[LoadedJob, ...]
    others: tuple[str, ...]


def load_job(path: str, *, stdin: BinaryIO, name: str | None = None, with_status: bool = False) -> LoadedJob:
    """Return the one FrayJob in a file.

    Args:
        path: The file; `-` is `stdin`.
        stdin: Standard input.
        name: Takes the place of metadata.name.
        with_status: Keep the status that a cluster has written, which is else ignored.

    Raises:
        JobFileError: the file can't be read, or doesn't hold exactly one FrayJob.
        InvalidJobError: the API server would refuse the job, or it has no name.
    """
    file = read_job_file(path, stdin=stdin)
    manifest = file.manifest if name is None else _with_name(file.manifest, name)
    loaded = replace(_load(manifest, path), others=file.others)
    if with_status and "status" in manifest:
        status = _read_status(loaded.job.metadata.name, manifest["status"])
        return replace(loaded, job=loaded.job.model_copy(update={"status": status}))
    return loaded


def load_jobs(path: str, *, stdin: BinaryIO) -> LoadedJobs:
    """Return all FrayJobs in a file.

    Raises:
        JobFileError: the file can't be read, or holds no FrayJob.
        InvalidJobError: the API server would refuse one, or it has no name.
    """
    files = read_job_files(path, stdin=stdin)
    return LoadedJobs(tuple(_load(each, path) for each in files.manifests), files.others)


def _load(manifest: Mapping[str, Any], path: str) -> LoadedJob:
    directory = Path.cwd() if path == STDIN else Path(path).absolute().parent
    manifest, workspace = _split_workspace(manifest, directory)
    return LoadedJob(_judge(manifest), (), directory, workspace)


def _judge(manifest: Mapping[str, Any]) -> FrayJob:
    try:
        job = validate_manifest(manifest)
    except InvalidJobError as error:
        problems = tuple(_with_nearest(problem, manifest) for problem in error.problems)
        raise InvalidJobError(error.name, problems) from error
    if not job.metadata.name:
        missing = "is missing: only a cluster generates names (`fray run` takes --name)"
        raise InvalidJobError("", (FieldError(NAME_PATH, missing),))
    metadata = job.metadata.model_copy(update=dict.fromkeys(SERVERS_OWN_FIELDS))
    return job.model_copy(update={"metadata": metadata})


def as_sent(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a FrayJob without what only the server and the operator write: as one sends it."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key not in SERVERS_OWN}
    return {**{key: value for key, value in manifest.items() if key != "status"}, "metadata": metadata}


def _read_status(name: str, status: Any) -> FrayJobStatus:
    try:
        return FrayJobStatus.from_manifest(status)
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        paths = (".".join(["status", *map(str, problem["loc"])]) for problem in wrong)
        problems = (FieldError(path, problem["msg"]) for path, problem in zip(paths, wrong, strict=True))
        raise InvalidJobError(name, tuple(problems)) from error


def _split_workspace(manifest: Mapping[str, Any], directory: Path) -> tuple[dict[str, Any], Path | None]:
    """Return a manifest without the directory that is its workspace, and that directory."""
    match manifest:
        case {"spec": {"environment": {"workspace": str(named), **others}} as spec} if named:
            spec = {**spec, "environment": others}
            return {**manifest, "spec": spec}, directory / Path(named).expanduser()
    return dict(manifest), None


def _with_name(manifest: Mapping[str, Any], name: str) -> dict[str, Any]:
    metadata = manifest.get("metadata")
    return {**manifest, "metadata": {**(metadata if isinstance(metadata, dict) else {}), "name": name}}


def _with_nearest(problem: FieldError, manifest: Mapping[str, Any]) -> FieldError:
    """Return the problem with the nearest legal accelerators, which the API server's rules can't find."""
    value: Any = manifest
    parts = problem.path.split(".")
    for part in parts:
        value = value.get(part) if isinstance(value, Mapping) else None
    if not isinstance(value, str) or parts[-1] != "type":
        return problem
    try:
        if parts[-2] == "tpu":
            lookup_tpu(value)
        elif parts[-2] == "gpu":
            lookup_gpu(value, count=1)
    except UnknownAcceleratorError as unknown:
        return FieldError(problem.path, f"{problem.message} (nearest: {', '.join(unknown.nearest)})")
    except AcceleratorShapeError:
        return problem
    return problem


def override_job(
    job: FrayJob, options: JobOptions, *, environ: Mapping[str, str], is_local: bool
) -> tuple[FrayJob, tuple[str, ...]]:
    """Return the job of a file with what options say in its place, and each change in words.

    Raises:
        InvalidRequestError: An option means nothing.
        InvalidJobError: The API server would refuse the job so.
    """
    spec, changes = job.spec, list[str]()
    parts: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    if options.retries is not None:
        parts["retries"] = spec.retries.model_copy(update={"failures": options.retries})
        changes.append(f"retries.failures {options.retries}")
    if options.replicas is not None:
        parts["replicas"] = options.replicas
        changes.append(f"replicas {options.replicas}")
    if options.timeout is not None:
        seconds = read_timeout(options.timeout)
        parts["timeouts"] = spec.timeouts.model_copy(update={"total_seconds": seconds})
        changes.append(f"timeouts.totalSeconds {seconds}")
    if options.image is not None:
        environment["image"] = options.image
        changes.append(f"image {options.image}")
    if options.env:
        variables = read_variables(options.env, environ)
        hidden = [name for name, value in variables.items() if is_confidential(name, value)]
        if hidden and not is_local:
            remedy = "Put it into a Secret, and name that in environment.envFrom of the file."
            raise InvalidRequestError("--env", f"gives {hidden[0]}, which all could read there", remedy)
        given = {name: EnvVar(name=name, value=escape_text(value)) for name, value in variables.items()}
        kept = [each for each in spec.environment.env if each.name not in given]
        environment["env"] = [*kept, *given.values()]
        changes.append(f"env {', '.join(given)}")
    if not changes:
        return job, ()
    if environment:
        parts["environment"] = spec.environment.model_copy(update=environment)
    changed = job.model_copy(update={"spec": spec.model_copy(update=parts)})
    check_job(changed)
    return changed, tuple(changes)
