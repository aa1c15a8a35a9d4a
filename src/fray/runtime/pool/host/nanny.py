"""The nanny of a host: `python -m fray.runtime.pool.host.nanny`, started with a `HostConfig` on stdin.

It forks workers, watches them, tells the head how they end, and ends them all when the head is gone; then it
removes the host's objects. It runs no thread, so that a fork copies nothing half done, and no user code.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import io
import logging
import math
import os
import selectors
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from fray.errors import AttemptOverError, FrayError, PoolVersionError, SurroundingsError, TransportError
from fray.payload.stamp import Stamp
from fray.runtime.container import is_in_memory, thread_limits
from fray.runtime.pool.host.devices import device_variables
from fray.runtime.pool.host.memory_limits import MemoryLimits
from fray.runtime.pool.host.processes import (
    adopt_orphans,
    children_to_end,
    describe_exit,
    die_with_parent,
    ended_children,
    has_ended,
    reset_signals,
    signal_group,
    stopped_children,
    watch_end,
    watch_signals,
)
from fray.runtime.pool.host_config import HostConfig
from fray.runtime.pool.message_codec import MESSAGES, OVER, REFUSAL, STAMP, decode_messages, encode_messages
from fray.runtime.pool.messages.commands import (
    CheckObject,
    FreeObject,
    ReleaseHost,
    SpillObject,
    StartWorker,
    StopWorker,
)
from fray.runtime.pool.messages.events import (
    FilesFound,
    HostLeaving,
    ObjectChecked,
    ObjectSpilled,
    WorkerLost,
)
from fray.runtime.pool.messages.greetings import HostWelcome, NannyHello
from fray.runtime.pool.messages.specs import CLIENT_BITS, WorkerId
from fray.runtime.pool.objects.disk_warnings import allow_warning, warn_once
from fray.runtime.pool.objects.peers import run_object_server
from fray.runtime.pool.objects.store import HostStore
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.worker.memory_limit import LOOK_SECONDS, Exceeded, MemoryLimit
from fray.runtime.pool.worker.process import DRAIN, run_worker
from fray.runtime.pool.worker.standard_output import flush_output
from fray.vocabulary import (
    EXIT_ATTEMPT_OVER,
    EXIT_FAILURE,
    EXIT_WORKER_ENDED,
    EXIT_WORKER_LOST_HEAD,
    EXIT_WORKER_REFUSED,
)

__all__ = ["main", "run_nanny"]

GRACE_SECONDS = 2.0
"""Between SIGTERM and SIGKILL when the pool ends; the workers themselves end at once."""
CLEANUP_SECONDS = 10.0
"""Killed processes may be in an uninterruptible sleep; they aren't waited for longer."""
SPARE_SECONDS = 3.0
"""How long the pages of a freed object are kept for the next one."""
_OUT_OF_MEMORY = "out of memory? The kernel ended a process of this container for that"

_log = logging.getLogger(__name__)


@dataclass
class _Child:
    """A worker's process. `leash` is the writing end of its pipe."""

    worker: WorkerId
    leash: int
    limit: MemoryLimit | None
    stopping: str = ""
    """Why it is being ended."""
    exceeded: Exceeded | None = None
    """What it took more than its limit; it is being ended for that."""


