"""What a process may use: by its affinity and by its control group, whichever is less."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fray.runtime import container
from fray.runtime.container import (
    available_accelerators,
    available_cpus,
    available_memory,
    is_in_memory,
    thread_limits,
)


@pytest.mark.parametrize(
    ("limits", "cpus"), [([], 3), ([4.0], 3), ([2.0, 1.5], 2), ([2.5, 2.0], 2), ([0.01], 1)]
)
def test_cpus_are_what_affinity_and_groups_leave(
    monkeypatch: pytest.MonkeyPatch, limits: list[float], cpus: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 9}, raising=False)
    monkeypatch.setattr(container, "cpu_limits", lambda: iter(limits))
    assert available_cpus() == cpus


def test_memory_is_that_of_the_machine_or_of_the_smallest_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "memory_limits", lambda: iter(()))
    whole = available_memory()
    assert whole > 10**8
    monkeypatch.setattr(container, "memory_limits", lambda: iter((2**63, whole + 1)))
    assert available_memory() == whole
    monkeypatch.setattr(container, "memory_limits", lambda: iter((8192, 4096, 2**63)))
    assert available_memory() == 4096


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
