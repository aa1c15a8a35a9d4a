"""`fray accelerators` lists what jobs can ask for, and shells complete names of accelerators and jobs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fray.accelerators import legal_gpu_counts, legal_gpu_types, legal_tpu_names
from fray.cli import clusters
from fray.cli.accelerators import HEAD, find_rows, show_accelerators
from fray.cli.app import app
from fray.cli.completion import complete_job
from fray.cli.job_options import complete_gpu, complete_tpu
from fray.cluster.local.store import StateDirectory
from fray.wire.frayjob import FrayJob
from tests.unit.cli.test_screen import Recorder
from tests.unit.cluster.local_jobs import frayjob


class Screen(Recorder):
    """A terminal that is so wide, or a pipe."""

    def __init__(self, width: int | None) -> None:
        super().__init__(terminal=width is not None)
        self._width = width

    @property
    def width(self) -> int | None:
        return self._width


def test_every_type_is_listed_once() -> None:
    gpus = [f"{name}:{count}" for name in legal_gpu_types() for count in legal_gpu_counts(name)]
    assert [row.option for row in find_rows("")] == [*legal_tpu_names(), *gpus]


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("v5p-16", ("v5p-16", "2", "8", "ct5p-hightpu-4t", "2x2x2", "208", "448 GB", "3.67 P")),
        ("V5E-16", ("v5litepod-16", "4", "16", "ct5lp-hightpu-4t", "4x4", "112", "192 GB", "3.15 P")),
        ("a3-highgpu-8g", ("nvidia-h100-80gb:8", "1", "8", "a3-highgpu-8g", "-", "208", "1872 GB", "7.92 P")),
        ("A100-40GB", ("nvidia-tesla-a100:1", "1", "1", "a2-highgpu-1g", "-", "12", "85 GB", "312 T")),
        ("tesla-t4", ("nvidia-tesla-t4:1", "1", "1", "n1-*", "-", "?", "?", "65 T (fp16)")),
        ("tpu7-2", ("tpu7-2", "1", "1", "tpu7-standard-1t", "1x1x1", "?", "?", "2.31 P")),
        ("nvidia-l4", ("nvidia-l4:1", "1", "1", "g2-standard-4, ...", "-", "4", "16 GB", "242 T")),
    ],
)
def test_a_filter_leaves_what_has_it_in_its_name_machine_or_topology(
    text: str, cells: tuple[str, ...]
) -> None:
    assert find_rows(text)[0].cells == cells


def test_a_name_that_several_types_have_leaves_them_all() -> None:
    assert {row.spellings[0] for row in find_rows("A100")} == {"nvidia-tesla-a100", "nvidia-a100-80gb"}


@pytest.mark.parametrize("width", [40, 60, 80, 100, None])
def test_the_table_fits_the_terminal_and_keeps_whole_names(width: int | None) -> None:
    output = Screen(width)
    show_accelerators("h100", output=output, notes=Recorder(terminal=False))
    lines = output.written.getvalue().splitlines()
    assert max(map(len, lines)) <= (width or 1000)
    assert [line.split()[0] for line in lines] == [HEAD[0], *(row.option for row in find_rows("h100"))]
    if width is None:
        assert lines[0].split() == list(HEAD)


def test_nothing_found_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    app(["accelerators", "--filter", "abacus"], standalone_mode=False)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "no accelerator has 'abacus' in its name, machine type or topology\n")


def test_names_of_accelerators_are_completed() -> None:
    assert complete_tpu("v5litepod-6") == ["v5litepod-64"]
    assert "v5e-16" in complete_tpu("v5e-")
    assert complete_tpu("abacus") == []
    assert set(complete_tpu("")) > set(legal_tpu_names())
    assert complete_gpu("H100") == ["H100-80gb", "H100-mega-80gb"]
    assert complete_gpu("nvidia-h2") == ["nvidia-h200-141gb"]
    assert complete_gpu("H100:") == ["H100:1", "H100:2", "H100:4", "H100:8"]
    assert complete_gpu("abacus:") == []


def complete(line: str, **environ: str) -> tuple[list[str], set[str]]:
    """Return what bash is offered behind a line, and the top-level modules that this loads."""
    program = (
        "import atexit, sys; atexit.register(lambda: sys.stderr.write('\\n'.join(sys.modules)));"
        "from fray.cli.app import app; app(prog_name='fray')"
    )
    asked = {"_FRAY_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, **environ, **asked}
    )
    return done.stdout.split(), {name.partition(".")[0] for name in done.stderr.splitlines()}


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("fray run --tpu v5p-1", "v5p-16"),
        ("fray explain --tpu v4-8", "v4-8"),
        ("fray run --gpu l", "l4"),
        ("fray run --replicas 2 --gpu H100:", "H100:1"),
    ],
)
def test_shells_complete_accelerators_without_loading_anything_heavy(line: str, first: str) -> None:
    offered, loaded = complete(line)
    assert offered[0] == first
    # pydantic and rich are loaded by typer's own completion
    assert not loaded & {"aiohttp", "asyncio", "jax", "kubernetes", "yaml"}


@pytest.mark.parametrize("command", ["status", "logs", "stop", "delete", "wait", "explain"])
def test_shells_complete_names_of_jobs(command: str, tmp_path: Path) -> None:
    folder = StateDirectory(tmp_path).job("train")
    folder.create()
    job = frayjob(name="train")
    folder.write(job)
    line = f"fray {command} --cluster local t"
    offered, _ = complete(
        line, FRAY_STATE_DIR=str(tmp_path), FRAY_CLUSTER_SPEC="k8s?context=none-of-that-name"
    )
    assert offered == ["train"]


class SilentCluster:
    """A cluster that doesn't answer before it is allowed to."""

    def __init__(self) -> None:
        self.allowed = threading.Event()

    def get_all(self) -> list[FrayJob]:
        self.allowed.wait(60)
        return []


def test_a_silent_cluster_completes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = SilentCluster()
    monkeypatch.setattr(clusters, "open_cluster", lambda *_, **__: silent)
    assert complete_job("t", cluster="k8s", namespace=None, environ={}, patience=0.05) == []
    silent.allowed.set()


@pytest.mark.parametrize("spec", ["nonsense", "k8s?context=none-of-that-name"])
def test_a_cluster_that_cannot_be_asked_completes_nothing(spec: str) -> None:
    assert complete_job("t", cluster=spec, namespace=None, environ={"KUBECONFIG": "/nowhere"}) == []
