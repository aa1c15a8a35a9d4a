"""What can go wrong before a test cluster runs, each with the next step for the person at the terminal.

Only types and their messages live here; detection lives where the fault is seen.
"""

from __future__ import annotations

from pathlib import Path

__all__ = [
    "ClusterError",
    "CommandError",
    "CompileError",
    "ControlPlaneError",
    "GoToolchainError",
    "MachineError",
    "ModuleProxyError",
    "NotReadyError",
    "UnknownProgramError",
]


class ClusterError(Exception):
    """Root of every fault of the test-cluster harness."""


class UnknownProgramError(ClusterError):
    """A name that `versions.toml` does not hold.

    Parameters: `name` as it was given, `known` the names that exist.
    """

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(name, known)
        self.name = name
        self.known = known

    def __str__(self) -> str:
        return f"{self.name!r} is not pinned in versions.toml; it has: {', '.join(self.known)}"


class GoToolchainError(ClusterError):
    """Go is missing, too old or does not run, so nothing can be built.

    Parameters: `problem` is one clause saying what was found.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return (
            f"{self.problem}. Install Go 1.21 or newer and put it on PATH (it fetches any newer toolchain "
            "that a module asks for by itself), or copy the program cache from a machine that has built it"
        )


class ModuleProxyError(ClusterError):
    """The Go module proxy could not be reached, or refused a module.

    Parameters: `doing` what was attempted, `output` the tail of what Go said.
    """

    def __init__(self, doing: str, output: str) -> None:
        super().__init__(doing, output)
        self.doing = doing
        self.output = output

    def __str__(self) -> str:
        return (
            f"{self.doing}: a Go module could not be fetched. Check the network and `go env GOPROXY`, "
            f"then run it again (what was fetched is kept).\n{self.output}"
        )


class CompileError(ClusterError):
    """Go could fetch everything but failed to build a program.

    Parameters: `doing` what was attempted, `exit_code` of Go (negative: ended by that signal), `output` its
    tail.
    """

    def __init__(self, doing: str, exit_code: int, output: str) -> None:
        super().__init__(doing, exit_code, output)
        self.doing = doing
        self.exit_code = exit_code
        self.output = output

    def __str__(self) -> str:
        return f"{self.doing} failed ({_hint(self.exit_code, self.output)}).\n{self.output}"


def _hint(exit_code: int, output: str) -> str:
    if "no space left on device" in output:
        return "the disk is full: free about 4 GB for `go env GOCACHE GOMODCACHE` and run it again"
    if exit_code == -9 or "signal: killed" in output:
        return "killed, most likely for memory: about 3 GB must be free"
    if "missing go.sum entry" in output or "updates to go.mod needed" in output:
        return "the pinned module files do not fit versions.toml: run `python -m e2e.cluster pin`"
    return f"exit code {exit_code}"


class ControlPlaneError(ClusterError):
    """A control plane did not come up, or its process ended.

    Parameters: `problem` is one clause; `log_tail` the last lines of the servers' logs, possibly empty;
    `directory` where the logs are, None when it is already removed.
    """

    def __init__(self, problem: str, log_tail: str = "", directory: Path | None = None) -> None:
        super().__init__(problem, log_tail, directory)
        self.problem = problem
        self.log_tail = log_tail
        self.directory = directory

    def __str__(self) -> str:
        where = f"\nAll logs: {self.directory}" if self.directory is not None else ""
        tail = f"\n{self.log_tail}" if self.log_tail else ""
        return f"{self.problem}.{tail}{where}"


class MachineError(ClusterError):
    """The machine can't run a whole cluster, or not yet.

    Parameters: `problem` and `next_step`, one clause each.
    """

    def __init__(self, problem: str, next_step: str) -> None:
        super().__init__(problem, next_step)
        self.problem = problem
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.problem}: {self.next_step}"


class CommandError(ClusterError):
    """A program that the harness ran to completion failed.

    Parameters: `command` as it was run, `exit_code`, `output` its last lines.
    """

    def __init__(self, command: tuple[str, ...], exit_code: int, output: str) -> None:
        super().__init__(command, exit_code, output)
        self.command = command
        self.exit_code = exit_code
        self.output = output

    def __str__(self) -> str:
        return f"`{' '.join(self.command)}` ended with exit code {self.exit_code}: {self.output}"


class NotReadyError(ClusterError):
    """Something that was started did not become ready in time, or ended.

    Parameters: `what` should have become true, `details` what was seen instead (log lines, conditions).
    """

    def __init__(self, what: str, details: str = "") -> None:
        super().__init__(what, details)
        self.what = what
        self.details = details

    def __str__(self) -> str:
        return f"{self.what}: not in time" + (f"\n{self.details}" if self.details else "")
