"""One host of a gang as a process of this machine: its supervisor, its output, and what is known of it.

The supervisor (`supervisor.py`) does to the process whatever must happen even if this program dies;
here is the other end of its channel. Which processes there are is `attempt`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fray.cluster.local import supervisor
from fray.cluster.local.output import HostOutput
from fray.cluster.local.pods import LocalPod
from fray.errors import StateDirectoryError
from fray.plan.observation import START_FAILED, HostObservation, HostPhase
from fray.vocabulary import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, EXIT_SIGNAL_BASE

__all__ = ["SIGKILL", "HostEvents", "HostProcess", "HostTask", "LocalHost", "describe_start_failure"]

SUPERVISOR = Path(supervisor.__file__)
TAIL_LINES = 10
OUTPUT_SECONDS = 2.0
"""How long output is waited for once all processes have gone: only one that escaped can still hold it."""
KILL_SECONDS = 15.0
"""More than a supervisor needs to clean up."""
SIGKILL = 9
ARGUMENTS_TOO_LONG = "its arguments and variables are longer than the system allows"


@dataclass(frozen=True)
class HostTask:
    """What one host runs: the pod, the whole environment and the working directory of its process."""

    pod: LocalPod
    environment: Mapping[str, str] = field(repr=False)
    working_dir: str

    def to_message(self) -> bytes:
        """Return the task as the supervisor reads it: bytes as Latin-1 text.

        Raises:
            ValueError: some text has no form in this system's encoding.
        """
        task = {
            "argv": [_wire_text(argument) for argument in self.pod.command],
            "env": {_wire_text(name): _wire_text(value) for name, value in self.environment.items()},
            "cwd": _wire_text(self.working_dir),
            "grace": self.pod.grace_seconds,
        }
        return json.dumps(task).encode() + b"\n"


@dataclass(frozen=True)
class HostEvents:
    """What a host calls, in the event loop: it must return at once."""

    changed: Callable[[], None]
    """Something about the host is no longer as it was."""
    printed: Callable[[], None]
    """Output was written to disk."""
    failed: Callable[[StateDirectoryError], None]
    """Output could not be written to disk."""


class LocalHost:
    """What processes and threads that are hosts have in common: what is known of them, and their output."""

    def __init__(self, pod: LocalPod, output: HostOutput, events: HostEvents) -> None:
        self._pod = pod
        self._output = output
        self._events = events
        self._facts: dict[str, Any] = {"phase": HostPhase.PENDING}
        self._ended = asyncio.Event()

    @property
    def observation(self) -> HostObservation:
        """What is known of the host now."""
        return self._pod.observe(**self._facts)

    def printed(self, data: bytes) -> None:
        """Take in output, until the end."""
        if not self._ended.is_set():
            try:
                self._output.write(data)
            except StateDirectoryError as error:
                self._events.failed(error)
            self._events.printed()

    def _end(self, *, exit_code: int, **facts: Any) -> None:
        """Make the end known, once all output is on disk."""
        phase = HostPhase.SUCCEEDED if exit_code == 0 else HostPhase.FAILED
        tail: tuple[str, ...] = ()
        try:
            self._output.close()
            tail = self._output.tail(TAIL_LINES) if exit_code else ()
        except StateDirectoryError as error:
            self._events.failed(error)
        self._facts |= {"phase": phase, "exit_code": exit_code, **facts, "log_tail": tail}
        self._ended.set()
        self._events.changed()


class HostProcess(LocalHost):
    """A host from its start to its end. Ended means: no process of it lives and all output is on disk."""

    def __init__(self, task: HostTask, output: HostOutput, events: HostEvents) -> None:
        super().__init__(task.pod, output, events)
        self._task = task
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._unread = b""
        self._stream: asyncio.ReadTransport | None = None
        self._supervised = False
        self._streaming = False
        self._leader: int | None = None
        self._verdict: dict[str, Any] | None = None

    @property
    def living(self) -> bool:
        """Whether anything of it runs, or its output is still being read."""
        return self._supervised or self._streaming

    async def start(self, *, inherited: tuple[int, ...]) -> None:
        """Start the process; a failure to do so is observed like any other end.

        `inherited` are locks that its supervisor holds on to as long as it lives.
        """
        try:
            message = self._task.to_message()
            await self._spawn(inherited)
        except (OSError, ValueError) as error:
            self._verdict = {
                "exit_code": EXIT_NOT_EXECUTABLE,
                "reason": START_FAILED,
                "message": f"cannot start {self._pod.command[0]!r}: {error}",
                "ended_at": datetime.now(UTC),
            }
            self._settle()
            return
        if self._control is not None:
            with contextlib.suppress(ConnectionError):  # its end of the channel is seen by the reader
                await asyncio.get_running_loop().sock_sendall(self._control, message)

    def terminate(self) -> None:
        """Ask the process to end, and have it killed after its grace; may be called again."""
        self._order("terminate")

    def kill(self) -> None:
        """Kill the process and all it has started; may be called again."""
        self._order("kill")

    async def wait_ended(self) -> None:
        """Return when the host has ended; a supervisor that doesn't end after `kill` is killed itself."""
        try:
            async with asyncio.timeout(KILL_SECONDS):
                await self._ended.wait()
        except TimeoutError:
            if self._process is not None:
                self._process.kill()
            self._kill_group()

    async def _spawn(self, inherited: tuple[int, ...]) -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        read_end, write_end = os.pipe()
        stream = os.fdopen(read_end, "rb", buffering=0)
        try:
            descriptors = (theirs.fileno(), *inherited)
            # Blocks for about a millisecond. asyncio's own form would start a thread for each process.
            self._process = subprocess.Popen(  # noqa: ASYNC220
                [
                    sys.executable,
                    "-I",
                    "-S",
                    str(SUPERVISOR),
                    ",".join(map(str, descriptors)),
                    self._pod.name,
                ],
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                pass_fds=descriptors,
                start_new_session=True,
                close_fds=True,
            )
        except OSError:
            ours.close()
            stream.close()
            raise
        finally:
            theirs.close()
            os.close(write_end)
        self._supervised = self._streaming = True
        ours.setblocking(False)
        self._control = ours
        # Not an asyncio transport: that one drops what it has not yet read once a write has failed, and
        # an order may well cross the supervisor's last word.
        loop.add_reader(ours, self._listen)
        self._stream, _ = await loop.connect_read_pipe(lambda: _Output(self), stream)

    def _order(self, what: str) -> None:
        if self._supervised and self._control is not None:
            with contextlib.suppress(OSError):  # it has ended; its last word is still to be read
                self._control.send(json.dumps({"do": what}).encode() + b"\n")

    def _listen(self) -> None:
        """Read from the supervisor; called by the event loop when there is something."""
        assert self._control is not None
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""  # it ended without reading the last order
        if data:
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                self._hear(json.loads(line))
            return
        asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        self._supervisor_gone()

    def _hear(self, event: Mapping[str, Any]) -> None:
        """Take in what the supervisor tells."""
        match event["event"]:
            case "started":
                self._leader = event["pid"]
                self._facts = {"phase": HostPhase.RUNNING, "started_at": _time(event["at"])}
                self._events.changed()
            case "start_failed":
                code, message = describe_start_failure(event, self._task)
                self._verdict = {
                    "exit_code": code,
                    "reason": START_FAILED,
                    "message": message,
                    "ended_at": datetime.now(UTC),
                }
            case "ended":
                self._leader = None
                self._verdict = {"exit_code": event["exit_code"], "ended_at": _time(event["at"])}

    def _supervisor_gone(self) -> None:
        """Take note that the supervisor has ended; after it, nothing of the host lives."""
        self._supervised = False
        assert self._process is not None
        try:
            # Its end of the channel closed with it, so it has ended but for the last microseconds.
            self._process.wait(timeout=OUTPUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        if self._verdict is None:
            self._kill_group()
            self._verdict = {
                "exit_code": EXIT_SIGNAL_BASE + SIGKILL,
                "message": "its supervisor was killed",
                "ended_at": datetime.now(UTC),
            }
        if self._streaming and self._stream is not None:
            asyncio.get_running_loop().call_later(OUTPUT_SECONDS, self._stream.close)
        self._settle()

    def output_ended(self) -> None:
        """Take note that nobody can write output any more."""
        self._streaming = False
        self._settle()

    def _kill_group(self) -> None:
        """Kill what the supervisor can't any more: the kernel kills the command, but not its children."""
        if self._leader is None:
            return
        try:
            os.killpg(self._leader, SIGKILL)
        except (ProcessLookupError, PermissionError):
            return

    def _settle(self) -> None:
        """Make the end known once nothing of the host is left and all of its output is on disk."""
        if self._verdict is None or self._supervised or self._streaming or self._ended.is_set():
            return
        self._end(**self._verdict)


class _Output(asyncio.Protocol):
    def __init__(self, host: HostProcess) -> None:
        self._host = host

    def data_received(self, data: bytes) -> None:
        self._host.printed(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._host.output_ended()


def describe_start_failure(event: Mapping[str, Any], task: HostTask) -> tuple[int, str]:
    """Return a shell's exit code for a command that didn't start, and a sentence with the next step."""
    command, number = task.pod.command[0], event["errno"]
    if event["stage"] == "chdir":
        why = f"{_strerror(event)}; choose another with --workdir"
        return EXIT_NOT_EXECUTABLE, f"the working directory {task.working_dir} can't be entered ({why})"
    if event["stage"] == "fork":
        return EXIT_NOT_EXECUTABLE, f"no process could be made for {command!r}: {_strerror(event)}"
    cannot = f"cannot start {command!r}"
    if number in (errno.ENOENT, errno.ENOTDIR):
        if "/" not in command:
            own = task.pod.env.get("PATH")
            path = "PATH" if own is None else f"the job's PATH, {own}"
            return EXIT_NOT_FOUND, f"{cannot}: it is not found on {path} (install it, or write its path)"
        if (Path(task.working_dir) / command).exists():
            return EXIT_NOT_FOUND, f"{cannot}: the interpreter in its first line (#!) does not exist"
        return EXIT_NOT_FOUND, f"{cannot}: no such file (working directory {task.working_dir})"
    if number == errno.EACCES:
        what = "it is not executable (run `chmod +x` on it, or name its interpreter)"
        return EXIT_NOT_EXECUTABLE, f"{cannot}: {what}"
    if number == errno.ENOEXEC:
        what = "it is neither a program nor a script with #! in its first line"
        return EXIT_NOT_EXECUTABLE, f"{cannot}: {what}"
    if number == errno.E2BIG:
        return EXIT_NOT_EXECUTABLE, f"{cannot}: {ARGUMENTS_TOO_LONG}"
    return EXIT_NOT_EXECUTABLE, f"{cannot}: {_strerror(event)}"


def _strerror(event: Mapping[str, Any]) -> str:
    return os.strerror(event["errno"]) if event["errno"] is not None else str(event["problem"])


def _wire_text(text: str) -> str:
    return os.fsencode(text).decode("latin-1")


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
