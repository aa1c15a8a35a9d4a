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
import http.client
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from fray.errors import FrayError, SettingError
from fray.kube.errors import ApiError
from fray.runtime.actors.identity import ActorPod, build_place, read_host
from fray.runtime.actors.record import LastError, MemberRecord, RecordWriter, is_spent
from fray.runtime.api.client import ApiAccess, ApiClient
from fray.runtime.pool.host.processes import (
    adopt_orphans,
    children,
    children_to_end,
    describe_exit,
    signal_group,
    watch_signals,
)
from fray.runtime.pool.host.readiness import ReadinessServer
from fray.runtime.pool.joined_pool import RUN_HEAD
from fray.runtime.pool.local_pool import METRICS_SOCKET, start_process
from fray.runtime.pool.machine.transitions import ALIVE
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
    POOL_VIEW_PATH,
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
SERVER: Final = "its server"
PROBE_SECONDS: Final = 0.8
"""How long the head may take to answer for the actor: the kubelet waits 1 s for its probe."""
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
        readiness = _Readiness(Address(host=anywhere, port=ready_port))
        record = RecordWriter(ApiClient(access), pod, Address(host=pod.address, port=port))
        with tempfile.TemporaryDirectory(prefix="fray-actor-") as sockets:
            listen = Address(host=anywhere, port=port), Address(path=f"{sockets}/head")
            supervisor = Supervisor(pod, record, listen)
            readiness.ask = supervisor.is_ready
            readiness.start()
            return supervisor.run()
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


class _Readiness(ReadinessServer):
    """Answers the kubelet's probes with what `ask` says at the time of each."""

    ask: Callable[[], bool]

    def serve(self) -> None:
        """Accept who has come and answer those who have asked, after a look."""
        if len(self.sockets) > 1:  # else nobody has asked yet
            self.ready = self.ask()
        super().serve()


