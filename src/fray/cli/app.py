"""The commands of `fray`, with their options and help; each imports its module only when it is used.

Nothing is done here: a command hands what the user typed, the environment and the streams to a function
of its own module.
"""

# ruff: noqa: PLC0415 - `fray --help` must not wait for pydantic, rich and yaml

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from fray.cli.streams import Stream

if TYPE_CHECKING:
    from fray.cluster.local.store import StateDirectory

__all__ = ["app"]

app = typer.Typer(
    name="fray",
    help="Run FrayJobs: on this machine with `fray run`, on a cluster with `kubectl apply`.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class _Data(StrEnum):
    YAML = "yaml"
    JSON = "json"


class _Explanation(StrEnum):
    TEXT = "text"
    YAML = "yaml"
    JSON = "json"


FileOption = Annotated[str, typer.Option("--file", "-f", help="Job file, YAML or JSON; - is stdin.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of a job that runs or ran here.")]
DataOption = Annotated[_Data | None, typer.Option("--output", "-o", help="Print the resource as data.")]


@app.callback(invoke_without_command=True)
def fray(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,  # noqa: FBT002
) -> None:
    """Run FrayJobs: on this machine with `fray run`, on a cluster with `kubectl apply`."""
    if version:
        import fray as package

        _output().write(f"fray {package.__version__}\n")
        raise typer.Exit


@app.command(short_help="Run a job on this machine.")
def run(
    file: FileOption,
    name: Annotated[str | None, typer.Option(help="Name of the job, instead of metadata.name.")] = None,
    workdir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Where the processes start; the job file's folder by default.",
        ),
    ] = None,
) -> None:
    """Run a job on this machine, without Kubernetes: one process for each of its hosts.

    Exit code: 0 when the job succeeded, that of the first process that failed, 126 or 127 when one could
    not be started, 124 after a timeout, 130 after Ctrl-C, 143 when it was stopped, 2 for a bad job file.
    """
    from fray.cli.run import RunRequest, run_job_file

    request = RunRequest(file, name, workdir)
    code = run_job_file(request, environ=_environ(), stdin=_stdin(), output=_output(), notes=_notes())
    raise typer.Exit(code)


@app.command("list", short_help="List the jobs of this machine.")
def list_(output: DataOption = None) -> None:
    """List the jobs that run or ran on this machine, with phase, attempt and hosts."""
    from fray.cli.listing import DataFormat, show_jobs

    form = None if output is None else DataFormat(output)
    show_jobs(form, state=_state(), output=_output(), notes=_notes())


@app.command(short_help="Tell how a job stands, attempt by attempt.")
def status(name: NameArgument, output: DataOption = None) -> None:
    """Tell how a job stands and what happened to it, attempt by attempt."""
    from fray.cli.listing import DataFormat, show_job

    show_job(name, None if output is None else DataFormat(output), state=_state(), output=_output())


@app.command(short_help="Print what a job's processes printed.")
def logs(  # noqa: PLR0913, PLR0917 - one parameter for each option
    name: NameArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,  # noqa: FBT002
    rank: Annotated[int | None, typer.Option(help="Only the host of this rank.")] = None,
    slice_index: Annotated[int | None, typer.Option("--slice", help="Only hosts of this slice.")] = None,
    host: Annotated[int | None, typer.Option(help="Only this host of each slice.")] = None,
    attempt: Annotated[int | None, typer.Option(help="This attempt instead of the latest.")] = None,
    tail: Annotated[int | None, typer.Option(min=0, help="Only the last lines, that many in all.")] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Put the time before each line.")] = False,  # noqa: FBT002
) -> None:
    """Print what a job's processes printed, in the order in which it came."""
    from fray.cli.logs import LogRequest, show_logs

    request = LogRequest(name, follow, attempt, rank, slice_index, host, tail, timestamps)
    show_logs(request, state=_state(), output=_output())


@app.command(short_help="Stop a running job.")
def stop(
    name: NameArgument,
    wait: Annotated[bool, typer.Option(help="Wait until all its processes have ended.")] = True,  # noqa: FBT002
) -> None:
    """Stop a running job: its processes get SIGTERM and, after their grace period, SIGKILL."""
    from fray.cluster.local.jobs import stop_job
    from fray.errors import JobNotRunningError

    try:
        job = stop_job(_state(), name, timeout=None if wait else 0)
    except JobNotRunningError as ended:
        # As on a cluster: a job that has finished is what it is, and stopping it changes nothing.
        _notes().write(f"{ended}\n")
        return
    _notes().write(f"{name}: {(job.status.phase or '').lower() if wait else 'asked to stop'}\n")


@app.command(short_help="Print the JobSet of a job, with reasons.")
def explain(
    file: FileOption,
    output: Annotated[
        _Explanation, typer.Option("--output", "-o", help="With reasons, or the bare manifest.")
    ] = _Explanation.TEXT,
) -> None:
    """Print the JobSet that a cluster would get for a job, and the reason for each part. Works offline.

    Of a job that a cluster has already (`kubectl get frayjob NAME -o yaml`), its last attempt is explained.
    """
    from fray.cli.explain import ExplainFormat, explain_job
    from fray.cli.requested_job import load_job

    job, _ = load_job(file, stdin=_stdin(), with_status=True)
    _output().write(explain_job(job, ExplainFormat(output)))


def _environ() -> Mapping[str, str]:
    return os.environ  # noqa: TID251 - the entry of the process: read here and handed on


def _stdin() -> BinaryIO:
    # Not sys.stdin, which is None where the caller closed it.
    return open(0, "rb", closefd=False)


def _output() -> Stream:
    return Stream(1, environ=_environ(), encoding=getattr(sys.stdout, "encoding", "utf-8"))


def _notes() -> Stream:
    return Stream(2, environ=_environ(), encoding=getattr(sys.stderr, "encoding", "utf-8"))


def _state() -> StateDirectory:
    from fray.cluster.local.store import StateDirectory
    from fray.settings import Settings

    return StateDirectory(Settings.from_env(_environ()).state_dir)
