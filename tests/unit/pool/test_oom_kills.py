"""Counts of OOM kills, from control groups of both versions as they look in containers and outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from fray.runtime.pool.host.oom_kills import count_oom_kills

V2 = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"
V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"


@pytest.mark.parametrize(
    ("membership", "file", "text", "count"),
    [
        ("0::/pod/one\n", "pod/one/memory.events", V2, 2),
        ("0::/\n", "memory.events", V2, 2),
        ("0::/pod/one\n", "memory.events", V2, 2),
        ("4:memory:/job\n2:cpu,cpuacct:/job\n0::/\n", "memory/job/memory.oom_control", V1, 4),
        ("2:cpu,cpuacct:/job\n0::/\n", "memory/job/memory.oom_control", V1, 0),
        ("0::/\n", "other", "", 0),
    ],
)
def test_the_count_is_found(tmp_path: Path, membership: str, file: str, text: str, count: int) -> None:
    own = tmp_path / "own"
    own.write_text(membership)
    path = tmp_path / "cgroups" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert count_oom_kills(tmp_path / "cgroups", own) == count


def test_without_control_groups_it_is_0(tmp_path: Path) -> None:
    assert count_oom_kills(tmp_path, tmp_path / "missing") == 0
