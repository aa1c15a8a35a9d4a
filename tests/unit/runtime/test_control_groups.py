"""Control groups of both versions, as they look in containers and outside, and where groups can be made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fray.runtime.control_groups import MemoryGroup, cpu_limits, find_parent, memory_limits, own_group

V2 = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"
V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"
STAT_V2 = "anon 8192\nfile 4096\nshmem 100\n"
STAT_V1 = "cache 4096\nrss 1\ntotal_cache 4096\ntotal_rss 8192\n"


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("membership", "folder", "version"),
    [
        ("0::/pod/one\n", "pod/one", 2),
        ("0::/\n", ".", 2),
        ("0::/pod/one\n", ".", 2),
        ("4:memory:/job\n2:cpu,cpuacct:/job\n0::/\n", "memory/job", 1),
    ],
)
def test_the_own_group_is_found(tmp_path: Path, membership: str, folder: str, version: int) -> None:
    own = tmp_path / "own"
    own.write_text(membership)
    mount = tmp_path / "cgroups"
    stat, kills = (STAT_V2, V2) if version == 2 else (STAT_V1, V1)
    write(mount / folder, memory__stat=stat, memory__events=kills, memory__oom_control=kills)
    group = own_group(mount, own)
    assert group == MemoryGroup(mount / folder, version)
    assert group.private_bytes() == 8192
    assert group.oom_kills() == (2 if version == 2 else 4)


def test_there_may_be_no_group(tmp_path: Path) -> None:
    own = tmp_path / "own"
    assert own_group(tmp_path, own) is None
    own.write_text("2:cpu,cpuacct:/job\n0::/\n")
    assert own_group(tmp_path, own) is None


V1_MEMBERSHIP = "4:memory:/pod/one\n2:cpu,cpuacct:/pod/one\n1:name=systemd:/pod/one\n0::/pod/one\n"
V1_NO_LIMIT = "9223372036854771712\n"
"""The largest number of whole pages in 64 bits."""


@pytest.mark.parametrize(
    ("membership", "files", "cpus", "memory"),
    [
        ("0::/pod/one\n", {}, [], []),
        ("0::/\n", {"cpu__max": "max 100000\n", "memory__max": "max\n"}, [], []),
        ("0::/\n", {"cpu__max": "150000 100000\n", "memory__max": "4096\n"}, [1.5], [4096]),
        ("0::/pod/one\n", {"cpu__max": "150000 100000\n", "memory__max": "4096\n"}, [1.5], [4096]),
        (
            "0::/pod/one\n",
            {
                "pod/one/cpu__max": "max 100000\n",
                "pod/one/memory__max": "4096\n",
                "pod/cpu__max": "50000 100000\n",
                "pod/memory__max": "8192\n",
            },
            [0.5],
            [4096, 8192],
        ),
        (
            V1_MEMBERSHIP,
            {
                "cpu/cpu__cfs_quota_us": "-1\n",
                "cpu/cpu__cfs_period_us": "100000\n",
                "memory/memory__limit_in_bytes": V1_NO_LIMIT,
            },
            [],
            [int(V1_NO_LIMIT)],
        ),
        (
            V1_MEMBERSHIP,
            {
                "cpu/cpu__cfs_quota_us": "150000\n",
                "cpu/cpu__cfs_period_us": "100000\n",
                "memory/memory__limit_in_bytes": "4096\n",
            },
            [1.5],
            [4096],
        ),
        (
            V1_MEMBERSHIP,
            {
                "cpu/pod/one/cpu__cfs_quota_us": "20000\n",
                "cpu/pod/one/cpu__cfs_period_us": "10000\n",
                "cpu/pod/cpu__cfs_quota_us": "300000\n",
                "cpu/pod/cpu__cfs_period_us": "100000\n",
                "memory/pod/one/memory__limit_in_bytes": "4096\n",
                "memory/memory__limit_in_bytes": V1_NO_LIMIT,
            },
            [2.0, 3.0],
            [4096, int(V1_NO_LIMIT)],
        ),
    ],
)
def test_limits_of_the_own_group_and_of_those_around_it_are_read(
    tmp_path: Path, membership: str, files: dict[str, str], cpus: list[float], memory: list[int]
) -> None:
    own = tmp_path / "own"
    own.write_text(membership)
    mount = write(tmp_path / "cgroups", **files)
    assert list(cpu_limits(mount, own)) == cpus
    assert list(memory_limits(mount, own)) == memory


def test_without_control_groups_nothing_is_limited(tmp_path: Path) -> None:
    assert not [*cpu_limits(tmp_path, tmp_path / "own"), *memory_limits(tmp_path, tmp_path / "own")]


def test_a_root_has_no_count_of_kills(tmp_path: Path) -> None:
    assert MemoryGroup(tmp_path, 2).oom_kills() == 0


def no_children(_: int) -> list[int]:
    return []


def group_of_version_2(folder: Path, inside: str, **files: str) -> MemoryGroup:
    standard = {
        "memory__stat": STAT_V2,
        "memory__max": "max\n",
        "cpu__max": "max 100000\n",
        "cgroup__subtree_control": "\n",
        "cgroup__controllers": "cpu memory pids\n",
        "cgroup__procs": inside,
    }
    write(folder, **{**standard, **files})
    return MemoryGroup(folder, 2)


def test_with_version_1_groups_are_made_in_the_own_one(tmp_path: Path) -> None:
    own = MemoryGroup(write(tmp_path / "job", cgroup__procs="1\n"), 1)
    assert find_parent(own, no_children) == own
    assert not [entry for entry in own.folder.iterdir() if entry.is_dir()]


def test_a_root_of_version_2_has_groups_beside_its_processes(tmp_path: Path) -> None:
    own = group_of_version_2(tmp_path, "1\n2\n", cgroup__subtree_control="cpu memory\n")
    assert find_parent(own, no_children) == own


def test_a_group_without_limits_leaves_its_place_to_the_one_around_it(tmp_path: Path) -> None:
    around = group_of_version_2(tmp_path, "", cgroup__subtree_control="memory pids\n")
    own = group_of_version_2(tmp_path / "shell", "1\n2\n")
    (own.folder / "cpu.max").unlink()  # as where that controller isn't in use
    assert find_parent(own, no_children) == around


@pytest.mark.parametrize("limit", [{"memory__max": "1000000\n"}, {"cpu__max": "50000 100000\n"}])
def test_limits_are_kept_by_moving_down(tmp_path: Path, limit: dict[str, str]) -> None:
    group_of_version_2(tmp_path, "", cgroup__subtree_control="memory pids\n")
    child = os.getpid() + 1
    own = group_of_version_2(tmp_path / "container", f"{os.getpid()}\n{child}\n", **limit)
    host = own.folder / "fray-host"
    host.mkdir()
    assert find_parent(own, lambda _: [child]) == own
    assert (own.folder / "cgroup.subtree_control").read_text() == "+memory"
    assert (host / "cgroup.procs").read_text() == str(child)  # a plain file keeps the last one
    own.sweep()
    assert host.is_dir()


def test_processes_of_others_are_not_moved(tmp_path: Path) -> None:
    own = group_of_version_2(tmp_path, f"{os.getpid()}\n1\n", memory__max="1000000\n")
    assert find_parent(own, no_children) is None
    assert (own.folder / "cgroup.subtree_control").read_text() == "\n"


def test_where_nothing_may_be_written_no_group_is_made(tmp_path: Path) -> None:
    assert find_parent(MemoryGroup(tmp_path / "missing", 1), no_children) is None
    assert find_parent(MemoryGroup(tmp_path / "missing", 2), no_children) is None


def test_groups_of_processes_that_have_ended_are_swept(tmp_path: Path) -> None:
    parent = MemoryGroup(tmp_path, 1)
    starting = parent.new(1)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    left, used = tmp_path / f"fray-{ended.pid}-1", tmp_path / f"fray-{ended.pid}-2"
    theirs = tmp_path / "fray-1-1"
    other = tmp_path / "fray-batch"
    for folder in (left, left / "fray-9-1", used, theirs, other):  # one in another: of a pool in a task
        folder.mkdir()
    (used / "process").touch()  # as in the kernel, a group in use can't be removed
    parent.sweep()
    assert sorted(tmp_path.iterdir()) == sorted([starting.folder, used, theirs, other])
    assert starting.remove()
    assert not MemoryGroup(used, 1).remove()


def test_the_limit_that_was_met_is_told(tmp_path: Path) -> None:
    group = MemoryGroup(tmp_path, 2)
    assert not group.was_full()
    write(tmp_path, memory__events=V2)
    assert group.was_full()
    group = MemoryGroup(write(tmp_path, memory__failcnt="0\n"), 1)
    assert not group.was_full()
    write(tmp_path, memory__failcnt="3\n")
    assert group.was_full()


@pytest.mark.parametrize(
    ("version", "usage", "limit", "swap"),
    [
        (1, "memory.usage_in_bytes", "memory.limit_in_bytes", "memory.swappiness"),
        (2, "memory.current", "memory.max", "memory.swap.max"),
    ],
)
def test_what_is_allowed_comes_on_top_of_what_there_is_and_not_on_a_swap_device(
    tmp_path: Path, version: int, usage: str, limit: str, swap: str
) -> None:
    (tmp_path / usage).write_text("1000\n")
    MemoryGroup(tmp_path, version).allow(234)
    assert (tmp_path / limit).read_text() == "1234"
    assert (tmp_path / swap).read_text() == "0"
