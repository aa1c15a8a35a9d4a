"""What a process and its pool have: compared before and after, it shows what was left behind."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fray.runtime.pool.host.processes import children

__all__ = ["Belongings", "belongings", "marked_processes"]


@dataclass(frozen=True)
class Belongings:
    """What this process has now."""

    threads: frozenset[str]
    descriptors: Counter[str]
    """What they lead to, without the numbers of sockets and pipes."""
    children: frozenset[int]
    files: frozenset[str]
    """In the directories that were asked about."""

    def left_since(self, before: Belongings) -> list[str]:
        """Return in words what is here and wasn't before."""
        return [
            *(f"thread {name}" for name in self.threads - before.threads),
            *(f"descriptor of {target}" for target in self.descriptors - before.descriptors),
            *(f"process {pid}: {_command(pid)}" for pid in self.children - before.children),
            *(f"file {path}" for path in self.files - before.files),
        ]


def belongings(*directories: Path) -> Belongings:
    """Take stock of this process, and of all files below `directories`."""
    return Belongings(
        frozenset(f"{thread.name} ({thread.ident})" for thread in threading.enumerate()),
        Counter(_descriptors()),
        frozenset(children(os.getpid())),
        frozenset(str(path) for each in directories for path in each.rglob("*")),
    )


def _descriptors() -> list[str]:
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of this very listing
            found.append(str(link.readlink()).partition(":[")[0])
    return found


def marked_processes(mark: str) -> list[int]:
    """Return the living processes, other than this one, that have `mark` in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(entry.name) != os.getpid() and mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return "gone"
