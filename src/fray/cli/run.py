"""`fray run` on this machine: one job, from its file or its command line to an exit code.

Everything that can be refused is refused before anything starts. Signals become requests to the runner:
the first one ends the job with grace, the second at once.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import signal
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from fray.cli.display import Display
from fray.cli.exit_codes import derive_exit_code
from fray.cli.requested_job import load_job
from fray.cli.screen import open_screen
from fray.cli.story import Line, Tone
from fray.cli.streams import Stream
from fray.cluster.cluster_spec import LocalSpec
from fray.cluster.local.attempt import PLAN_SETTINGS, Workplace
from fray.cluster.local.callables import write_payload
from fray.cluster.local.environment import derive_base_environment
from fray.cluster.local.locks import JobLocks
from fray.cluster.local.pods import LocalMachine, build_local_pods
from fray.cluster.local.requests import prepare_request
from fray.cluster.local.runner import LocalRunner, build_retry_policy
from fray.cluster.local.store import JobFolder, StateDirectory
from fray.cluster.local.support import build_notices, check_open_files, check_supported
from fray.cluster.manifest import find_parent
from fray.errors import OutputError
from fray.jobfile import STDIN
from fray.plan.jobset import build_attempt
from fray.settings import Settings
from fray.types import JobRequest
from fray.vocabulary import EXIT_BROKEN_PIPE
from fray.wire.frayjob import FrayJob

__all__ = ["RunRequest", "run_here"]

DRAIN_SECONDS = 2.0
"""How long a reader may take for the last output once the user has asked for the end."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class RunRequest:
    """What `fray run` was asked for: a job file, or a request with no file."""

    file: str | None = None
    name: str | None = None
    working_dir: Path | None = None
    request: JobRequest | None = None


@dataclass(frozen=True)
class _Prepared:
    """A job that this machine can run; `under` puts what it needs into its folder."""

    job: FrayJob
    notices: tuple[str, ...]
    under: Callable[[JobFolder], tuple[FrayJob, Workplace]]


def run_here(
    request: RunRequest,
    spec: LocalSpec,
    *,
    environ: Mapping[str, str],
    stdin: BinaryIO,
    output: Stream,
    notes: Stream,
) -> int:
    """Run a job on this machine to its end and return the exit code.

    Raises:
        RequestError: the file or the job can't be run as it is; nothing was started.
        SurroundingsError: the state directory or the machine doesn't let it; nothing is left running.
    """
    settings = Settings.from_env(environ)
    if request.request is None:
        prepared = _prepare_file(request, environ=environ, stdin=stdin)
    else:
        prepared = _prepare_request(request.request, request, spec, settings, environ)
    name = prepared.job.metadata.name
    state = StateDirectory(settings.state_dir)
    policy = build_retry_policy(settings.backoff_seconds)
    with _own_folder(state, name, notes) as locks:
        job, workplace = prepared.under(state.job(name))
        session = _Session(job, _build_block(name, prepared.notices), state, output, notes)
        runner = LocalRunner(
            job, state=state, locks=locks, workplace=workplace, policy=policy, listener=session.display
        )
        return asyncio.run(session.run(runner))


def _prepare_file(request: RunRequest, *, environ: Mapping[str, str], stdin: BinaryIO) -> _Prepared:
    file = STDIN if request.file is None else request.file
    job, others = load_job(file, name=request.name, stdin=stdin)
    machine = LocalMachine(socket.gethostname(), uuid.uuid4())
    notices = _check(job, others, machine)
    workplace = Workplace(
        machine,
        derive_base_environment(environ),
        working_dir=str(Path.cwd() if file == STDIN else Path(file).absolute().parent),
        fixed_dir=_fixed_dir(request),
    )
    return _Prepared(job, notices, lambda _: (job, workplace))


def _prepare_request(
    asked: JobRequest,
    request: RunRequest,
    spec: LocalSpec,
    settings: Settings,
    environ: Mapping[str, str],
) -> _Prepared:
    # Threads are for a program that debugs its own callables; a command has none.
    spec = replace(spec, mode="process")
    prepared = prepare_request(
        asked, spec, settings, environ, parent=find_parent(environ), enter=lambda: None
    )

    def under(folder: JobFolder) -> tuple[FrayJob, Workplace]:
        job, workplace = prepared.under(prepared.job.metadata.name, folder)
        if prepared.payload is not None:
            write_payload(folder, prepared.payload)
        fixed = _fixed_dir(request)
        return job, workplace if fixed is None else replace(workplace, fixed_dir=fixed)

    return _Prepared(prepared.job, prepared.notices, under)


