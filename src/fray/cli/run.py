"""`fray run`, whatever and where it runs: a job is created, shown until its end, and tells the exit code.

Everything that can be refused is refused before anything starts. A job of this machine ends with this
command: the first signal ends it with grace, the second at once. A job of a cluster runs on.
"""

from __future__ import annotations

import errno
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from fray.cli.clusters import choose_cluster, open_cluster, patience
from fray.cli.follow import Following
from fray.cli.job_options import JobOptions
from fray.cli.listing import print_lines
from fray.cli.named_job import build_request, find_help, options_in_errors
from fray.cli.requested_job import load_job, override_job
from fray.cli.screen import open_screen
from fray.cli.story import Line, Tone
from fray.cli.streams import OutputStream
from fray.cluster.base import Cluster
from fray.cluster.cluster_spec import ClusterSpec, KubernetesSpec, LocalSpec
from fray.errors import FieldError, InvalidJobError, InvalidRequestError, OutputError
from fray.plan.status import derive_exit_code, is_finished
from fray.types import JobId
from fray.vocabulary import EXIT_BROKEN_PIPE, EXIT_FAILURE, EXIT_INTERRUPTED
from fray.wire.frayjob import FrayJob

__all__ = ["RunCommand", "place_in_namespace", "run_job"]

DRAIN_SECONDS = 2.0
"""How long a reader may take for the last output once the user has asked for the end."""
POLL_SECONDS = 0.05
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GONE = (errno.EPIPE, errno.EIO)
"""Nobody reads any more; a terminal that was closed answers EIO, sometimes before its SIGHUP arrives."""


@dataclass(frozen=True)
class RunCommand:
    """What `fray run` was asked for: a file, or the words of a program or function with options."""

    words: tuple[str, ...]
    file: str | None
    options: JobOptions
    cluster: str | None = None
    namespace: str | None = None
    working_dir: Path | None = None
    detach: bool = False


def run_job(
    command: RunCommand,
    *,
    environ: Mapping[str, str],
    stdin: BinaryIO,
    output: OutputStream,
    notes: OutputStream,
) -> int:
    """Run a job to its end and return the exit code.

    Raises:
        RequestError: It can't be run as it is; nothing was started.
        SurroundingsError: The machine or the cluster doesn't let it.
    """
    spec = choose_cluster(command.cluster, command.namespace, environ=environ)
    _check(command, spec)
    if (usage := find_help(command.words)) is not None:
        output.write(usage)
        return 0
    with _notices(notes) as tell:
        if command.file is None:
            here = (command.working_dir or Path()).absolute() if isinstance(spec, LocalSpec) else None
            request = build_request(command.words, command.options, environ=dict(environ), directory=here)
            cluster = open_cluster(spec, environ=environ, working_dir=command.working_dir)
            signals = _note_signals(cluster) if isinstance(spec, LocalSpec) else []
            # A name that was made up gives way to a job that has it.
            rename = command.options.name is None or isinstance(spec, LocalSpec)
            with patience(notes, spec), _closed_after_errors(cluster), options_in_errors():
                name = cluster.launch(request, when_taken="rename" if rename else "refuse")
        else:
            loaded = load_job(command.file, stdin=stdin, name=command.options.name)
            job, changes = override_job(
                loaded.job, command.options, environ=environ, is_local=isinstance(spec, LocalSpec)
            )
            if changes:
                notes.write(f"{job.metadata.name}: instead of what the file says: {'; '.join(changes)}\n")
            spec = place_in_namespace(spec, job)
            for other in loaded.others:
                notes.write(f"{other} in the same file: left out; `kubectl apply` makes it\n")
            cluster = open_cluster(spec, environ=environ, working_dir=command.working_dir)
            signals = _note_signals(cluster) if isinstance(spec, LocalSpec) else []
            with patience(notes, spec), _closed_after_errors(cluster):
                name = cluster.create(job, directory=loaded.directory, workspace=loaded.workspace)
        session = _Session(cluster, name, output, notes, signals)
        tell.show = session.following.say
        if isinstance(spec, LocalSpec):
            return session.run_here()
        return session.show(detach=command.detach)


def _check(command: RunCommand, spec: ClusterSpec) -> None:
    """Refuse what contradicts itself."""
    forms = "Use `fray run -f FILE`, `fray run -- PROGRAM ARGS...` or `fray run MODULE:FUNCTION`."
    if command.file is None and not command.words:
        raise InvalidRequestError("fray run", "names nothing to run", forms)
    if command.file is not None and command.words:
        problem = f"has a file and also {' '.join(command.words)!r}"
        raise InvalidRequestError("fray run", problem, f"Give one of them. {forms}")
    if command.file is not None and command.options.without_file_only:
        problem = f"has a file and also {', '.join(command.options.without_file_only)}"
        raise InvalidRequestError("fray run", problem, "Write it into the file.")
    if isinstance(spec, LocalSpec) and command.detach:
        remedy = "Leave it out, or start `fray run ... &`: jobs here end with their command."
        raise InvalidRequestError("--detach", "needs a cluster", remedy)
    if not isinstance(spec, LocalSpec) and command.working_dir is not None:
        remedy = "Say it in the file: `workingDir` of its podTemplate's container."
        raise InvalidRequestError("--workdir", "is a directory of this machine", remedy)


def place_in_namespace(spec: ClusterSpec, job: FrayJob) -> ClusterSpec:
    """Return the spec with the namespace that a job's file names, which `-n` must not contradict.

    Raises:
        InvalidJobError: It does.
    """
    own = job.metadata.namespace
    if own is None or not isinstance(spec, KubernetesSpec) or own == spec.namespace:
        return spec
    if spec.namespace is not None:
        problem = f"is {own!r}, and the command line or FRAY_CLUSTER_SPEC says {spec.namespace!r}"
        raise InvalidJobError(job.metadata.name, (FieldError("metadata.namespace", problem),))
    return replace(spec, namespace=own)


