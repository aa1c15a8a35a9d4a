"""The control groups of a cluster: what belongs to it, found and ended without any list of process ids.

Every process of the cluster is started inside `fray/...`, and children stay where they are born. So a run
that died half-way can be cleaned up by the next, and no process of anybody else can be hit. Works on cgroup
v1 (one hierarchy per controller) and on v2 (a single one).
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from pathlib import Path

from e2e.cluster.command import await_condition
from e2e.cluster.errors import MachineError

__all__ = [
    "create_daemon_group",
    "create_pod_group",
    "kill_group",
    "pids_in",
    "pids_in_pod",
    "pod_group",
    "remove_all",
]

_MOUNT = Path("/sys/fs/cgroup")
_ROOT = "fray"
_KILL_SECONDS = 120.0

# cgroup v1: those that the kubelet looks for under its cgroupRoot.
_POD_CONTROLLERS = ("systemd", "pids", "cpu", "cpuacct", "cpuset", "memory", "hugetlb")
# The hierarchy that daemons are told apart by; it limits nothing.
_DAEMON_CONTROLLER = "pids"


def _is_unified() -> bool:
    return (_MOUNT / "cgroup.controllers").exists()


def pod_group(host: str) -> str:
    """The kubelet's cgroupRoot on a host."""
    return f"/{_ROOT}/pods/{host}"


def create_pod_group(host: str) -> None:
    """Make the kubelet's cgroupRoot for a host under every controller that it checks."""
    for controller in ("",) if _is_unified() else _POD_CONTROLLERS:
        hierarchy = _MOUNT / controller
        if hierarchy.is_dir():
            _create(hierarchy, pod_group(host))


def create_daemon_group(host: str, daemon: str) -> Path:
    """Make the group of one daemon; a process joins by writing its id to `cgroup.procs` there."""
    return _create(_daemon_hierarchy(), f"/{_ROOT}/daemons/{host}/{daemon}")


def pids_in(host: str, daemon: str) -> list[int]:
    """Processes in the group of a daemon: itself and what it started, pods excepted."""
    return _pids(_daemon_hierarchy() / _ROOT / "daemons" / host / daemon)


def pids_in_pod(host: str, uid: str) -> list[int]:
    """Processes of all containers of a pod on a host; none when it isn't there."""
    # Groups of other pods may vanish during this walk, which takes them as empty.
    walk = os.walk(_daemon_hierarchy() / _ROOT / "pods" / host)
    groups = [Path(folder) / f"pod{uid}" for folder, names, _ in walk if f"pod{uid}" in names]
    return [pid for group in groups for pid in _pids(group)]


def kill_group(host: str, daemon: str | None = None) -> None:
    """End, at once, everything in one daemon's group, or everything on a host including its pods."""
    base = _daemon_hierarchy() / _ROOT
    groups = [base / "daemons" / host / daemon] if daemon else [base / "daemons" / host, base / "pods" / host]
    _kill(groups)


def remove_all() -> None:
    """End every process of the cluster and remove all its groups; harmless when there are none."""
    _kill([_daemon_hierarchy() / _ROOT])
    hierarchies = [_MOUNT] if _is_unified() else [path for path in _MOUNT.iterdir() if not path.is_symlink()]
    for hierarchy in hierarchies:
        top = hierarchy / _ROOT
        # The kernel keeps a group for a moment after its last process is gone.
        await_condition(
            f"control group {top} is removed", functools.partial(_try_remove, top), timeout=_KILL_SECONDS
        )


def _daemon_hierarchy() -> Path:
    return _MOUNT if _is_unified() else _MOUNT / _DAEMON_CONTROLLER


def _create(hierarchy: Path, group: str) -> Path:
    path = hierarchy
    for name in group.strip("/").split("/"):
        if _is_unified():
            _enable_controllers(path)
        child = path / name
        child.mkdir(exist_ok=True)
        # v1: an empty cpuset takes no process, and a new group does not inherit.
        for setting in ("cpuset.cpus", "cpuset.mems"):
            source, target = path / setting, child / setting
            if not _is_unified() and target.exists() and not target.read_text().strip():
                target.write_text(source.read_text())
        path = child
    return path


def _enable_controllers(path: Path) -> None:
    """v2: children have only the controllers that their parent hands down."""
    offered = (path / "cgroup.controllers").read_text().split()
    enabled = (path / "cgroup.subtree_control").read_text().split()
    missing = [f"+{name}" for name in offered if name not in enabled]
    if not missing:
        return
    try:
        (path / "cgroup.subtree_control").write_text(" ".join(missing))
    except OSError as error:
        raise MachineError(
            f"control group {path} can't hand down {' '.join(missing)} ({error.strerror})",
            "move the processes that are directly in it into a group of their own",
        ) from error


def _groups_below(top: Path) -> list[Path]:
    """`top` and all groups in it, the deepest first."""
    return [Path(folder) for folder, _, _ in os.walk(top, topdown=False)]


def _pids(top: Path) -> list[int]:
    found: list[int] = []
    for group in _groups_below(top):
        with contextlib.suppress(OSError):  # removed by now, or a threaded group
            found += [int(line) for line in (group / "cgroup.procs").read_text().split()]
    return found


def _kill(groups: list[Path]) -> None:
    def is_empty() -> bool:
        # Again and again: a process may fork between the reading and the signal.
        pids = [pid for group in groups for pid in _pids(group)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    names = ", ".join(map(str, groups))
    await_condition(f"all processes in {names} have ended", is_empty, timeout=_KILL_SECONDS)


def _try_remove(top: Path) -> bool:
    for group in _groups_below(top):
        with contextlib.suppress(OSError):  # busy
            group.rmdir()
    return not top.exists()
