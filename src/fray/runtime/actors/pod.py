"""The program of an actor's pod: `python -m fray.runtime.actors.pod`. Variables tell it everything.

It supervises: a head that callers join, and beside it a process that has the actor's worker. Both end with a
run of the actor, and the next run begins with new ones, once no process of the last one is left. No user's
code runs here or in the head, so that callers learn of an end although the actor's process stands still. It
ends with 0 when it was asked to go, and never because the actor has ended.

A member on several hosts has a pod on each. The first supervises, and its head is that of a pool which the
others join; a run that ends there is the end of the pod, and so of all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from fray.errors import FrayError, SettingError
from fray.kube.errors import ApiError
from fray.runtime.actors.identity import ActorPod, build_place, read_host
from fray.runtime.actors.record import LastError, MemberRecord, RecordWriter
from fray.runtime.api.client import ApiAccess, ApiClient
from fray.runtime.pool.host.processes import (
    adopt_orphans,
    children,
    describe_exit,
    signal_group,
    watch_signals,
)
from fray.runtime.pool.host.readiness import ReadinessServer
from fray.runtime.pool.joined_pool import RUN_HEAD
from fray.runtime.pool.local_pool import start_process
from fray.runtime.pool.pod import PodPool, read_objects_address
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.worker_pod import HEAD_SECONDS, join_pool
from fray.vocabulary import (
    ACTOR_PORT,
    ACTOR_READY_PORT,
    ENV_COORDINATOR_ADDRESS,
    ENV_POOL_KEY,
    EXIT_FAILURE,
)

__all__ = ["Supervisor", "main"]

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 60.0
"""Seconds between two starts, doubling; they begin anew after a run that was longer than the longest."""
API_PAUSE: Final = 2.0
"""Seconds between two tries to count a start, while the API server can't be reached."""
GRACE_SECONDS: Final = 8.0
"""How long an actor has for its end, if it wants that: pods on spot nodes have 15 s in all."""
END_SECONDS: Final = 4.0
"""How long the processes of a run may take to end after that, before they are killed."""
LOOK_SECONDS: Final = 0.2
_RUN_MEMBER = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from fray.job.actor_member import main
sys.exit(main())
"""


def main(
    environ: Mapping[str, str] | None = None, *, port: int = ACTOR_PORT, ready_port: int = ACTOR_READY_PORT
) -> int:
    """Supervise the actor of this pod until SIGTERM; `environ` is by default this process's.

    Returns the exit code: 0 when it was asked to go, 1 where a variable or a file is wrong, where a later pod
    has taken this one's place, and where a member on several hosts has ended.
    """
    environ = os.environ if environ is None else environ  # noqa: TID251 - the entry of the process
    try:
        if (host := read_host(environ)) > 0:
            return _serve_first(host, environ, port=port, ready_port=ready_port)
        pod = ActorPod.from_env(environ)
        TransportKey.load(pod.key)
        access = ApiAccess.in_pod(environ)
        if access is None:
            raise SettingError("KUBERNETES_SERVICE_HOST", "isn't set, or there is no token")
        anywhere = "::" if ":" in pod.address else "0.0.0.0"
        readiness = ReadinessServer(Address(host=anywhere, port=ready_port))
        record = RecordWriter(ApiClient(access), pod, Address(host=pod.address, port=port))
        with tempfile.TemporaryDirectory(prefix="fray-actor-") as sockets:
            listen = Address(host=anywhere, port=port), Address(path=f"{sockets}/head")
            return Supervisor(pod, record, listen, readiness).run()
    except FrayError as error:
        sys.stderr.write(f"fray: {error}\n")
        return EXIT_FAILURE


def _serve_first(host: int, environ: Mapping[str, str], *, port: int, ready_port: int) -> int:
    """Be a further host of a member, for the pool of its first one; raises `FrayError`."""
    first = Address.parse(f"tcp:{environ.get(ENV_COORDINATOR_ADDRESS, '')}")
    pool = PodPool(
        head=Address(host=first.host, port=port),
        port=port,
        key=Path(environ.get(ENV_POOL_KEY, "")),
        objects=read_objects_address(environ),
        environ=environ,
    )
    return join_pool(pool, build_place(host), patience=HEAD_SECONDS, ready_port=ready_port)


class Supervisor:
    """Runs the actor again and again, from a process of which this is the only thread.

    Parameters: the `pod`; the `record`, where it tells how the actor fares; where the head is to `listen`,
    last of all at a unix socket: the actor's process joins there, since TLS would make calls slower;
    `readiness`, which is told whether the constructor has returned; `is_over` says whether it is to end,
    where nobody else tells it.
    """

    def __init__(
        self,
        pod: ActorPod,
        record: RecordWriter,
        listen: tuple[Address, ...],
        readiness: ReadinessServer,
        *,
        is_over: Callable[[], bool] | None = None,
    ) -> None:
        self._pod = pod
        self._record = record
        self._listen = listen
        self._readiness = readiness
        self._is_over = is_over
        self._ending = False
        self._ended = ""
        """Why the actor has ended for good, by its own will."""
        self._untold: dict[str, Any] = {}
        """What the record doesn't say yet, since the API server couldn't be reached."""
        self._signals, _ = watch_signals(signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        adopt_orphans()

    def run(self) -> int:
        """Supervise until SIGTERM; return the exit code. Raises `ActorReplacedError`.

        On several hosts it ends with the run, with 1: the operator starts all of them anew, after a pause.
        """
        pause = FIRST_PAUSE
        while (record := self._begin()) is not None:
            if record.exhausted or record.ended:
                self._rest()
                break
            began = time.monotonic()
            error = self._run_once(record)
            self._readiness.ready = False
            if self._ending:
                break
            if self._ended:
                sys.stderr.write(f"fray: the actor has ended for good: {self._ended}\n")
                self._tell(ready=False, ended=self._ended)
                self._rest()
                break
            sys.stderr.write(f"fray: the actor has ended: {error.type}: {error.message}\n")
            failures = record.failures + 1 if error.constructing else 0
            self._tell(ready=False, idle=False, error=error, failures=failures)
            if self._pod.hosts > 1:
                return EXIT_FAILURE
            if time.monotonic() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            self._wait(pause)
            pause = min(LONGEST_PAUSE, pause * 2)
        return 0

    def _rest(self) -> None:
        """Wait to be ended: the actor isn't started any more."""
        while not self._ending:
            self._await_news(API_PAUSE)
            self._tell()

    def _begin(self) -> MemberRecord | None:
        """Count a start, however long that takes; None: it is to end."""
        while not self._ending:
            try:
                record = self._record.begin()
            except ApiError as error:
                sys.stderr.write(f"fray: the actor's start can't be counted: {error}\n")
                self._wait(API_PAUSE)
                continue
            self._untold = {}
            return record
        return None

    def _tell(self, **changes: Any) -> None:
        """Let the record say this and what it doesn't say yet; what fails is tried again later."""
        self._untold |= changes
        if not self._untold:
            return
        try:
            self._record.tell(**self._untold)
        except ApiError as error:
            sys.stderr.write(f"fray: how the actor fares can't be told: {error}\n")
        else:
            self._untold = {}

    # --- one run -------------------------------------------------------------------------------------------

    def _run_once(self, record: MemberRecord) -> LastError:
        """Run the actor until its process has ended, or this one is to; return why, once all is gone."""
        token = self._pod.member.build_incarnation(self._pod.pod_uid, record.start)
        news, telling = os.pipe()
        os.set_blocking(news, False)
        key = ("--key", str(self._pod.key))
        own = self._listen[-1]
        for left in Path(own.path).parent.glob("[ho]*"):  # sockets of the last run
            left.unlink()
        listen = [f"--listen={address}" for address in self._listen]
        head = start_process(RUN_HEAD, *listen, *key, "--token", token, "--owner", str(os.getpid()))
        member = start_process(
            _RUN_MEMBER, "--head", str(own), *key, "--news", str(telling),
            pass_fds=(telling,),
        )  # fmt: skip
        os.close(telling)
        try:
            error = self._follow({head.pid: "its server", member.pid: "its process"}, news)
            if self._ending:
                member.terminate()
                self._await_end(member.pid)
        finally:
            os.close(news)
            self._end((head, member))
        return error

    def _follow(self, processes: Mapping[int, str], news: int) -> LastError:
        """Return why the run has ended: what the member's process told, or that one of the two ended."""
        heard, error = b"", None
        while not self._ending:
            ended, status = _reap()
            heard += _read(news)
            *lines, heard = heard.split(b"\n")
            for line in lines:
                report = json.loads(line)
                if report is None:
                    self._readiness.ready = True
                    self._tell(ready=True, failures=0)
                elif "idle" in report:
                    self._tell(idle=report["idle"])
                elif "ended" in report:
                    self._ended = report["ended"]
                else:
                    error = LastError(**report)
            if ended in processes:
                return error or LastError("ActorDiedError", f"{processes[ended]} was {describe_exit(status)}")
            if not ended:
                self._await_news(API_PAUSE if self._untold else None, news)
                self._tell()
        return LastError("ActorDiedError", "its pod was told to end")

    def _await_end(self, pid: int) -> None:
        """Return once a process has ended, or the time is over that an actor has for its end."""
        over_at = time.monotonic() + GRACE_SECONDS
        while pid in children(os.getpid()) and (left := over_at - time.monotonic()) > 0:
            while (ended := _reap()[0]) not in (0, pid):
                pass
            if ended == pid:
                return
            self._await_news(min(left, LOOK_SECONDS))

    def _end(self, processes: tuple[subprocess.Popen[bytes], ...]) -> None:
        """End all processes of a run, and return once there is none: so two runs never meet."""
        for process in processes:
            signal_group(process.pid, signal.SIGTERM)
        kill_at = time.monotonic() + END_SECONDS
        while left := children(os.getpid()):
            if time.monotonic() > kill_at:
                for child in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
            while _reap()[0]:
                pass
            self._await_news(LOOK_SECONDS)
        while _reap()[0]:
            pass
        for process in processes:
            process.returncode = 0  # it was reaped here

    # --- waiting -------------------------------------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        """Wait for so long, or until it is to end."""
        until = time.monotonic() + seconds
        while not self._ending and (left := until - time.monotonic()) > 0:
            self._await_news(left)

    def _await_news(self, seconds: float | None, news: int = -1) -> None:
        """Wait for a signal, the kubelet or the member, at most so long (None: for ever)."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._signals, selectors.EVENT_READ, self._note_signals)
            if news >= 0:
                selector.register(news, selectors.EVENT_READ, _leave_it)
            for each in self._readiness.sockets:
                selector.register(each, selectors.EVENT_READ, self._readiness.serve)
            if self._is_over is not None:
                seconds = LOOK_SECONDS if seconds is None else min(seconds, LOOK_SECONDS)
            for deal in {key.data for key, _ in selector.select(seconds)}:
                deal()
        self._ending = self._ending or (self._is_over is not None and self._is_over())

    def _note_signals(self) -> None:
        numbers = _read(self._signals)
        self._ending |= signal.SIGTERM in numbers or signal.SIGINT in numbers


def _leave_it() -> None:
    """Do nothing: who waits reads it."""


def _read(descriptor: int) -> bytes:
    found = b""
    with contextlib.suppress(BlockingIOError):
        while part := os.read(descriptor, 65536):
            found += part
    return found


def _reap() -> tuple[int, int]:
    """Return the pid and status of a child that has ended, or an orphan; 0: there is none."""
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return 0, 0


if __name__ == "__main__":
    sys.exit(main())
