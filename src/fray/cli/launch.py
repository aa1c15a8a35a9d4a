"""`fray run`, whatever it runs and wherever: which job is meant, and who runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fray.cli.backend import choose_cluster
from fray.cli.named_job import JobOptions, build_request
from fray.cli.requested_job import load_jobs
from fray.cli.run import RunRequest, run_here
from fray.cli.streams import Stream
from fray.cluster.cluster_spec import KubernetesSpec, LocalSpec
from fray.errors import InvalidRequestError
from fray.types import JobRequest

__all__ = ["LaunchCommand", "launch"]


@dataclass(frozen=True)
class LaunchCommand:
    """What `fray run` was asked for: a file, or the words of a program or function with options."""

    words: tuple[str, ...]
    file: str | None
    options: JobOptions
    cluster: str | None = None
    namespace: str | None = None
    working_dir: Path | None = None
    detach: bool = False


def launch(
    command: LaunchCommand, *, environ: Mapping[str, str], stdin: BinaryIO, output: Stream, notes: Stream
) -> int:
    """Run a job to its end and return the exit code.

    Raises:
        RequestError: It can't be run as it is; nothing was started.
        SurroundingsError: The machine or the cluster doesn't let it.
    """
    _check(command)
    spec = choose_cluster(command.cluster, command.namespace, environ=environ)
    request = _build_request(command, environ)
    if isinstance(spec, LocalSpec):
        if command.detach:
            remedy = "Leave it out, or start `fray run ... &`: jobs here end with their command."
            raise InvalidRequestError("--detach", "needs a cluster", remedy)
        asked = RunRequest(command.file, command.options.name, command.working_dir, request)
        return run_here(asked, spec, environ=environ, stdin=stdin, output=output, notes=notes)
    assert isinstance(spec, KubernetesSpec)
    if command.working_dir is not None:
        remedy = "Say it in the file: `workingDir` of its podTemplate's container."
        raise InvalidRequestError("--workdir", "is a directory of this machine", remedy)
    from fray.cli.cluster_run import ClusterRun  # noqa: PLC0415 - slow to import, and not needed here

    run = ClusterRun(spec, environ=environ, output=output, notes=notes, detach=command.detach)
    if request is not None:
        return run.run_request(request, own_name=command.options.name is not None)
    assert command.file is not None
    loaded = load_jobs(command.file, stdin=stdin, only_one=True, name=command.options.name)
    ((job, manifest),) = loaded.jobs
    return run.run_manifest(job, manifest, loaded.others)


def _check(command: LaunchCommand) -> None:
    """Refuse what contradicts itself."""
    forms = "Use `fray run -f FILE`, `fray run -- PROGRAM ARGS...` or `fray run MODULE:FUNCTION`."
    if command.file is None and not command.words:
        raise InvalidRequestError("fray run", "names nothing to run", forms)
    if command.file is not None and command.words:
        problem = f"has a file and also {' '.join(command.words)!r}"
        raise InvalidRequestError("fray run", problem, f"Give one of them. {forms}")
    if command.file is not None and command.options.given:
        problem = f"has a file and also {', '.join(command.options.given)}"
        raise InvalidRequestError("fray run", problem, "Write it into the file.")


def _build_request(command: LaunchCommand, environ: Mapping[str, str]) -> JobRequest | None:
    if command.file is not None:
        return None
    return build_request(command.words, command.options, environ=dict(environ))