@contextmanager
def _closed_after_errors(cluster: Cluster) -> Iterator[None]:
    """End what was begun where it is interrupted: a signal may come when the job has just started."""
    try:
        yield
    except BaseException:
        cluster.close()
        raise


def _note_signals(cluster: Cluster) -> list[int]:
    """Return a list of the signals that ask for the end of this command's job, filled as they come.

    Those that come before it is launched end the command as they always do. They are caught all the same: its
    hosts may run, and be seen to, before the launch has returned.
    """
    noted: list[int] = []
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def note(number: int, _frame: object) -> None:
        if cluster.has_launched:
            noted.append(number)
            return
        signal.signal(number, before[signal.Signals(number)])
        signal.raise_signal(number)

    for number, handler in before.items():
        # One that is ignored stays so: `nohup`, and `&` in scripts, mean it.
        if handler is not signal.SIG_IGN:
            signal.signal(number, note)
    return noted


class _Notices(logging.Handler):
    """What the library tells of its work, as lines for the user."""

    def __init__(self, show: Callable[[list[Line]], None]) -> None:
        super().__init__(logging.INFO)
        self.show = show

    def emit(self, record: logging.LogRecord) -> None:
        first, *rest = record.getMessage().splitlines() or [""]
        self.show([Line(first, Tone.BUSY), *(Line(each, Tone.QUIET) for each in rest)])


@contextmanager
def _notices(notes: OutputStream) -> Iterator[_Notices]:
    """Show the user what the library tells, for the time of a command."""
    logger, handler = logging.getLogger("fray.cluster"), _Notices(lambda lines: print_lines(lines, notes))
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


class _Session:
    """One run as this process's terminal and signals see it."""

    def __init__(
        self, cluster: Cluster, name: JobId, output: OutputStream, notes: OutputStream, signals: list[int]
    ) -> None:
        self._cluster, self._name = cluster, name
        self._output, self._notes = output, notes
        self._signals = signals
        self._job: FrayJob | None = None
        self._error: BaseException | None = None
        screen = open_screen(output, notes)
        self.following = Following(cluster, name, screen, terminal=output.is_terminal, color=output.has_color)
        self._thread = threading.Thread(target=self._follow, name="display", daemon=True)

    def _follow(self) -> None:
        try:
            self._job = self.following.run()
        except BaseException as error:  # noqa: BLE001 - the main thread raises or tells it
            self._error = error

    def show(self, *, detach: bool) -> int:
        """Show a job that runs on without this process, and return the exit code."""
        name = self._name
        try:
            self._notes.write(f"{name}: created in {self._cluster.place}\n")
            if detach:
                return 0
            self._thread.start()
            while self._thread.is_alive():
                self._thread.join(POLL_SECONDS)
            if self._error is not None:
                raise self._error
        except KeyboardInterrupt:
            self.following.abandon()
            if self._thread.is_alive():
                self._thread.join(DRAIN_SECONDS)
            commands = f"`fray logs -f {name}` shows it, `fray stop {name}` ends it"
            self._notes.write(f"\n{name} runs on: {commands}\n")
            return EXIT_INTERRUPTED
        except OSError as lost:
            # Nobody reads any more, or the disk is full.
            self._notes.write(f"{name} runs on; its output can't be shown: {lost.strerror}\n")
            return EXIT_BROKEN_PIPE if lost.errno in GONE else EXIT_FAILURE
        assert self._job is not None
        return derive_exit_code(self._job.status)

    def run_here(self) -> int:
        """Show a job that ends with this process, end it when it is asked for, and return the exit code."""
        try:
            self._thread.start()
            self._attend()
            finished = self._cluster.get(self._name)
        finally:
            self._cluster.close()
        lost = self._error
        if isinstance(lost, OSError):
            if lost.errno in (GONE if self._output.is_terminal else (errno.EPIPE,)):
                return EXIT_BROKEN_PIPE
            if not self._signals:
                raise OutputError(self._name, lost.strerror or str(lost)) from lost
        elif lost is not None:
            raise lost
        return derive_exit_code(finished.status, signal_number=self._signals[0] if self._signals else None)

    def _attend(self) -> None:
        """Return once the job has ended and all is shown; not long after the end where that was asked for."""
        obeyed, waited = 0, 0.0
        while self._thread.is_alive() and waited < DRAIN_SECONDS:
            self._thread.join(POLL_SECONDS)
            if len(self._signals) > obeyed:
                obeyed = len(self._signals)
                self._obey()
            if obeyed and is_finished(self._cluster.get(self._name).status):
                waited += POLL_SECONDS
        self.following.abandon()
        if self._error is not None and not obeyed:
            self._cluster.terminate(self._name)  # nobody reads any more, so there is nothing to write
        while self._error is not None and not is_finished(self._cluster.get(self._name).status):
            self._cluster.wait_finished([self._name], POLL_SECONDS)
            if len(self._signals) > obeyed:
                obeyed = len(self._signals)
                self._obey()

    def _obey(self) -> None:
        if len(self._signals) > 1:
            self._cluster.kill(self._name)
            return
        self._cluster.terminate(self._name)
        again = "; Ctrl-C again kills them" if self._signals[0] == signal.SIGINT else ""
        line = f"{self._name}: stopping: its processes are asked to end{again}"
        self.following.say([Line(line, Tone.BUSY)])
