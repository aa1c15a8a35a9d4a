"""The program beside each local process: starts it, ends it, and leaves nothing of it behind.

Run by path as a process of its own (`python -I -S supervisor.py CONTROL_FD,INHERITED_FD,... LABEL`), so
standard library only, few modules, and nothing of Fray: it must start in milliseconds, and must outlive
the death of `fray run`. It does for a process what a container does: whatever the command leaves behind
when it ends is killed, and when the control channel closes because its other end died, everything ends.

Protocol, one JSON object a line. In: first the task (`argv`, `env`, `cwd`, `grace`; text stands for
bytes, in Latin-1), then `{"do": "terminate"}` or `{"do": "kill"}`. Out: `started` with the pid, or
`start_failed` with `stage` and `errno`; at last `ended` with a shell's exit code and the time.
What a human reads about it is `host`'s.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False  # the module `typing` is slow to import
if TYPE_CHECKING:
    from typing import Any

try:
    import ctypes

    LIBC: ctypes.CDLL | None = ctypes.CDLL(None)
except ImportError:
    LIBC = None  # a Python without libffi

__all__ = ["main"]

ORPHAN_GRACE_SECONDS = 5.0
"""Between SIGTERM and SIGKILL once nobody is left who could wait for the process."""
CLEANUP_SECONDS = 10.0
"""Killed processes in uninterruptible sleep may take that long to go; they aren't waited for longer."""
FORWARDED = (signal.SIGTERM,)
IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Run one command under supervision, as the first line on the control channel says."""
    control, *inherited = (int(number) for number in sys.argv[1].split(","))
    for number in (control, *inherited):
        # The inherited descriptors (locks) belong to this process; the command must not keep them.
        os.set_inheritable(number, False)
    _Supervisor(control).run()


class _Supervisor:
    def __init__(self, control: int) -> None:
        self._control = control
        self._unread = b""
        self._open = True
        self._kill_at: float | None = None
        self._grace = 0.0
        self._pid = 0
        self._status: int | None = None
        self._ended_at = 0.0

    def run(self) -> None:
        task = self._read_task()
        if task is None:
            return
        self._grace = task["grace"]
        signals = _watch_signals()
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        problem = self._start(task)
        if problem is not None:
            self._tell({"event": "start_failed", **problem})
            return
        self._tell({"event": "started", "pid": self._pid, "at": time.time()})
        self._obey_orders()  # those that came together with the task
        while self._status is None:
            self._wait(signals)
            self._reap()
        self._clean_up(signals)
        code = os.waitstatus_to_exitcode(self._status)
        self._tell({"event": "ended", "exit_code": code if code >= 0 else 128 - code, "at": self._ended_at})

    def _start(self, task: dict[str, Any]) -> dict[str, Any] | None:
        """Fork and exec; return the problem if the command didn't start."""
        read_end, write_end = os.pipe()
        try:
            self._pid = os.fork()
        except OSError as error:
            return {"stage": "fork", "errno": error.errno, "problem": str(error)}
        if self._pid == 0:
            _become(task, write_end, os.getppid())
        os.close(write_end)
        report = b""
        while part := os.read(read_end, 65536):
            report += part
        os.close(read_end)
        if not report:
            return None
        os.waitpid(self._pid, 0)
        problem: dict[str, Any] = json.loads(report)
        return problem

    def _read_task(self) -> dict[str, Any] | None:
        while b"\n" not in self._unread:
            part = os.read(self._control, 1 << 20)
            if not part:
                return None
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        task: dict[str, Any] = json.loads(line)
        return task

    def _wait(self, signals: int) -> None:
        """Wait for a signal, a command, the end of the channel or of the grace; act on it."""
        timeout = None if self._kill_at is None else max(self._kill_at - time.monotonic(), 0)
        watched = [signals, self._control] if self._open else [signals]
        ready = select.select(watched, (), (), timeout)[0]
        if signals in ready and any(number in os.read(signals, 4096) for number in FORWARDED):
            self._terminate(self._grace)
        if self._control in ready:
            self._obey()
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill()

    def _obey(self) -> None:
        try:
            part = os.read(self._control, 65536)
        except OSError:
            part = b""
        if not part:
            self._open = False
            self._terminate(min(self._grace, ORPHAN_GRACE_SECONDS))
            return
        self._unread += part
        self._obey_orders()

    def _obey_orders(self) -> None:
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            if json.loads(line)["do"] == "kill":
                self._kill()
            else:
                self._terminate(self._grace)

    def _terminate(self, grace: float) -> None:
        kill_at = time.monotonic() + grace
        if self._kill_at is None:
            _signal_group(self._pid, signal.SIGTERM)
            # A stopped process would only see the signal once it goes on.
            _signal_group(self._pid, signal.SIGCONT)
        self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)

    def _kill(self) -> None:
        self._kill_at = None
        _signal_group(self._pid, signal.SIGKILL)

    def _reap(self) -> bool:
        """Collect what has ended; return whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._pid:
                self._status, self._ended_at = status, time.time()

    def _clean_up(self, signals: int) -> None:
        """Kill what the command has left behind: its group, and all that was re-parented to this process."""
        _signal_group(self._pid, signal.SIGKILL)
        give_up_at = time.monotonic() + CLEANUP_SECONDS
        while self._reap() and time.monotonic() < give_up_at:
            # The children of a killed one come to this process in turn, so the loop ends when none is left.
            for pid in _children_of(os.getpid()):
                _signal(pid, signal.SIGKILL)
            if select.select([signals], (), (), 0.05)[0]:
                os.read(signals, 4096)

    def _tell(self, message: dict[str, Any]) -> None:
        line = json.dumps(message).encode() + b"\n"
        try:
            while line:
                line = line[os.write(self._control, line) :]
        except OSError:
            # The other end died. The channel stays watched: it is its end, seen there, that ends the process.
            return


def _become(task: dict[str, Any], report: int, supervisor: int) -> None:
    """Turn this forked child into the command; never returns."""
    stage = "prepare"
    try:
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(128 + signal.SIGKILL)  # it died before the line above could take effect
        _restore_signals()
        argv = [argument.encode("latin-1") for argument in task["argv"]]
        env = {name.encode("latin-1"): value.encode("latin-1") for name, value in task["env"].items()}
        stage = "chdir"
        os.chdir(task["cwd"].encode("latin-1"))
        stage = "exec"
        os.execvpe(argv[0], argv, env)
    except BaseException as error:  # noqa: BLE001 - reported, and the process ends
        number = error.errno if isinstance(error, OSError) else None
        os.write(report, json.dumps({"stage": stage, "errno": number, "problem": str(error)}).encode())
    finally:
        os._exit(127)


def _watch_signals() -> int:
    """Return a descriptor from which the numbers of arrived signals can be read."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in (*FORWARDED, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    return read_end


def _restore_signals() -> None:
    """Give the command the signal state of a fresh container, whatever `fray run` was started with."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)
            except OSError:
                continue  # reserved by the C library
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _signal_group(leader: int, number: int) -> None:
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        _signal(leader, number)  # macOS refuses to signal a group that holds a zombie


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # it has gone, or has become another user's


def _children_of(parent: int) -> list[int]:
    """Return the children of a process, where the kernel tells (Linux)."""
    children = []
    try:
        entries = os.listdir("/proc")  # noqa: PTH208 - pathlib is slow to import
    except OSError:
        return []
    for entry in entries:
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:  # noqa: PTH123
                    # The name in parentheses may hold anything; state and parent follow the last one.
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent:
                children.append(int(entry))
    return children


def _prctl(option: int, value: int) -> None:
    """Set an attribute of this process, where there is prctl(2) (Linux, and a Python with ctypes)."""
    if LIBC is not None and sys.platform.startswith("linux"):
        LIBC.prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
