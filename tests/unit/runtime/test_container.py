"""What a process may use: by its affinity and by its control group, whichever is less."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fray.runtime.container import (
    available_accelerators,
    available_cpus,
    available_memory,
    is_in_memory,
    thread_limits,
)


def test_without_a_group_it_is_what_the_affinity_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 9}, raising=False)
    assert available_cpus(tmp_path) == 3


@pytest.mark.parametrize(
    ("setting", "cpus"), [("max 100000", 3), ("150000 100000", 2), ("200000 100000", 2), ("1000 100000", 1)]
)
def test_a_group_leaves_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, cpus: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 9}, raising=False)
    (tmp_path / "cpu.max").write_text(f"{setting}\n")
    assert available_cpus(tmp_path) == cpus


def test_the_memory_of_the_group_or_of_the_machine(tmp_path: Path) -> None:
    whole = available_memory(tmp_path)
    assert whole > 10**8
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory(tmp_path) == whole
    (tmp_path / "memory.max").write_text("4096\n")
    assert available_memory(tmp_path) == 4096


def test_libraries_get_as_many_threads_as_there_are_cpus_unless_somebody_chose() -> None:
    assert dict(thread_limits(4.0, {}))["OMP_NUM_THREADS"] == "4"
    assert dict(thread_limits(0.5, {}))["MKL_NUM_THREADS"] == "1"
    assert thread_limits(4.0, {"OMP_NUM_THREADS": "7"}) == ()


def test_accelerators_are_the_device_files_that_the_container_has(tmp_path: Path) -> None:
    assert available_accelerators(tmp_path) == {}
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "vfio/vfio", "vfio/0", "vfio/1", "null"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert available_accelerators(tmp_path) == {"GPU": 2.0, "TPU": 2.0}
    for number in range(4):
        (tmp_path / f"accel{number}").touch()
    assert available_accelerators(tmp_path)["TPU"] == 4.0


@pytest.mark.parametrize(("system", "found"), [("tmpfs", True), ("ext4", False)])
def test_a_folder_on_tmpfs_takes_memory(tmp_path: Path, system: str, found: bool) -> None:
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "20 1 259:999 / / rw - tmpfs none rw\n"
        f"21 1 {os.major(device)}:{os.minor(device)} / /t rw,nosuid shared:4 - {system} none rw\n"
    )
    assert is_in_memory(tmp_path, mounts) is found
    assert not is_in_memory(tmp_path, tmp_path / "missing")
