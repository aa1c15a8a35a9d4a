"""Start and end the long-running programs of a host, each in its own control group, none a child of anybody.

A daemon is known by its group and program alone, so any later command can find it. What to run is not
decided here.
"""

from __future__ import annotations

import contextlib
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.cluster import cgroups
from e2e.cluster.command import await_condition
from e2e.cluster.errors import MachineError, NotReadyError
from e2e.cluster.paths import LOGS

__all__ = [
    "enter_command",
    "find_daemon",
    "holder_pid",
    "is_held",
    "join_command",
    "log_tail",
    "require_daemon",
    "start_daemon",
    "start_host",
]

_HOLDER = "host"
_TAIL_LINES = 15
_START_SECONDS = 60.0
# Joins the group before it becomes the program: no moment in which the process is nobody's. The outer shell
# ends at once, which makes it a child of the machine's first process.
_JOIN = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
_DETACH = 'setsid sh -c "$0" "$@" &'


def find_daemon(host: str, daemon: str, program: str) -> int | None:
    """Process id of a daemon, None when it is not running.

    `program` is the first word of its command line.
    """
    for pid in cgroups.pids_in(host, daemon):
        with contextlib.suppress(OSError):  # ended by now
            first = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0", 1)[0].decode()
            if Path(first).name == Path(program).name:
                return pid
    return None


def is_held(pid: int) -> bool:
    """Whether a process was stopped (SIGSTOP), and not let go on."""
    with contextlib.suppress(OSError):  # ended by now
        # proc_pid_stat(5): the state stands behind the name, which may hold blanks.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


def require_daemon(host: str, daemon: str, program: str) -> int:
    """Process id of a daemon. Raises NotReadyError, with the end of its log, when it is not running."""
    pid = find_daemon(host, daemon, program)
    if pid is None:
        raise NotReadyError(f"{daemon} runs on {host}", log_tail(host, daemon))
    return pid


def log_tail(host: str, daemon: str) -> str:
    """The last lines that a daemon logged, with the file's name; empty when there is no log."""
    path = LOGS / host / f"{daemon}.log"
    if not path.exists():
        return ""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
    return "\n".join([f"--- {path}", *lines])


def start_host(host: str, script: str) -> None:
    """Make the namespaces of a host: a network and a view of the mounts of its own, held by one idle process.

    `script` is run once inside, before anything else.
    """
    command = ["unshare", "--net", "--mount", "--propagation", "private", "--"]
    command += ["sh", "-euc", f"{script}\nexec sleep infinity"]
    _start(host, _HOLDER, command, program="sleep")


def holder_pid(host: str) -> int:
    """The idle process that holds the namespaces of a host. Raises MachineError when there is none."""
    pid = find_daemon(host, _HOLDER, "sleep")
    if pid is None:
        raise MachineError(f"no host {host} is running", "see `python -m e2e.cluster status`, or `up` again")
    return pid


def enter_command(host: str) -> list[str]:
    """The words before a command that make it run on a host, with its network and mounts."""
    return ["nsenter", f"--target={holder_pid(host)}", "--net", "--mount", "--"]


def join_command(host: str, name: str) -> list[str]:
    """The words before a command that make it part of the cluster, so that it can't outlive it."""
    return ["sh", "-c", _JOIN, str(cgroups.create_daemon_group(host, name))]


def start_daemon(
    host: str, daemon: str, command: Sequence[str], *, cwd: Path, environment: Mapping[str, str] | None = None
) -> None:
    """Start a daemon on a host in the working directory `cwd`; harmless when it is running.

    Raises NotReadyError when it can't even be started; that it works is for the caller to find out.
    """
    if find_daemon(host, daemon, command[0]) is not None:
        return
    inside = f"cd {shlex.quote(str(cwd))} && exec {shlex.join(command)}"
    started = [*enter_command(host), "sh", "-c", inside]
    _start(host, daemon, started, program=command[0], environment=environment)


def _start(
    host: str,
    daemon: str,
    command: Sequence[str],
    *,
    program: str,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run `command`, which becomes `program`, and return when it has."""
    group = cgroups.create_daemon_group(host, daemon)
    log = LOGS / host / f"{daemon}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        subprocess.run(
            ["sh", "-c", _DETACH, _JOIN, str(group), *command],
            cwd="/",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=True,
        )
    await_condition(
        f"{daemon} starts on {host}",
        lambda: find_daemon(host, daemon, program) is not None,
        timeout=_START_SECONDS,
        details=lambda: log_tail(host, daemon),
    )
