"""The digits example, launched from Python on this machine: a short training, from its closure to its end.

By the README's command; the one beside it, for a cluster, is run by `e2e/test_digits_from_python.py`.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.harness import Fray

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "digits"
SECONDS = 280.0


@pytest.fixture
def example(fray: Fray) -> Path:
    """A copy of the example, since it writes into its own folder."""
    folder = fray.folder / "digits"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("output", "__pycache__"))
    return folder


def start(fray: Fray, example: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start the launching program elsewhere than in its folder; it is ended with the test."""
    (command,) = re.findall(
        r"^(python .*launch\.py.*)$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE
    )
    _, program, *options = shlex.split(command, comments=True)
    assert ROOT / program == EXAMPLE / "launch.py"
    process = subprocess.Popen(
        [sys.executable, str(example / "launch.py"), *options, *arguments],
        env=fray.environ(),
        cwd=fray.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    fray.started.append(process)
    return process


def test_the_gang_trains_and_its_accuracy_comes_back(fray: Fray, example: Path) -> None:
    process = start(fray, example, "--epochs", "2", "--batch-size", "64")
    out, err = (stream.decode() for stream in process.communicate(timeout=SECONDS))
    assert process.returncode == 0, (out, err)
    for rank, place in enumerate(["0/0", "0/1", "1/0", "1/1"]):
        assert f"[{place} 1] rank {rank} of 4: " in out
    assert re.search(r"^\[0/0 1\] epoch 2/2 loss ", out, re.MULTILINE)
    printed = re.search(r"^\[0/0 1\] test accuracy (\d\.\d+)$", out, re.MULTILINE)
    assert printed is not None, out
    assert float(printed[1]) > 0.5
    assert out.splitlines()[-1] == f"digits returned accuracy {printed[1]}"
    assert (example / "output" / "loss.png").is_file()


def test_wrong_options_are_told_before_anything_starts(fray: Fray, example: Path) -> None:
    process = start(fray, example, "--epochs", "0")
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 2
    assert b"--epochs" in err
    assert not fray.state.exists()
