"""How often the kernel ended a process of this container for want of memory: only its counters tell."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

__all__ = ["count_oom_kills"]


def count_oom_kills(cgroups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Return the count of OOM kills in this process's control group; 0 where the system has no such count.

    Parameters: `cgroups`, where control groups are mounted; `own`, which says where this process is in them
    (cgroups(7); `memory.events` of version 2, `memory.oom_control` of version 1).
    """
    try:
        memberships = own.read_text().splitlines()
    except OSError:
        return 0
    for line in memberships:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            folder, name = cgroups, "memory.events"
        elif "memory" in controllers.split(","):
            folder, name = cgroups / "memory", "memory.oom_control"
        else:
            continue
        count = _read_count(folder, path, name)
        if count is not None:
            return count
    return 0


def _read_count(folder: Path, path: str, name: str) -> int | None:
    # Inside a container's own namespace, its group is mounted as the root.
    for group in (folder / PurePosixPath(path).relative_to("/"), folder):
        try:
            text = (group / name).read_text()
        except OSError:
            continue
        for line in text.splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                return int(value)
    return None