class Supervisor:
    """Runs the actor again and again, from the main thread of its process.

    Parameters: the `pod`; the `record`, where it tells how the actor fares; where the head is to `listen`,
    last of all at a unix socket: the actor's process joins there, since TLS would make calls slower;
    `is_over` says whether it is to end, where nobody else tells it.
    """

    def __init__(
        self,
        pod: ActorPod,
        record: RecordWriter,
        listen: tuple[Address, ...],
        *,
        is_over: Callable[[], bool] | None = None,
    ) -> None:
        self._pod = pod
        self._record = record
        self._listen = listen
        self._view = Path(listen[-1].path).with_name(METRICS_SOCKET)
        """Where the head shows what its pool has."""
        self._constructed = False
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
            self._run_once(record)
            if self._ending:
                break
            if self._ended:
                sys.stderr.write(f"fray: the actor has ended for good: {self._ended}\n")
                self._tell(ended=self._ended)
                self._rest()
                break
            if self._pod.hosts > 1:
                return EXIT_FAILURE
            if time.monotonic() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            self._wait(pause)
            pause = min(LONGEST_PAUSE, pause * 2)
        return 0

    def is_ready(self) -> bool:
        """Return whether the actor takes calls: its head says so, now. For any thread.

        The actor itself isn't asked: it may be busy for hours.
        """
        if not self._constructed:
            return False
        try:
            alive: int = json.loads(_read_view(self._view))["actors"][ALIVE]
        except (OSError, http.client.HTTPException, ValueError):
            return False
        # On several hosts there is one on each, and the front that calls them.
        return alive >= (1 if self._pod.hosts == 1 else self._pod.hosts + 1)

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
            # The start has the rest anew; why the last run ended is still to be told.
            kept: dict[str, Any] = {
                name: self._untold[name] for name in ("error", "failures") if name in self._untold
            }
            self._untold = kept
            return replace(record, **kept)
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

    def _run_once(self, record: MemberRecord) -> None:
        """Run the actor until its process has ended, or this one is to, and all that it has left is gone."""
        token = self._pod.member.build_incarnation(self._pod.pod_uid, record.start)
        news, telling = os.pipe()
        os.set_blocking(news, False)
        key = ("--key", str(self._pod.key))
        own = self._listen[-1]
        for left in Path(own.path).parent.glob("*"):  # sockets of the last run
            left.unlink()
        shown = [f"--listen={address}" for address in self._listen] + [f"--metrics=unix:{self._view}"]
        head = start_process(RUN_HEAD, *shown, *key, "--token", token, "--owner", str(os.getpid()))
        member = start_process(
            _RUN_MEMBER, "--head", str(own), *key, "--news", str(telling),
            pass_fds=(telling,),
        )  # fmt: skip
        os.close(telling)
        try:
            self._follow({head.pid: SERVER, member.pid: "its process"}, news, record)
            if self._ending:
                member.terminate()
                self._await_end(member.pid)
        finally:
            os.close(news)
            self._end((head, member))

    def _tell_end(self, record: MemberRecord, error: LastError) -> None:
        """Let the record say that the actor has ended, and why, and whether it was the last time."""
        self._constructed = False
        sys.stderr.write(f"fray: the actor has ended: {error.type}: {error.message}\n")
        failures = record.failures + 1 if error.constructing else 0
        # Of one on several hosts the operator says it.
        spent = self._pod.hosts == 1 and is_spent(record, self._pod.max_restarts)
        self._tell(ready=False, idle=False, error=error, failures=failures, exhausted=spent)

    def _follow(self, processes: Mapping[int, str], news: int, record: MemberRecord) -> None:
        """Return once one of a run's two processes has ended, or this one is to; the record says why.

        It says so as soon as the member's process tells of the actor's end: what the actor has left may keep
        that process for seconds, in which nobody is to be sent to it.
        """
        heard, error = b"", None
        while not self._ending:
            ended, status = _reap()
            heard += _read(news)
            *lines, heard = heard.split(b"\n")
            for line in lines:
                report = json.loads(line)
                if report is None:
                    # First the record: who waits for the pod to be ready finds it there.
                    self._tell(ready=True, failures=0)
                    self._constructed = True
                elif "idle" in report:
                    self._tell(idle=report["idle"])
                elif "ended" in report:
                    self._ended, self._constructed = report["ended"], False
                    self._tell(ready=False)  # its name is free once its code has come to its end
                else:
                    error = LastError(**report)
                    self._tell_end(record, error)
            if ended in processes:
                # If its server has ended, the member's process tells only that it has lost it.
                if not self._ended and (error is None or processes[ended] == SERVER):
                    died = f"{processes[ended]} was {describe_exit(status)}"
                    self._tell_end(record, LastError("ActorDiedError", died))
                return
            if not ended:
                self._await_news(API_PAUSE if self._untold else None, news)
                self._tell()

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
        while left := children_to_end():
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
        """Wait for a signal or the member, at most so long (None: for ever)."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._signals, selectors.EVENT_READ, self._note_signals)
            if news >= 0:
                selector.register(news, selectors.EVENT_READ, _leave_it)
            if self._is_over is not None:
                seconds = LOOK_SECONDS if seconds is None else min(seconds, LOOK_SECONDS)
            for deal in {key.data for key, _ in selector.select(seconds)}:
                deal()
        self._ending = self._ending or (self._is_over is not None and self._is_over())

    def _note_signals(self) -> None:
        numbers = _read(self._signals)
        self._ending |= signal.SIGTERM in numbers or signal.SIGINT in numbers


def _read_view(path: Path) -> bytes:
    """Return what a head shows at a unix socket. Raises `OSError` and `HTTPException`."""
    connection = http.client.HTTPConnection("localhost")
    with contextlib.closing(connection), socket.socket(socket.AF_UNIX) as connected:
        connected.settimeout(PROBE_SECONDS)
        connected.connect(str(path))
        connection.sock = connected
        connection.request("GET", POOL_VIEW_PATH)
        return connection.getresponse().read()


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
