"""`fray list` and `fray status`: jobs as tables and stories, or as data; alike for all backends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from fray.cli.actor_story import describe_job_actors
from fray.cli.story import Line, describe_job, format_job_table
from fray.cli.streams import OutputStream
from fray.cluster.base import Cluster
from fray.errors import FrayError, InvalidRequestError
from fray.vocabulary import Phase
from fray.wire.frayjob import FrayJob
from fray.wire.model import WireModel

if TYPE_CHECKING:
    from fray.wire.frayactor import FrayActor

__all__ = ["Choice", "DataFormat", "print_lines", "print_resources", "show_job", "show_jobs", "watch_jobs"]

WATCH_SECONDS = 1.0


class DataFormat(StrEnum):
    """Forms for programs."""

    YAML = "yaml"
    JSON = "json"


@dataclass(frozen=True)
class Choice:
    """Which jobs are listed: of some phases, in lower case, or all; and the newest, so many, or all."""

    phases: frozenset[str] = frozenset()
    limit: int | None = None

    @classmethod
    def of(cls, phases: Iterable[str], limit: int | None) -> Choice:
        """Return a choice by what a user typed; raises `InvalidRequestError` where there is no such phase."""
        wanted = frozenset(phase.lower() for phase in phases)
        known = {phase.value.lower(): phase.value for phase in Phase}
        for phase in sorted(wanted - known.keys()):
            raise InvalidRequestError("--phase", f"is {phase!r}", f"Legal: {', '.join(known.values())}.")
        return cls(wanted, limit)

    def apply(self, jobs: Iterable[FrayJob]) -> list[FrayJob]:
        """Return the jobs that are meant, the newest first."""
        found = [job for job in jobs if not self.phases or (job.status.phase or "").lower() in self.phases]
        # Of one second those are alike; by name they come in an order that stays.
        found.sort(key=lambda job: job.metadata.name)
        found.sort(key=lambda job: job.metadata.creation_timestamp or "", reverse=True)
        return found[: self.limit]


def show_jobs(
    choice: Choice, form: DataFormat | None, *, cluster: Cluster, output: OutputStream, notes: OutputStream
) -> list[FrayJob]:
    """Print jobs, one a line; with a format, their resources as a List. Return them."""
    jobs = choice.apply(cluster.get_all())
    if form is not None:
        print_resources(jobs, form, output)
    elif not jobs:
        notes.write(f"no jobs{' of that phase' if choice.phases else ''} in {cluster.place}\n")
    else:
        print_lines(format_job_table(jobs, now=datetime.now(UTC), width=output.width), output)
    return jobs


def watch_jobs(
    choice: Choice,
    listed: Sequence[FrayJob],
    *,
    cluster: Cluster,
    output: OutputStream,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Print jobs that are new or have changed, as `kubectl get --watch` does, until the user has enough."""
    shown = {job.metadata.name: job for job in listed}
    while True:
        sleep(WATCH_SECONDS)
        jobs = choice.apply(cluster.get_all())
        changed = [job for job in jobs if shown.get(job.metadata.name) != job]
        if changed:
            lines = format_job_table(changed, now=datetime.now(UTC), width=output.width)
            print_lines(lines[1:], output)
        shown = {job.metadata.name: job for job in jobs}


def show_job(
    job: FrayJob, form: DataFormat | None, *, cluster: Cluster, output: OutputStream, notes: OutputStream
) -> None:
    """Print the story of a job with its actors; with a format, its resource."""
    if form is not None:
        print_resources(job, form, output)
        return
    now = datetime.now(UTC)
    own: list[FrayActor] = []
    try:
        name, uid = job.metadata.name, job.metadata.uid
        own = [actor for actor in cluster.get_actors() if actor.has_root(name, uid)]
    except FrayError as error:  # such as a missing right: the rest of the story is shown all the same
        notes.write(f"the job's actors can't be shown: {error}\n")
    print_lines(describe_job(job, now=now, more=describe_job_actors(own, now=now)), output)


def print_resources(found: WireModel | Sequence[WireModel], form: DataFormat, output: OutputStream) -> None:
    """Print a resource as a document, or several as a List."""
    from fray.cli.explain import format_manifest  # noqa: PLC0415 - costs a table its start

    if isinstance(found, WireModel):
        body = found.to_manifest()
    else:
        body = {"apiVersion": "v1", "kind": "List", "items": [each.to_manifest() for each in found]}
    output.write(format_manifest(body, form.value))


def print_lines(lines: Iterable[Line], output: OutputStream) -> None:
    """Print lines, in colour on a terminal that has any."""
    if not output.has_color:
        output.write("".join(f"{line.text}\n" for line in lines))
        return
    from rich.console import Console  # noqa: PLC0415 - slow to import, and only needed on terminals
    from rich.text import Text  # noqa: PLC0415

    console = Console(file=output, highlight=False)  # type: ignore[arg-type]
    for line in lines:
        console.print(Text(line.text, style=line.tone.value), soft_wrap=True)
