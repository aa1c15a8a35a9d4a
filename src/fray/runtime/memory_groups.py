"""Control groups that count memory, of both versions: this process's own, and new ones where they can be had.

What the files of a group say and do: cgroups(7), and `cgroup-v2` and `cgroup-v1/memory` in the kernel's
documentation.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

__all__ = ["MemoryGroup", "find_parent", "own_group"]

_MOUNT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_PREFIX = "fray-"
_HOST = f"{_PREFIX}host"
"""Where the processes of a group of version 2 go that is to have groups in it: it can't have both."""


@dataclass(frozen=True)
class MemoryGroup:
    """One control group. Its methods raise `OSError` where the kernel refuses."""

    folder: Path
    version: int

    def private_bytes(self) -> int:
        """Return the memory that its processes have for themselves; what several of them share counts once.

        Neither files in shared memory, as the store's, nor the cache of files on disk are part of it.
        """
        return _read_value(self.folder / "memory.stat", "anon" if self.version == 2 else "total_rss")

    def oom_kills(self) -> int:
        """Return how many processes the kernel has ended here for want of memory; 0 if it has no count."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        try:
            return _read_value(self.folder / name, "oom_kill")
        except OSError:  # the root of version 2 has no such file
            return 0

    def limit(self, size: int) -> None:
        """Let its processes have so many bytes together: beyond, the kernel ends one of them."""
        name = "memory.max" if self.version == 2 else "memory.limit_in_bytes"
        (self.folder / name).write_text(str(size), encoding="ascii")

    def enter(self, pid: int) -> None:
        """Put a process into it. What the process has already is still counted where it was."""
        (self.folder / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def processes(self) -> list[int]:
        """Return the pids of its processes."""
        return [int(pid) for pid in (self.folder / "cgroup.procs").read_text(encoding="ascii").split()]

    def kill(self) -> None:
        """End its processes."""
        for pid in self.processes():
            with suppress(ProcessLookupError):  # it has ended
                os.kill(pid, signal.SIGKILL)

    def new(self, name: str) -> MemoryGroup:
        """Make a group in this one."""
        made = MemoryGroup(self.folder / f"{_PREFIX}{name}", self.version)
        made.folder.mkdir()
        return made

    def remove(self) -> None:
        """Remove it with what `new` made in it, unless processes are there."""
        self.sweep()
        with suppress(OSError):
            self.folder.rmdir()

    def sweep(self) -> None:
        """Remove the groups in it that `new` made and whose processes have all ended."""
        for folder in self.folder.glob(f"{_PREFIX}*"):
            if folder.name != _HOST:
                MemoryGroup(folder, self.version).remove()


def own_group(mount: Path = _MOUNT, own: Path = _OWN) -> MemoryGroup | None:
    """Return the group that counts this process's memory; None where the system has none.

    Parameters: `mount`, where control groups are; `own`, which says in which of them this process is.
    """
    try:
        memberships = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in memberships:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            version, root = 2, mount
        elif "memory" in controllers.split(","):
            version, root = 1, mount / "memory"
        else:
            continue
        # Inside a container's own namespace, its group is mounted as the root.
        for folder in (root / PurePosixPath(path).relative_to("/"), root):
            if (folder / "memory.stat").is_file():
                return MemoryGroup(folder, version)
    return None


def find_parent(
    own: MemoryGroup, descendants: Callable[[int], list[int]], controller: str = "memory"
) -> MemoryGroup | None:
    """Return a group in which groups can be made for this process's children; None: there is none.

    Parameters: `own`, this process's group; `descendants` tells the pids of a process's children, theirs and
    so on.

    With version 1 it's this process's own. With version 2 a group has either processes or groups with limits
    in it. So it's the own one if that is the root; or the one around it, unless the own one has limits, which
    would no longer hold; or the own one after its processes have moved into a group in it, if they are all
    this process's own, as in a container.
    """
    for folder in _parents(own, descendants, controller):
        parent = MemoryGroup(folder, own.version)
        with suppress(OSError):
            parent.new(f"try-{os.getpid()}").remove()
            if os.access(folder / "cgroup.procs", os.W_OK):
                return parent
    return None


def _parents(own: MemoryGroup, descendants: Callable[[int], list[int]], controller: str) -> Iterator[Path]:
    if own.version == 1 or _has(own.folder / "cgroup.subtree_control", controller):
        yield own.folder
        return
    limits = [limit for name in ("memory.max", "cpu.max") if (limit := own.folder / name).exists()]
    around = own.folder.parent
    if all(_has(limit, "max") for limit in limits) and _has(around / "cgroup.subtree_control", controller):
        yield around
    if _has(own.folder / "cgroup.controllers", controller):
        with suppress(OSError):
            _move_down(own, {os.getpid(), *descendants(os.getpid())}, controller)
            yield own.folder


def _move_down(own: MemoryGroup, ours: set[int], controller: str) -> None:
    """Let a group have groups with limits in it. Raises `OSError` if it has processes of others."""
    inside = own.processes()
    if not ours.issuperset(inside):
        raise PermissionError(f"{own.folder} has processes of others")
    host = MemoryGroup(own.folder / _HOST, own.version)
    host.folder.mkdir(exist_ok=True)
    for pid in inside:
        with suppress(ProcessLookupError):  # it has ended
            host.enter(pid)
    (own.folder / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")


def _has(file: Path, word: str) -> bool:
    try:
        return word in file.read_text(encoding="ascii").split()
    except OSError:
        return False


def _read_value(file: Path, key: str) -> int:
    for line in file.read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0
