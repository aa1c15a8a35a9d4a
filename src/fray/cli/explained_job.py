"""The job that `fray explain` is asked about: that of a file, of words as of `fray run`, or of a name.

Words become the FrayJob that launching them would send, by the same functions; nothing is sent or staged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from fray.cli.clusters import choose_cluster, open_cluster, patience
from fray.cli.named_job import JobOptions, build_request
from fray.cli.overrides import override_job
from fray.cli.requested_job import load_job
from fray.cli.streams import Stream
from fray.cluster.cluster_spec import ClusterSpec, KubernetesSpec
from fray.errors import InvalidRequestError
from fray.plan.gang_placement import NOTHING_READ, ClusterTopology
from fray.types import JobId
from fray.wire.frayjob import FrayJob

if TYPE_CHECKING:
    from fray.cluster import KubernetesCluster

__all__ = ["ExplainCommand", "Explained", "find_explained"]


@dataclass(frozen=True)
class ExplainCommand:
    """What `fray explain` was asked for.

    `words` are a program or a function where `has_program`, else the name of a job that is there.
    """

    words: tuple[str, ...]
    has_program: bool
    file: str | None
    options: JobOptions
    cluster: str | None = None
    namespace: str | None = None


@dataclass(frozen=True)
class Explained:
    """A job, the names of the Secrets that launching it would make beside it, and what its cluster has."""

    job: FrayJob
    secrets: tuple[str, ...] = ()
    topology: ClusterTopology = NOTHING_READ


def find_explained(
    command: ExplainCommand, *, environ: Mapping[str, str], stdin: BinaryIO, notes: Stream
) -> Explained:
    """Return the job that is meant. Only a NAME makes this ask a cluster.

    Raises:
        RequestError: The command contradicts itself, the job is none that the API server takes, or there is
            none of that name.
        SurroundingsError: The cluster can't be asked.
    """
    _check(command)
    if command.file is not None:
        loaded = load_job(command.file, stdin=stdin, name=command.options.name, with_status=True)
        job, changes = override_job(loaded.job, command.options, environ=environ, is_local=False)
        if changes:
            notes.write(f"{job.metadata.name}: instead of what the file says: {'; '.join(changes)}\n")
        if loaded.workspace is None:
            return Explained(job)
        spec = choose_cluster(command.cluster, command.namespace, environ=environ)
        previewed = _open_for_preview(spec, environ).preview(job, workspace=loaded.workspace)
        return Explained(previewed.job.model_copy(update={"status": job.status}), previewed.secrets)
    spec = choose_cluster(command.cluster, command.namespace, environ=environ)
    if command.has_program:
        return _describe(command, spec, environ)
    cluster = open_cluster(spec, environ=environ)
    with patience(notes, spec):
        job = cluster.get(JobId(command.words[0]))
        return Explained(job, topology=cluster.read_topology(job))


def _check(command: ExplainCommand) -> None:
    """Refuse what contradicts itself."""
    forms = (
        "Use `fray explain -f FILE`, `fray explain NAME`, `fray explain -- PROGRAM ARGS...` "
        "or `fray explain MODULE:FUNCTION`."
    )
    if command.file is None and not command.words:
        raise InvalidRequestError("fray explain", "names nothing to explain", forms)
    if command.file is not None and command.words:
        problem = f"has a file and also {' '.join(command.words)!r}"
        raise InvalidRequestError("fray explain", problem, f"Give one of them. {forms}")
    if command.has_program:
        return
    if len(command.words) > 1:
        problem = f"has several names: {' '.join(command.words)!r}"
        raise InvalidRequestError("fray explain", problem, f"Give one, or put `--` before a program. {forms}")
    given = command.options.given
    if command.file is not None and command.options.without_file_only:
        problem = f"has a file and also {', '.join(command.options.without_file_only)}"
        raise InvalidRequestError("fray explain", problem, "Write it into the file.")
    if command.words and (given or command.options.name is not None):
        problem = f"has the name of a job that is there and also {', '.join(given or ('--name',))}"
        raise InvalidRequestError("fray explain", problem, "Leave it out, or put `--` before a program.")


def _describe(command: ExplainCommand, spec: ClusterSpec, environ: Mapping[str, str]) -> Explained:
    request = build_request(command.words, command.options, environ=dict(environ))
    previewed = _open_for_preview(spec, environ).preview(request)
    return Explained(previewed.job, previewed.secrets)


def _open_for_preview(spec: ClusterSpec, environ: Mapping[str, str]) -> KubernetesCluster:
    """Return the cluster of a spec; here, where there is no JobSet, what any cluster would get."""
    from fray.cluster import KubernetesCluster  # noqa: PLC0415 - slow to import, and not needed for most files

    return KubernetesCluster(spec if isinstance(spec, KubernetesSpec) else None, environ=environ)