class _Nanny:
    def __init__(self, config: HostConfig, driver: int, on_joined: Callable[[str], None]) -> None:
        self._config = config
        self._on_joined = on_joined
        self._driver_end = watch_end(driver) if driver else None
        self._store = HostStore(Path(config.store), Path(config.spill), config.store_limit)
        with _reported():
            self._store.discard_dead_parts()  # of a nanny before this one, and of its workers
        self._children: dict[int, _Child] = {}
        self._pids: dict[WorkerId, int] = {}
        self._object_server = 0
        self._lifeline = -1
        self._ending = False
        self._leave_at = math.inf
        """When it goes at the latest."""
        self.released = False
        """Whether the head let it go, who has all that this host had."""
        self._memory = MemoryLimits(math.inf if is_in_memory(Path(config.spill)) else config.store_limit)
        self._look_at = math.inf
        """When it looks at limits of memory next."""
        self._discard_at = math.inf
        """When it gives back the pages of the last large object that was freed."""
        self._signals, self._signals_end = watch_signals(signal.SIGTERM, signal.SIGCHLD)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            # From the driver's terminal: the driver decides what they mean to the pool.
            signal.signal(number, signal.SIG_IGN)
        objects = self._start_object_server() if config.objects else ""
        self._connection = BlockingConnection.connect(Address.parse(config.head), config.key)
        if not config.host:
            self._connection.send(STAMP, Stamp.here().to_json().encode())
        self._tell(
            NannyHello(
                config.host, config.name, config.resources, config.workers, config.store_limit, objects
            )
        )
        with _reported():
            if config.host and (left := self._store.identities()):
                # A nanny before this one couldn't report what its workers left when they died with it.
                self._tell(FilesFound(config.host, left))
        self._handlers: dict[type, Callable[[Any], None]] = {
            StartWorker: self._start_worker,
            StopWorker: self._stop_worker,
            FreeObject: self._free,
            SpillObject: self._spill,
            CheckObject: self._check_object,
            HostWelcome: self._take_welcome,
            ReleaseHost: self._go,
        }

    def run(self) -> None:
        """Serve until the head is gone or lets it go, or until some time after SIGTERM."""
        with selectors.PollSelector() as selector:
            selector.register(self._signals, selectors.EVENT_READ)
            selector.register(self._connection.fileno(), selectors.EVENT_READ)
            selector.register(self._memory.began, selectors.EVENT_READ)
            if self._driver_end is not None:
                selector.register(self._driver_end, selectors.EVENT_READ)
            while not self._ending:
                # What the handshake brought along must not wait for more.
                self._hear()
                self._note_stopped()
                self._reap()
                if not self._ending:
                    left = min(self._leave_at, self._look_at, self._discard_at) - time.monotonic()
                    ready = selector.select(None if left == math.inf else max(left, 0.0))
                    self._note_signals()
                    self._note_memory()
                    self._discard_spare()
                    self._ending |= time.monotonic() >= self._leave_at
                    # A process that the driver has forked may keep the connection open.
                    self._ending |= any(key.fd == self._driver_end for key, _ in ready)

    def close(self) -> None:
        """End all processes, and remove what belongs to the host."""
        self._connection.close()
        self._ending = True
        for pid in self._children:
            signal_group(pid, signal.SIGTERM)
            signal_group(pid, signal.SIGCONT)  # a stopped one would see the signal only once it goes on
        self._await_workers(time.monotonic() + GRACE_SECONDS)
        for pid in self._children:
            signal_group(pid, signal.SIGKILL)
        give_up_at = time.monotonic() + CLEANUP_SECONDS
        # The children of a killed process come to this one in turn, so the loop ends when none is left.
        while (left := children_to_end()) and time.monotonic() < give_up_at:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._await_workers(time.monotonic() + 0.05)
        self._memory.close()
        for directory in (self._config.store, self._config.spill):
            shutil.rmtree(directory, ignore_errors=True)
        served = Address.parse(self._config.objects) if self._config.objects else Address()
        if served.is_unix:
            Path(served.path).unlink(missing_ok=True)

    # --- what is heard -------------------------------------------------------------------------------------

    def _hear(self) -> None:
        try:
            while True:
                frame = self._connection.receive(0)
                if frame.kind == REFUSAL:
                    raise PoolVersionError(bytes(frame.body).decode())
                if frame.kind == OVER:
                    raise AttemptOverError(bytes(frame.body).decode())
                for message in decode_messages(frame.body):
                    with _reported():
                        self._handlers[type(message)](message)
        except TimeoutError:
            return
        except TransportError:
            self._ending = True

    def _take_welcome(self, welcome: HostWelcome) -> None:
        if self._config.token not in ("", welcome.token):
            raise AttemptOverError("its pool's head has been followed by another one")
        self._config = replace(self._config, host=welcome.host, token=welcome.token, attach=welcome.attach)
        _import_attached(self._config)
        self._on_joined(welcome.token)

    def _note_signals(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while numbers := os.read(self._signals, 4096):
                if signal.SIGTERM in numbers:
                    self._leave()

    def _leave(self) -> None:
        """Tell the head that this host is to go, once it's part of the pool; go at once otherwise."""
        if not (self._config.drain_seconds and self._config.host) or self._leave_at < math.inf:
            self._ending = True
            return
        self._leave_at = time.monotonic() + self._config.drain_seconds
        self._tell(HostLeaving(self._config.host, "it was asked to go"))

    def _go(self, _: ReleaseHost) -> None:
        self.released = self._ending = True

    def _tell(self, message: Any) -> None:
        try:
            self._connection.send(MESSAGES, encode_messages([message]))
        except TransportError:
            self._ending = True

    # --- workers -------------------------------------------------------------------------------------------

    def _start_worker(self, command: StartWorker) -> None:
        limit = self._memory.new(command.worker) if command.profile.limited else None
        try:
            leash_end, leash = os.pipe()
            try:
                pid = self._fork(lambda: self._be_worker(command, leash_end, leash, limit))
            except OSError:
                os.close(leash)
                raise
            finally:
                os.close(leash_end)
        except OSError as error:
            if limit is not None:
                self._memory.discard(limit)
            self._tell(WorkerLost(command.worker, f"can't be started: {error}"))
            return
        self._children[pid] = _Child(command.worker, leash, limit)
        self._pids[command.worker] = pid

    def _stop_worker(self, command: StopWorker) -> None:
        pid = self._pids.get(command.worker)
        if pid is None or has_ended(pid):
            return  # by itself, and how is reported when it's reaped
        child = self._children[pid]
        child.stopping = command.reason or "it was asked to end"
        if command.kill:
            signal_group(pid, signal.SIGKILL)
        else:
            with contextlib.suppress(BrokenPipeError):  # it is ending already
                os.write(child.leash, DRAIN)

    def _free(self, command: FreeObject) -> None:
        if self._store.free(command.id, spare=True):
            self._discard_at = time.monotonic() + SPARE_SECONDS

    def _discard_spare(self) -> None:
        if time.monotonic() >= self._discard_at:
            self._discard_at = math.inf
            self._store.discard_spare()

    def _spill(self, command: SpillObject) -> None:
        try:
            if self._store.spill(command.id):
                allow_warning(f"{self._store.spill_directory}/{command.id:x}", written=True)
                self._tell(ObjectSpilled(command.id, command.host))
        except (SurroundingsError, OSError) as error:
            warn_once(str(self._store.spill_directory), error.__cause__ or error, "values stay in memory")
            self._tell(ObjectSpilled(command.id, command.host, done=False))

    def _check_object(self, command: CheckObject) -> None:
        self._tell(ObjectChecked(command.id, command.host, self._store.keep(command.id)))

    def _note_stopped(self) -> None:
        for pid, what in stopped_children():
            if (child := self._children.get(pid)) is not None:
                _log.warning("worker %s (process %s) %s", child.worker, pid, what)

    def _note_memory(self) -> None:
        """End workers that have taken too much memory, before the kernel ends a neighbour."""
        if not self._memory.clear() and time.monotonic() < self._look_at:
            return
        self._look_at = math.inf
        for pid, child in self._children.items():
            if child.limit is None or not child.limit.allowed or child.exceeded is not None:
                continue
            self._look_at = time.monotonic() + LOOK_SECONDS
            child.exceeded = child.limit.exceeded(pid)
            if child.exceeded is not None:
                signal_group(pid, signal.SIGKILL)
                child.limit.kill()

    def _reap(self) -> None:
        for pid in ended_children():
            child = self._children.pop(pid, None)
            if child is not None:
                signal_group(pid, signal.SIGKILL)  # what it has left behind; its pid is still its own
            status = os.waitpid(pid, 0)[1]
            if child is not None:
                self._lose(child, status)
            elif pid == self._object_server and not self._ending:
                _log.error("the server of objects has ended: %s", describe_exit(status))
                self._ending = True

    def _lose(self, child: _Child, status: int) -> None:
        del self._pids[child.worker]
        os.close(child.leash)
        ended_by_kernel = self._memory.discard(child.limit) if child.limit is not None else ""
        if self._ending:
            return
        with _reported():
            self._store.discard_dead_parts()
        code = os.waitstatus_to_exitcode(status)
        retired = code == EXIT_WORKER_ENDED
        reason = describe_exit(status)
        if child.stopping:
            reason += f": {child.stopping}"
        elif code == EXIT_WORKER_LOST_HEAD:
            reason += ": it couldn't connect to the head, or lost it"
        elif status == signal.SIGKILL and ended_by_kernel:
            reason += f": {ended_by_kernel}"
        elif child.exceeded is not None:
            reason += f": {child.exceeded}"
        elif status == signal.SIGKILL and self._memory.count_kills():
            reason += f": {_OUT_OF_MEMORY}"
        self._tell(WorkerLost(child.worker, reason, bool(child.stopping) or retired, retired))
        with _reported():
            written = tuple(each for each in self._store.identities() if each >> CLIENT_BITS == child.worker)
            if written:
                self._tell(FilesFound(self._config.host, written))

    def _await_workers(self, deadline: float) -> None:
        """Reap until no worker is left or the time has come."""
        self._reap()
        with selectors.PollSelector() as selector:
            selector.register(self._signals, selectors.EVENT_READ)
            while self._children and (left := deadline - time.monotonic()) > 0:
                selector.select(left)
                self._note_signals()
                self._reap()

    # --- in children ---------------------------------------------------------------------------------------

    def _fork(self, be: Callable[[], None]) -> int:
        """Fork a process that does `be`, in a session of its own; return its pid."""
        flush_output()
        nanny = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()
            die_with_parent(nanny)
            reset_signals()
            be()
        except FrayError as error:
            sys.stderr.write(f"fray: {error}\n")
        except BaseException:  # noqa: BLE001 - reported, and the process ends
            traceback.print_exc()
        finally:
            flush_output()
            os._exit(1)

    def _be_worker(
        self, command: StartWorker, leash_end: int, leash: int, limit: MemoryLimit | None
    ) -> NoReturn:
        if limit is not None:
            limit.enter()
        # All leashes must end with the nanny, not with this process; so must the connection.
        os.close(leash)
        for child in self._children.values():
            os.close(child.leash)
        _replace(0, self._connection.fileno(), self._signals, self._signals_end, self._lifeline)
        _replace(self._memory.began, *([] if limit is not None else [self._memory.wake]))
        environ = os.environ  # noqa: TID251 - this is where the process begins
        environ.update(device_variables(dict(command.devices), dict(self._config.resources), environ))
        if command.profile.threads and self._config.env:  # else the variables are the user's own
            environ.update(thread_limits(command.profile.threads, {}))
        environ.update(command.profile.env)
        faulthandler.enable()
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
        run_worker(self._config, command.worker, command.profile, limit, store=self._store, leash=leash_end)

    def _start_object_server(self) -> str:
        """Start the process that serves objects; return where it listens."""
        lifeline_end, self._lifeline = os.pipe()
        said, saying = os.pipe()
        address = Address.parse(self._config.objects)

        def ready(real: Address) -> None:
            os.write(saying, str(real).encode())
            os.close(saying)

        def serve() -> None:
            os.close(self._lifeline)
            run_object_server(address, self._config.key, self._store, lifeline=lifeline_end, ready=ready)
            os._exit(0)

        self._object_server = self._fork(serve)
        os.close(saying)
        os.close(lifeline_end)
        with open(said, "rb") as answer:  # noqa: PTH123 - a descriptor
            return answer.read().decode()


@contextlib.contextmanager
def _reported() -> Iterator[None]:
    """Log what the system or a directory refuses in the block, instead of ending all workers for it."""
    try:
        yield
    except (SurroundingsError, OSError) as error:
        _log.exception("the nanny goes on after this: %s", error)


def _replace(*descriptors: int) -> None:
    """Put nothing in the place of the parent's descriptors, whose objects here may still close them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        if descriptor >= 0:
            os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)


def _import_attached(config: HostConfig) -> None:
    if config.attach:
        importlib.import_module(config.attach.partition(":")[0])  # once, instead of in each worker


def main() -> int:
    """Be the nanny of the host that stdin describes; return the exit code."""
    driver = os.getppid()
    return run_nanny(HostConfig.from_json(sys.stdin.read()), driver)


def run_nanny(
    config: HostConfig, driver: int = 0, *, on_joined: Callable[[str], None] = lambda _: None
) -> int:
    """Be the nanny of a host until its head is gone or SIGTERM comes; return the exit code.

    `driver` is the pid of the process that has the head, if it is on this machine: its end is the head's.
    `on_joined` is called with the pool's token when the head has given this host a number.
    Call it on the only thread of a process that does nothing else.

    The code is 0 after SIGTERM or without the head, 86 when the head let it go, 1 if it can't be joined, 88
    where its versions are others, 89 when it says that the attempt is over.
    """
    os.environ.update(config.env)  # noqa: TID251 - this is where the process begins
    if config.sys_path:
        sys.path[:] = config.sys_path
    _import_attached(config)
    adopt_orphans()
    try:
        nanny = _Nanny(config, driver, on_joined)
    except (FrayError, OSError) as error:
        if driver and isinstance(error.__cause__, FileNotFoundError | ConnectionRefusedError):
            return 0  # the head ended since the driver heard of it, and the driver learns that by itself
        if driver and not Path(config.store).exists():
            return 0  # the driver has ended, and it or somebody after it has removed what it had
        sys.stderr.write(f"fray: {error}\n")
        return EXIT_FAILURE
    try:
        nanny.run()
    except PoolVersionError as error:
        sys.stderr.write(f"fray: {error}\n")
        return EXIT_WORKER_REFUSED
    except AttemptOverError as error:
        sys.stderr.write(f"fray: {error.message}\n")
        return EXIT_ATTEMPT_OVER
    finally:
        nanny.close()
    return EXIT_WORKER_ENDED if nanny.released else 0


if __name__ == "__main__":
    sys.exit(main())
