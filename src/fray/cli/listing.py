"""`fray list` and `fray status`: jobs as tables and stories, or as data; alike for all backends."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum

from fray.cli.backend import Backend
from fray.cli.explain import format_manifest
from fray.cli.story import Line, describe_job, format_job_table
from fray.cli.streams import Stream

__all__ = ["DataFormat", "print_lines", "show_job", "show_jobs"]


class DataFormat(StrEnum):
    """Forms for programs."""

    YAML = "yaml"
    JSON = "json"


def show_jobs(form: DataFormat | None, *, backend: Backend, output: Stream, notes: Stream) -> None:
    """Print all jobs, one a line; with a format, their resources as a List."""
    jobs = backend.list_jobs()
    if form is not None:
        items = [job.to_manifest() for job in jobs]
        output.write(format_manifest({"apiVersion": "v1", "kind": "List", "items": items}, form.value))
        return
    if not jobs:
        notes.write(f"no jobs in {backend.place}\n")
        return
    print_lines(format_job_table(jobs, now=datetime.now(UTC)), output)


def show_job(name: str, form: DataFormat | None, *, backend: Backend, output: Stream) -> None:
    """Print the story of a job; with a format, its resource.

    Raises:
        JobNotFoundError: there is no such job.
    """
    job = backend.find_job(name)
    if form is not None:
        output.write(format_manifest(job.to_manifest(), form.value))
        return
    print_lines(describe_job(job, now=datetime.now(UTC)), output)


def print_lines(lines: Iterable[Line], output: Stream) -> None:
    """Print lines, in colour on a terminal that has any."""
    if not output.has_color:
        output.write("".join(f"{line.text}\n" for line in lines))
        return
    from rich.console import Console  # noqa: PLC0415 - slow to import, and only needed on terminals
    from rich.text import Text  # noqa: PLC0415

    console = Console(file=output, highlight=False)  # type: ignore[arg-type]
    for line in lines:
        console.print(Text(line.text, style=line.tone.value), soft_wrap=True)
