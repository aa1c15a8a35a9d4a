"""What the nanny needs of the operating system to own processes: their ends, their groups, their parents."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from fray.vocabulary import ENV_ACTOR_POD_UID

__all__ = [
    "adopt_orphans",
    "children",
    "children_to_end",
    "descendants",
    "describe_exit",
    "die_with_parent",
    "ended_children",
    "has_ended",
    "reset_signals",
    "signal_group",
    "stopped_children",
    "watch_end",
    "watch_signals",
]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def describe_exit(status: int) -> str:
    """Return in words how a process ended; `status` is that of wait(2)."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "a real-time signal"
    return f"killed by signal {-code} ({name})"


def ended_children() -> Iterator[int]:
    """Give the pids of children that have ended; each is to be reaped before the next is taken.

    As long as it isn't reaped, no other process can get its number, nor that of its group.
    """
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None:
            return
        yield ended.si_pid


def has_ended(child: int) -> bool:
    """Return whether a child that wasn't reaped yet has ended."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def stopped_children() -> Iterator[tuple[int, str]]:
    """Give the pids of children that were stopped since the last call, or went on, and which of it in words.

    A process that a debugger holds isn't reported to anybody but the debugger (ptrace(2)).
    """
    while True:
        try:
            changed = os.waitid(os.P_ALL, 0, os.WSTOPPED | os.WCONTINUED | os.WNOHANG)
        except ChildProcessError:
            return
        if changed is None:
            return
        if changed.si_code == os.CLD_CONTINUED:
            yield changed.si_pid, "goes on"
        else:
            name = signal.Signals(changed.si_status).name
            yield changed.si_pid, f"was stopped by {name}: what it runs waits until somebody sends SIGCONT"


def signal_group(leader: int, number: int) -> None:
    """Send a signal to all processes of a group, if there are any."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def children(parent: int) -> list[int]:
    """Return the living children of a process, where the kernel tells (Linux: proc(5))."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended; asked of `glob` with `/stat`, that would be raised
            # The name in parentheses may hold anything; state and parent follow the last one.
            state, owner = (process / "stat").read_bytes().rpartition(b")")[2].split()[:2]
            if int(owner) == parent and state != b"Z":
                found.append(int(process.name))
    return found


def children_to_end() -> list[int]:
    """Return the living children of this process that are to end with it.

    Others run a member of another actor of this machine, which code beneath it needed first: such a member
    lives on.
    """
    own = os.environ.get(ENV_ACTOR_POD_UID)  # noqa: TID251 - whose children these are
    return [child for child in children(os.getpid()) if _read_member(child) in (None, own)]


def _read_member(pid: int) -> str | None:
    """Return which run of an actor's member a process belongs to; None where it belongs to none."""
    name = f"{ENV_ACTOR_POD_UID}=".encode()
    with contextlib.suppress(OSError):  # it has ended
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if variable.startswith(name):
                return os.fsdecode(variable.removeprefix(name))
    return None


def descendants(parent: int) -> list[int]:
    """Return the living children of a process, theirs, and so on."""
    found = children(parent)
    for child in found:
        found += children(child)
    return found


def watch_end(pid: int) -> int | None:
    """Return a descriptor that becomes readable when a process ends; None where there is none (Linux 5.3)."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def watch_signals(*numbers: signal.Signals) -> tuple[int, int]:
    """Catch these signals; return both ends of a pipe, from the first of which their numbers can be read."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    return read_end, write_end


def adopt_orphans() -> None:
    """Become the parent of descendants whose parents have ended, where there is that (Linux 3.4)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, where it does that (Linux).

    `parent` is its pid: if it has ended already, this process ends here.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def reset_signals() -> None:
    """Give a forked child the signal handlers of a fresh process, without Python's own."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
