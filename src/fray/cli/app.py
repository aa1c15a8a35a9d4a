"""The commands of `fray`, with their options and help; each imports its module only when it is used.

Nothing is done here: a command hands what the user typed, the environment and the streams to a function
of its own module.
"""

# ruff: noqa: PLC0415 - `fray --help` must not wait for pydantic, rich and yaml

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fray.cli.actors import actors
from fray.cli.cluster_options import (
    ClusterOption,
    Form,
    FormOption,
    NamespaceOption,
    asking,
    data_format,
    with_options,
)
from fray.cli.job_options import JobOptions
from fray.cli.job_or_program import JobOrProgramCommand, ProgramCommand, has_program
from fray.cli.pools import pools
from fray.cli.process import environ as _environ
from fray.cli.process import notes as _notes
from fray.cli.process import output as _output
from fray.cli.process import stdin as _stdin

if TYPE_CHECKING:
    from fray.cluster.base import Cluster
    from fray.wire.frayjob import FrayJob

__all__ = ["app"]

HELP = "Run FrayJobs: on this machine, or on the cluster that --cluster or FRAY_CLUSTER_SPEC names."

app = typer.Typer(
    name="fray",
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


app.add_typer(actors)
app.add_typer(pools)


class _Explanation(StrEnum):
    TEXT = "text"
    YAML = "yaml"
    JSON = "json"


def _complete_names(context: typer.Context, incomplete: str) -> list[str]:
    from fray.cli.completion import complete_job

    chosen = context.params
    return complete_job(
        incomplete,
        cluster=chosen.get("cluster"),
        namespace=chosen.get("namespace"),
        environ=_environ(),
    )


FILE_HELP = "Job file, YAML or JSON; - is stdin."
FileOption = Annotated[str, typer.Option("--file", "-f", help=FILE_HELP)]
OptionalFileOption = Annotated[str | None, typer.Option("--file", "-f", help=FILE_HELP)]
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of a job.", autocompletion=_complete_names)
]
NamesArgument = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Names of jobs.", autocompletion=_complete_names)
]
RankOption = Annotated[int, typer.Option("--rank", min=0, help="Rank of the host.")]


@app.callback(invoke_without_command=True, help=HELP)
def fray(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,  # noqa: FBT002
) -> None:
    """Print the version where it is asked for; each command has a function of its own."""
    if version:
        import fray as package

        _output().write(f"fray {package.__version__}\n")
        raise typer.Exit


# Behind the first word of a program all options are the program's.
@app.command(
    cls=ProgramCommand,
    short_help="Run a job to its end.",
    context_settings={"allow_interspersed_args": False},
)
@with_options(JobOptions)
def run(  # noqa: PLR0913 - one parameter for each option
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROGRAM",
            help="-- PROGRAM ARGS..., or MODULE:FUNCTION ARGS...: what each host runs, instead of -f. "
            "`MODULE:FUNCTION --help` prints what a function takes.",
        ),
    ] = None,
    file: OptionalFileOption = None,
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Don't follow the job.")] = False,  # noqa: FBT002
    workdir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="On this machine: where the processes start; the job file's folder by default.",
        ),
    ] = None,
    *,
    options: JobOptions,
) -> None:
    """Run a job to its end: that of a file, a program, or a Python function, on each of its hosts.

    On this machine a process stands for each host, and Ctrl-C stops the job. On a cluster the job runs on
    whatever ends this command; `fray logs -f NAME` shows it again, `fray stop NAME` stops it.

    Exit code: 0 when the job succeeded, that of the first process that failed, 126 or 127 when one could
    not be started, 124 after a timeout, 130 after Ctrl-C, 143 when it was stopped, 2 for a bad job.
    """
    from fray.cli.run import RunCommand, run_job

    command = RunCommand(tuple(words or ()), file, options, cluster, namespace, workdir, detach)
    code = run_job(command, environ=_environ(), stdin=_stdin(), output=_output(), notes=_notes())
    raise typer.Exit(code)


@app.command(short_help="Make the jobs of a file be on a cluster.")
def apply(file: FileOption, cluster: ClusterOption = None, namespace: NamespaceOption = None) -> None:
    """Create the FrayJobs of a file, as `kubectl apply` does, and tell what was there."""
    from fray.cli.apply import apply_file
    from fray.cli.clusters import choose_cluster

    spec = choose_cluster(cluster, namespace, environ=_environ())
    apply_file(file, spec, environ=_environ(), stdin=_stdin(), output=_output(), notes=_notes())