def _fixed_dir(request: RunRequest) -> str | None:
    return None if request.working_dir is None else str(request.working_dir.absolute())


def _check(job: FrayJob, others: tuple[str, ...], machine: LocalMachine) -> tuple[str, ...]:
    """Refuse what can't be run here, and return what isn't honoured."""
    plan = build_attempt(job, attempt=1, settings=PLAN_SETTINGS)
    check_supported(job, plan)
    check_open_files(job, plan, allowed=resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    build_local_pods(plan, machine)
    return (*build_notices(job, plan), *(f"{other} in the same file: left out" for other in others))


def _build_block(name: str, notices: tuple[str, ...]) -> list[Line]:
    if not notices:
        return []
    heading = f"{name} runs on this machine; what only a cluster has is left out:"
    return [Line(heading, Tone.BUSY), *(Line(f"  {notice}", Tone.QUIET) for notice in notices)]


@contextmanager
def _own_folder(state: StateDirectory, name: str, notes: Stream) -> Iterator[JobLocks]:
    """Own the job's folder, emptied of an earlier run, until the end of the context."""
    folder = state.job(name)
    folder.create()
    waiting = f"{name}: waiting for processes of an earlier run to end\n"
    locks = JobLocks.acquire(folder, name=name, waiting=lambda: notes.write(waiting))
    try:
        locks.publish()
        folder.clear()
        yield locks
    finally:
        locks.release()


class _Session:
    """One run as this process's terminal and signals see it."""

    def __init__(
        self, job: FrayJob, notices: list[Line], state: StateDirectory, output: Stream, notes: Stream
    ) -> None:
        self._job = job
        self._notices = notices
        self._signals: list[int] = []
        self._lost: OSError | None = None
        # A terminal that was closed answers EIO, sometimes before its SIGHUP arrives.
        self._gone = (errno.EPIPE, errno.EIO) if output.is_terminal else (errno.EPIPE,)
        self._runner: LocalRunner | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.display = Display(
            open_screen(output, notes),
            job=job,
            terminal=output.is_terminal,
            color=output.has_color,
            logs_of=state.job(job.metadata.name).attempt_logs,
            lost=self._lose_output,
        )

    async def run(self, runner: LocalRunner) -> int:
        """Run the job, show it, and return the exit code."""
        self._runner, self._loop = runner, asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            # One that is ignored stays so: `nohup`, and `&` in scripts, mean it.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._loop.add_signal_handler(number, self._on_signal, number)
        self.display.start()
        if self._notices:
            self.display.say(self._notices)
        try:
            finished = await runner.run()
        finally:
            await self._drain()
        if self._lost is not None and self._lost.errno in self._gone:
            return EXIT_BROKEN_PIPE
        if self._lost is not None and not self._signals:
            problem = self._lost.strerror or str(self._lost)
            raise OutputError(self._job.metadata.name, problem) from self._lost
        return derive_exit_code(finished.status, signal_number=self._signals[0] if self._signals else None)

    def _on_signal(self, number: int) -> None:
        assert self._runner is not None
        self._signals.append(number)
        if len(self._signals) > 1:
            self._runner.kill()
            return
        self._runner.stop()
        name = self._job.metadata.name
        again = "; Ctrl-C again kills them" if number == signal.SIGINT else ""
        self.display.say([Line(f"{name}: stopping: its processes are asked to end{again}", Tone.BUSY)])

    def _lose_output(self, error: OSError) -> None:
        """End the job when nobody reads its output any more; called from the display's thread."""
        self._lost = error
        assert self._loop is not None
        assert self._runner is not None
        self._loop.call_soon_threadsafe(self._runner.stop)

    async def _drain(self) -> None:
        """Wait until all is shown; not long where the user has asked for the end."""
        self.display.close()
        waited = 0.0
        while self.display.alive and not (self._signals and waited >= DRAIN_SECONDS):
            await asyncio.sleep(0.02)
            waited = waited + 0.02 if self._signals else 0.0
        self.display.abandon()
