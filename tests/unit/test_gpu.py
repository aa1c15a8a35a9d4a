"""`make gpu` on a machine without a GPU; docs/testing.md tells what it did on one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fray.wire.validation import validate_manifest
from tools.gpu import EXIT_NO_GPU, ROOT, SHARED, build_job, find_gpu


def write_program(folder: Path, text: str) -> None:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (None, "nvidia-smi isn't installed"),
        ("echo NVIDIA-SMI has failed; exit 9", "nvidia-smi says: NVIDIA-SMI has failed"),
        ("true", "nvidia-smi says: nothing"),
    ],
)
def test_without_a_gpu_it_says_so_and_what_to_do(tmp_path: Path, program: str | None, told: str) -> None:
    if program is not None:
        write_program(tmp_path, program)
    ran = subprocess.run(
        [sys.executable, ROOT / "tools/gpu.py"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (EXIT_NO_GPU, "")
    assert told in ran.stderr
    assert "Run it on a machine with one" in ran.stderr


def test_a_gpu_is_found_by_what_nvidia_smi_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(tmp_path, "echo 'NVIDIA L4, 23034 MiB, 550.54.15'")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_gpu() == ("NVIDIA L4, 23034 MiB, 550.54.15", "")


def test_its_jobs_are_legal() -> None:
    job = validate_manifest(build_job("shared", ["python", "gpu.py"], SHARED, 2))
    assert {each.name for each in job.spec.environment.env} == set(SHARED)


def test_its_pool_gives_the_gpu_to_the_task_that_holds_it() -> None:
    command = [sys.executable, str(ROOT / "tools/gpu.py"), "pool"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.stdout == "a task that holds the GPU sees '0', another one ''\n", ran