@app.command("list", short_help="List jobs.")
def list_(
    phase: Annotated[
        list[str] | None, typer.Option("--phase", help="Only jobs of this phase; may be repeated.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the newest, so many.")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on and print what changes.")] = False,  # noqa: FBT002
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
    output: FormOption = Form.TABLE,
) -> None:
    """List the jobs that run or ran, with phase, attempt and hosts; the newest first."""
    from fray.cli.listing import Choice, show_jobs, watch_jobs

    choice = Choice.of(phase or (), limit)
    with asking(cluster, namespace) as asked:
        listed = show_jobs(choice, data_format(output), cluster=asked, output=_output(), notes=_notes())
    if watch:
        watch_jobs(choice, listed, cluster=asked, output=_output())


@app.command(short_help="Tell how a job stands, attempt by attempt.")
def status(
    name: NameArgument,
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
    output: FormOption = Form.TABLE,
) -> None:
    """Tell how a job stands and what happened to it, attempt by attempt, and how its actors stand."""
    from fray.cli.listing import show_job

    with asking(cluster, namespace) as asked:
        job = _find(name, asked)
        show_job(job, data_format(output), cluster=asked, output=_output(), notes=_notes())


@app.command(short_help="Print what a job's hosts printed.")
def logs(  # noqa: PLR0913, PLR0917 - one parameter for each option
    name: NameArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,  # noqa: FBT002
    rank: Annotated[int | None, typer.Option(help="Only the host of this rank.")] = None,
    slice_index: Annotated[int | None, typer.Option("--slice", help="Only hosts of this slice.")] = None,
    host: Annotated[int | None, typer.Option(help="Only this host of each slice.")] = None,
    attempt: Annotated[int | None, typer.Option(help="This attempt instead of the latest.")] = None,
    tail: Annotated[int | None, typer.Option(min=0, help="Only the last lines, that many in all.")] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Put the time before each line.")] = False,  # noqa: FBT002
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Print what a job's hosts printed, in the order in which it came."""
    from fray.cli.logs import LogRequest, show_logs

    request = LogRequest(name, follow, attempt, rank, slice_index, host, tail, timestamps)
    with asking(cluster, namespace) as asked:
        job = _find(name, asked)
    show_logs(request, job, asked, _output())


@app.command(short_help="Show what the pool of a running job has and does.")
def top(
    name: NameArgument,
    json: Annotated[bool, typer.Option("--json", help="Once, as data for programs.")] = False,  # noqa: FBT002
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Show workers, slots, queue, rates, memory and functions of a job's pool: on a terminal until it ends.

    On a cluster it needs the verb `get` on `pods/proxy`.
    """
    from fray.cli.top import show_pool, watch_pool
    from fray.types import JobId

    output = _output()
    with asking(cluster, namespace) as asked:
        if json or not output.is_terminal:
            show_pool(JobId(name), as_json=json, cluster=asked, output=output)
            return
        _find(name, asked)
    watch_pool(JobId(name), cluster=asked, output=output, notes=_notes())


@app.command(short_help="Bring the dashboard of a job's engine, Ray or Dask, to this machine.")
def dashboard(name: NameArgument, cluster: ClusterOption = None, namespace: NamespaceOption = None) -> None:
    """Print a URL of this machine at which the dashboard of a job's workers is, until Ctrl-C.

    On a cluster it needs the verbs `get` and `create` on `pods/portforward`.
    """
    from fray.cli.top import show_dashboard
    from fray.types import JobId

    with asking(cluster, namespace) as asked:
        show_dashboard(JobId(name), cluster=asked, output=_output(), notes=_notes())


@app.command("exec", short_help="Run a command in a host of a running job.")
def exec_(
    name: NameArgument,
    words: Annotated[list[str], typer.Argument(metavar="-- COMMAND ARGS...", help="What to run.")],
    rank: RankOption = 0,
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Run a command beside a job's program, in the running container of one of its hosts.

    It gets what this command reads on standard input. Exit code: the command's.
    """
    from fray.cli.host_command import ThisTerminal, run_in_host

    with asking(cluster, namespace) as asked:
        _find(name, asked)
    streams = ThisTerminal(_stdin().fileno(), _output(), _notes())
    raise typer.Exit(run_in_host(name, words, rank, cluster=asked, streams=streams))


@app.command(short_help="Open a shell in a host of a running job.")
def shell(
    name: NameArgument,
    rank: RankOption = 0,
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Open a shell on this terminal in the running container of one of a job's hosts: bash, else sh.

    Exit code: the shell's.
    """
    from fray.cli.host_command import ThisTerminal, open_shell

    with asking(cluster, namespace) as asked:
        _find(name, asked)
    streams = ThisTerminal(_stdin().fileno(), _output(), _notes())
    raise typer.Exit(open_shell(name, rank, cluster=asked, streams=streams))


@app.command(short_help="Wait until jobs have ended.")
def wait(
    names: NamesArgument,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Wait no longer; exit code 124 then.")
    ] = None,
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Wait until jobs have ended, and tell how.

    Exit code: that of the first that didn't succeed, as of `fray run`, else 0.
    """
    from fray.cli.wait import wait_for_jobs

    with asking(cluster, namespace) as asked:
        _find(names[0], asked)  # which tells where a cluster is silent; a wait may be so for days
    raise typer.Exit(wait_for_jobs(names, timeout=timeout, cluster=asked, notes=_notes()))


@app.command(short_help="Stop running jobs.")
def stop(
    names: NamesArgument,
    wait: Annotated[bool, typer.Option(help="Wait until all its processes have ended.")] = True,  # noqa: FBT002
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Stop running jobs: their processes get SIGTERM and, after their grace period, SIGKILL."""
    from fray.cli.wait import stop_jobs

    with asking(cluster, namespace) as asked:
        jobs = [_find(name, asked) for name in names]
    stop_jobs(jobs, wait=wait, cluster=asked, notes=_notes())


@app.command(short_help="Remove jobs with their logs.")
def delete(
    names: NamesArgument,
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Remove jobs with their status and their logs; those that run are ended."""
    from fray.cli.wait import delete_jobs

    with asking(cluster, namespace) as asked:
        jobs = [_find(name, asked) for name in names]
    delete_jobs(jobs, cluster=asked, output=_output())


@app.command(cls=JobOrProgramCommand, short_help="Print a job's FrayJob and JobSet, with reasons.")
@with_options(JobOptions)
def explain(  # noqa: PLR0913 - one parameter for each option
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Name of a job; or as `fray run`: -- PROGRAM ARGS..., MODULE:FUNCTION ARGS...",
            autocompletion=_complete_names,
        ),
    ] = None,
    file: OptionalFileOption = None,
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
    output: Annotated[
        _Explanation, typer.Option("--output", "-o", help="With reasons, or the bare manifests.")
    ] = _Explanation.TEXT,
    *,
    options: JobOptions,
) -> None:
    """Print the FrayJob of a job and the JobSet that a cluster would make of it, with reasons.

    A file, a program or a function is explained offline, with the options of `fray run`; nothing is sent. Of
    a job that is there already (NAME, or `kubectl get frayjob NAME -o yaml`), its last attempt is explained.
    Only with NAME is the cluster asked who keeps the hosts of a gang together: JobSet, Kueue or GKE.
    """
    from fray.cli.explain import ExplainCommand, ExplainFormat, explain_job, find_explained
    from fray.cli.named_job import find_help

    command = ExplainCommand(tuple(words or ()), has_program(context), file, options, cluster, namespace)
    if has_program(context) and (usage := find_help(command.words)) is not None:
        _output().write(usage)
        return
    found = find_explained(command, environ=_environ(), stdin=_stdin(), notes=_notes())
    _output().write(
        explain_job(found.job, ExplainFormat(output), secrets=found.secrets, topology=found.topology)
    )


@app.command(short_help="List the TPU slices and GPU hosts that jobs can ask for.")
def accelerators(
    text: Annotated[
        str | None,
        typer.Option("--filter", metavar="TEXT", help="Only those with TEXT, such as v5p or H100."),
    ] = None,
) -> None:
    """List the TPU slices and GPU hosts that `--tpu` and `--gpu` can name.

    CPU and memory are those of one host; FLOP/s are the most that all chips do together, in bfloat16. Which
    of them a cluster has depends on its node pools. What no source tells is shown as a question mark.
    """
    from fray.cli.accelerators import show_accelerators

    show_accelerators(text, output=_output(), notes=_notes())


@app.command(short_help="Check what jobs need.")
def doctor(
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
    output: FormOption = Form.TABLE,
    file: OptionalFileOption = None,
) -> None:
    """Check what jobs need: access, CRDs, operator, JobSet, rights, nodes.

    With -f also whether a cluster has the node pools that the job in the file needs.

    Exit code: 1 if anything is wrong; each such line says what to do.
    """
    from fray.cli.clusters import choose_cluster
    from fray.cli.doctor import diagnose
    from fray.cli.requested_job import load_job

    spec = choose_cluster(cluster, namespace, environ=_environ())
    job = None if file is None else load_job(file, stdin=_stdin()).job
    code = diagnose(spec, data_format(output), job=job, environ=_environ(), output=_output())
    raise typer.Exit(code)


def _find(name: str, cluster: Cluster) -> FrayJob:
    from fray.types import JobId

    return cluster.get(JobId(name))
