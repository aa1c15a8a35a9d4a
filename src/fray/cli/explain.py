"""`fray explain`: a FrayJob, what a cluster would make of it, and why each part is as it is.

That is a JobSet, and for a job with workers also their Job and the NetworkPolicy of its pool. As text, the
reasons are comments above each, so the whole is still YAML.

The job is that of a file, of words as of `fray run`, or of a name. Words become the FrayJob that launching
them would send, by the same functions; nothing is sent or staged.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, BinaryIO

import yaml

from fray.accelerators.beside import Need, list_gpu_needs, list_tpu_needs
from fray.cli.clusters import choose_cluster, open_cluster, patience
from fray.cli.job_options import JobOptions
from fray.cli.named_job import JOB_FILES, build_request, options_in_errors
from fray.cli.requested_job import as_sent, load_job, override_job
from fray.cli.streams import OutputStream
from fray.cluster.base import Cluster
from fray.cluster.cluster_spec import ClusterSpec, KubernetesSpec
from fray.errors import InvalidRequestError
from fray.plan.gang import Gang, derive_gang
from fray.plan.gang_placement import NOTHING_READ, ClusterTopology
from fray.plan.jobset import build_attempt
from fray.plan.manifests import Fact
from fray.plan.network_policy import build_network_policy
from fray.plan.settings import PlanSettings
from fray.plan.texts import format_count
from fray.plan.worker_job import build_worker_job
from fray.plan.workers import derive_wanted, has_workers
from fray.types import JobId
from fray.wire.frayjob import FrayJob

__all__ = ["ExplainCommand", "ExplainFormat", "Explained", "explain_job", "find_explained", "format_manifest"]

WIDTH = 100
NOT_ASKED = ClusterTopology(
    unread=(
        "no cluster was asked whether its queues have topologies or its nodes form slices, which may change "
        "what keeps the hosts of a slice together: `fray explain NAME` asks, for a job that is there",
    )
)
"""Of a job with slices of several hosts that is only written down."""


class ExplainFormat(StrEnum):
    """Forms of `fray explain`."""

    TEXT = "text"
    YAML = "yaml"
    JSON = "json"


def explain_job(
    job: FrayJob,
    form: ExplainFormat,
    *,
    secrets: Sequence[str] = (),
    topology: ClusterTopology | None = NOTHING_READ,
) -> str:
    """Return a job, and what its last attempt has become on a cluster, or the first one will.

    One document for each object, or as JSON a List of them. `secrets` names the Secrets that would be made
    beside the job; `topology` is what its cluster has that keeps gangs together, None
    where no cluster was asked.

    Raises:
        RequestError: the job asks for hardware that doesn't exist.
    """
    attempt = job.status.attempt or 1
    if topology is None:
        topology = NOT_ASKED if derive_gang(job.spec).multi_host_slices else NOTHING_READ
    objects = _list_objects(job, attempt, topology)
    frayjob = as_sent(job.to_manifest())
    if form is ExplainFormat.JSON:
        items = [frayjob, *(each.manifest for each in objects)]
        return format_manifest({"apiVersion": "v1", "kind": "List", "items": items}, "json")
    as_text = form is ExplainFormat.TEXT
    beside = f"# With Secrets, which aren't shown: {', '.join(secrets)}\n" if as_text and secrets else ""
    documents = [format_manifest(frayjob, "yaml")]
    for each in objects:
        reasons = _format_reasons(each) if as_text else ""
        documents.append(f"{reasons}{format_manifest(each.manifest, 'yaml')}")
    return beside + "---\n".join(documents)


@dataclass(frozen=True)
class _Object:
    """An object that a cluster makes of a job, with a line about it and what explains it."""

    manifest: dict[str, Any]
    title: str
    facts: Sequence[Fact] = ()
    notices: Sequence[str] = ()
    needs: Sequence[Need] = ()


def _list_objects(job: FrayJob, attempt: int, topology: ClusterTopology) -> list[_Object]:
    """Return what an attempt of a job becomes, the JobSet first."""
    name, settings = job.metadata.name, PlanSettings()
    plan = build_attempt(job, attempt=attempt, settings=settings, topology=topology)
    title = f"{name}: {plan.gang.describe()}; attempt {attempt} is JobSet {plan.name}"
    objects = [_Object(plan.jobset, title, plan.facts, plan.notices, _list_needs(plan.gang))]
    if not has_workers(job.spec):
        return objects
    if wanted := derive_wanted(job.spec):
        workers = build_worker_job(job, attempt=attempt, generation=1, count=wanted, settings=settings)
        title = f"{name}: {format_count(wanted, 'worker')}, which nothing waits for"
        objects.append(_Object(workers.manifest, title, workers.facts, workers.notices))
    why = "its pool's ports are open to its own pods alone, all others as without it"
    return [*objects, _Object(build_network_policy(job), f"{name}: {why}")]


def format_manifest(manifest: Any, form: str) -> str:
    """Return a manifest as YAML or as JSON."""
    if form == "json":
        return json.dumps(manifest, indent=2) + "\n"
    return str(yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True, width=WIDTH))


def _format_reasons(each: _Object) -> str:
    lines = [each.title, ""]
    if each.notices:
        lines += ["Not done as asked, or not known:", *(f"  {notice}" for notice in each.notices), ""]
    if each.needs:
        needs = (line for need in each.needs for line in (f"  {need.what}", f"      <{need.source}>"))
        lines += ["Needed beside it, to be prepared by people:", *needs, ""]
    if each.facts:
        lines.append("What it holds, and why:")
    for fact in each.facts:
        lines += _format_fact(fact)
    return "".join(f"# {line}".rstrip() + "\n" for line in [*lines, *([""] if each.facts else [])])


def _list_needs(gang: Gang) -> tuple[Need, ...]:
    if gang.gpu is not None:
        return list_gpu_needs(gang.gpu, hosts=gang.hosts_per_slice)
    return list_tpu_needs(gang.tpu) if gang.tpu is not None else ()


def _format_fact(fact: Fact) -> list[str]:
    # One line each, however long the value: a variable may hold line breaks, which would end the comment.
    value = textwrap.shorten(fact.value, WIDTH, placeholder=" ...")
    source = f"  <{fact.source}>" if fact.source else ""
    return [f"  {fact.subject} = {value}", f"      {fact.because}{source}"]


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
    """A job, the Secrets that launching it would make beside it, and what its cluster has if it was asked."""

    job: FrayJob
    secrets: tuple[str, ...] = ()
    topology: ClusterTopology | None = None


def find_explained(
    command: ExplainCommand, *, environ: Mapping[str, str], stdin: BinaryIO, notes: OutputStream
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
        if not loaded.workspace.is_dir():
            notes.write(f"{job.metadata.name}: shown without its workspace: {loaded.workspace} isn't here\n")
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
    if command.words and command.words[0].endswith((".py", *JOB_FILES)):
        raise InvalidRequestError(
            command.words[0], "looks like a file, and not like the name of a job", forms
        )
    given = command.options.given
    if command.file is not None and command.options.without_file_only:
        problem = f"has a file and also {', '.join(command.options.without_file_only)}"
        raise InvalidRequestError("fray explain", problem, "Write it into the file.")
    if command.words and (given or command.options.name is not None):
        problem = f"has the name of a job that is there and also {', '.join(given or ('--name',))}"
        raise InvalidRequestError("fray explain", problem, "Leave it out, or put `--` before a program.")


def _describe(command: ExplainCommand, spec: ClusterSpec, environ: Mapping[str, str]) -> Explained:
    request = build_request(command.words, command.options, environ=dict(environ))
    with options_in_errors():
        previewed = _open_for_preview(spec, environ).preview(request)
    return Explained(previewed.job, previewed.secrets)


def _open_for_preview(spec: ClusterSpec, environ: Mapping[str, str]) -> Cluster:
    """Return the cluster of a spec; any cluster where it means none, since there is no JobSet there."""
    return open_cluster(spec if isinstance(spec, KubernetesSpec) else KubernetesSpec(), environ=environ)
