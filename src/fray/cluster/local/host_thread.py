"""One host of a gang as a thread of this program, for debuggers and for callables that can't be pickled.

To `attempt` it is as good as a process (`host`): it starts, prints, ends and tells how. What threads can't
have isn't there: variables are the whole program's, and nothing can end a thread that doesn't listen.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from fray.cluster.local.host import SIGKILL, HostEvents, LocalHost
from fray.cluster.local.output import HostOutput
from fray.cluster.local.pods import LocalPod
from fray.cluster.local.shared_process import borrowed_variables, routed_output
from fray.plan.observation import HostPhase
from fray.runtime.identity import Identity, use_identity
from fray.runtime.outcome_report import Reporter
from fray.runtime.thread_interrupts import raise_in
from fray.types import CallableEntrypoint
from fray.vocabulary import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_SIGNAL_BASE

__all__ = ["HostThread", "ThreadTask"]

logger = logging.getLogger(__name__)

KILL_SECONDS = 5.0
"""How long a thread may take to hear of its end, once nobody waits for it any more."""
SIGTERM = 15


class _Terminated(SystemExit):
    """Raised in a thread that is asked to end; its callable may clean up."""

    def __init__(self) -> None:
        super().__init__(EXIT_SIGNAL_BASE + SIGTERM)


@dataclass(frozen=True)
class ThreadTask:
    """What one host runs: its pod, the call, where its end is reported, and what its thread calls first."""

    pod: LocalPod
    call: CallableEntrypoint
    outcome: Path
    ending: Path
    variables: Mapping[str, str] = field(repr=False)
    enter: Callable[[], object]


class HostThread(LocalHost):
    """A host from its start to its end. Ended means: its callable is over, or was given up."""

    def __init__(self, task: ThreadTask, output: HostOutput, events: HostEvents) -> None:
        super().__init__(task.pod, output, events)
        self._task = task
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._calling = False
        self._asked = False

    @property
    def living(self) -> bool:
        """Whether it was started and has not ended."""
        return self._thread is not None and not self._ended.is_set()

    async def start(self, *, inherited: tuple[int, ...]) -> None:
        """Start the thread; `inherited` is for processes."""
        del inherited
        self._loop = asyncio.get_running_loop()
        self._facts = {"phase": HostPhase.RUNNING, "started_at": datetime.now(UTC)}
        name = f"fray-{self._pod.name}"
        # Not this thread's context: a job knows nothing of who launched it.
        context = contextvars.Context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name=name, daemon=True)
        self._thread.start()
        self._events.changed()

    def terminate(self) -> None:
        """Raise SystemExit in the thread, once; one that goes on regardless is given up after its grace."""
        if self.living and not self._asked:
            self._interrupt()
            assert self._loop is not None
            self._loop.call_later(self._pod.grace_seconds, self._give_up)

    def kill(self) -> None:
        """As `terminate`, with little patience."""
        if self.living:
            self._interrupt()
            assert self._loop is not None
            self._loop.call_later(KILL_SECONDS, self._give_up)

    async def wait_ended(self) -> None:
        """Return when the host has ended."""
        await self._ended.wait()

    def _interrupt(self) -> None:
        with self._lock:
            if not self._asked and self._calling and self._thread is not None and self._thread.ident:
                raise_in(self._thread.ident, _Terminated)
            self._asked = True

    def _give_up(self) -> None:
        if self.living:
            logger.warning("the thread of %s doesn't end and can't be killed: it runs on", self._pod.name)
            self._finish(EXIT_SIGNAL_BASE + SIGKILL, "its thread doesn't end and can't be killed: it runs on")

    def _run(self) -> None:
        """Run the callable as `fray.runtime.callable_runner` does; in the thread."""
        code = EXIT_FAILURE
        try:
            with routed_output(self._write), borrowed_variables(self._task.variables):
                use_identity(Identity.from_env(self._pod.env))
                self._task.enter()
                code = self._call(Reporter(self._task.outcome, self._task.ending))
        except Exception:
            logger.exception("the thread of %s failed outside its callable", self._pod.name)
        finally:
            self._hand_over(self._finish, code, None)

    def _call(self, reporter: Reporter) -> int:
        call = self._task.call
        try:
            with self._interruptible():
                value = call.callable(*call.args, **call.kwargs)
                if inspect.iscoroutine(value):
                    value = asyncio.run(value)
        except SystemExit as error:
            reporter.exited(error)
            return _exit_code(error)
        except BaseException as error:  # noqa: BLE001 - the end of the callable is the end of the host
            traceback.print_exception(_without_our_frames(error))
            name = getattr(call.callable, "__qualname__", type(call.callable).__qualname__)
            reporter.raised(error, function=name)
            return EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else EXIT_FAILURE
        reporter.returned(value)
        return 0

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        with self._lock:
            if self._asked:
                raise _Terminated
            self._calling = True
        try:
            yield
        finally:
            with self._lock:
                self._calling = False
                # One that is on its way would end what tells of the end.
                raise_in(threading.get_ident(), None)

    def _write(self, text: str) -> None:
        self._hand_over(self.printed, text.encode(errors="replace"))

    def _hand_over(self, function: Callable[..., object], *args: object) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody listens any more
            self._loop.call_soon_threadsafe(function, *args)

    def _finish(self, code: int, message: str | None) -> None:
        """Make the end known; in the event loop, after all that was printed."""
        if not self._ended.is_set():
            self._end(exit_code=code, message=message, ended_at=datetime.now(UTC))


def _exit_code(error: SystemExit) -> int:
    """Return what Python would end a process with; text is shown as it would be."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    sys.stderr.write(f"{error.code}\n")
    return EXIT_FAILURE


def _without_our_frames(error: BaseException) -> BaseException:
    return error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
