"""Control groups of both versions: what this process's own leave it, and new ones where they can be had.

What the files of a group say and do: cgroups(7), and `cgroup-v2` and `cgroup-v1/memory` in the kernel's
documentation.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

__all__ = ["MemoryGroup", "cpu_limits", "find_parent", "memory_limits", "own_group"]

_MOUNT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_PREFIX = "fray-"
_MADE = re.compile(rf"{_PREFIX}(?P<maker>\d+)-\d+")
_PROCESSES = "cgroup.procs"


class _Names(NamedTuple):
    """What a version calls the same; `kills` and `full` are a file and the word in it, empty: all of it."""

    private: str
    usage: str
    limit: str
    swap: str
    """Where 0 keeps the group from making room below its limit by moving memory to a swap device."""
    kills: tuple[str, str]
    full: tuple[str, str]
    cpu: tuple[str, ...]
    """Where the microseconds of all CPUs in a period stand, and the length of the period."""


_NAMES = {
    1: _Names(
        private="total_rss",
        usage="memory.usage_in_bytes",
        limit="memory.limit_in_bytes",
        swap="memory.swappiness",
        kills=("memory.oom_control", "oom_kill"),
        full=("memory.failcnt", ""),
        cpu=("cpu.cfs_quota_us", "cpu.cfs_period_us"),
    ),
    2: _Names(
        private="anon",
        usage="memory.current",
        limit="memory.max",
        swap="memory.swap.max",
        kills=("memory.events", "oom_kill"),
        full=("memory.events", "oom"),
        cpu=("cpu.max",),
    ),
}
_NO_LIMIT = frozenset(("max", "-1"))
_HOST = f"{_PREFIX}host"
"""Where the processes of a group of version 2 go that is to have groups in it: it can't have both."""


@dataclass(frozen=True)
class MemoryGroup:
    """One control group. Its methods raise `OSError` where the kernel refuses."""

    folder: Path
    version: int

    def private_bytes(self) -> int:
        """Return the memory that its processes have for themselves; what several of them share counts once.

        Neither files in shared memory, as the store's, nor the cache of files on disk are part of it; nor is
        what lies on a swap device, since the kernel doesn't tell there whose it is.
        """
        return _read_value(self.folder / "memory.stat", self._names.private)

    def oom_kills(self) -> int:
        """Return how many processes the kernel has ended here for want of memory; 0 if it has no count."""
        return self._count(*self._names.kills)

    def was_full(self) -> bool:
        """Return whether the kernel has refused its processes memory because of its own limit."""
        return self._count(*self._names.full) > 0

    def allow(self, more: int) -> None:
        """Let its processes have so many bytes more than now: beyond, the kernel ends one of them."""
        with suppress(OSError):  # the kernel has no swap, and so no such file
            (self.folder / self._names.swap).write_text("0", encoding="ascii")
        now = _read_value(self.folder / self._names.usage, "")
        (self.folder / self._names.limit).write_text(str(now + more), encoding="ascii")

    def enter(self, pid: int) -> None:
        """Put a process into it. What the process has already is still counted where it was."""
        (self.folder / _PROCESSES).write_text(str(pid), encoding="ascii")

    def processes(self) -> list[int]:
        """Return the pids of its processes."""
        return _read_pids(self.folder / _PROCESSES)

    def kill(self) -> None:
        """End its processes, and those of groups in it."""
        for file in self.folder.rglob(_PROCESSES):
            for pid in _read_pids(file):
                with suppress(ProcessLookupError):  # it has ended
                    os.kill(pid, signal.SIGKILL)

    def new(self, number: int) -> MemoryGroup:
        """Make a group in this one, for a child of this process."""
        made = MemoryGroup(self.folder / f"{_PREFIX}{os.getpid()}-{number}", self.version)
        made.folder.mkdir()
        return made

    def remove(self) -> bool:
        """Remove it with the groups in it, unless processes are there; return whether it is gone."""
        for folder in self.folder.glob(f"{_PREFIX}*"):
            MemoryGroup(folder, self.version).remove()
        try:
            self.folder.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def sweep(self) -> None:
        """Remove what `new` made in it for processes that have ended, where no process is left.

        A group of a process that lives may be about to get its first one.
        """
        for folder in self.folder.glob(f"{_PREFIX}*"):
            made = _MADE.fullmatch(folder.name)
            if made and not Path("/proc", made["maker"]).exists():
                MemoryGroup(folder, self.version).remove()

    @property
    def _names(self) -> _Names:
        return _NAMES[self.version]

    def _count(self, name: str, key: str) -> int:
        try:
            return _read_value(self.folder / name, key)
        except OSError:  # the root of version 2 has no such file
            return 0


def own_group(mount: Path = _MOUNT, own: Path = _OWN) -> MemoryGroup | None:
    """Return the group that counts this process's memory; None where the system has none.

    Parameters: `mount`, where control groups are; `own`, which says in which of them this process is.
    """
    for folder, version in _own_folders("memory", mount, own):
        if (folder / "memory.stat").is_file():
            return MemoryGroup(folder, version)
    return None


def memory_limits(mount: Path = _MOUNT, own: Path = _OWN) -> Iterator[int]:
    """Give the limits, in bytes, of this process's group and of those around it; those without one give none.

    Version 1 without a limit tells more than any machine has. Parameters: as of `own_group`.
    """
    for folder, version in _own_folders("memory", mount, own):
        with suppress(OSError):
            limit = (folder / _NAMES[version].limit).read_text(encoding="ascii").strip()
            if limit not in _NO_LIMIT:
                yield int(limit)


def cpu_limits(mount: Path = _MOUNT, own: Path = _OWN) -> Iterator[float]:
    """Give the CPUs that this process's group and those around it allow; those without a limit give none.

    Parameters: as of `own_group`.
    """
    for folder, version in _own_folders("cpu", mount, own):
        with suppress(OSError):
            texts = [(folder / name).read_text(encoding="ascii") for name in _NAMES[version].cpu]
            quota, period = " ".join(texts).split()
            if quota not in _NO_LIMIT:
                yield int(quota) / int(period)


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
            parent.new(0).remove()
            if os.access(folder / _PROCESSES, os.W_OK):
                return parent
    return None


def _own_folders(controller: str, mount: Path, own: Path) -> Iterator[tuple[Path, int]]:
    """Give where this process's group of a controller may be, and those around it, each with its version."""
    try:
        memberships = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in memberships:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            version, root = 2, mount
        elif controller in controllers.split(","):
            version, root = 1, mount / controller
        else:
            continue
        # Inside a container's own namespace, its group is mounted as the root.
        group = root / PurePosixPath(path).relative_to("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                yield folder, version


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


def _read_pids(file: Path) -> list[int]:
    return [int(pid) for pid in file.read_text(encoding="ascii").split()]


def _has(file: Path, word: str) -> bool:
    try:
        return word in file.read_text(encoding="ascii").split()
    except OSError:
        return False


def _read_value(file: Path, key: str) -> int:
    """Return the number after a word, 0 if there is none; an empty word is before a number that is alone."""
    for line in file.read_text(encoding="ascii").splitlines():
        name, _, value = line.rpartition(" ")
        if name == key:
            return int(value)
    return 0
