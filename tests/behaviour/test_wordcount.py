"""The word count example, as a user starts it: the same counts on every engine, with one word changed."""

from __future__ import annotations

import email
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "wordcount" / "wordcount.py"
PATIENCE = 280


def count(context: str) -> str:
    """Return what the program prints below its progress, without the time that it took."""
    words = ["--context", context, "--workers", "2", "--root", str(Path(email.__file__).parent)]
    program = [sys.executable, str(EXAMPLE), *words]
    ended = subprocess.run(program, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    printed = ended.stdout
    table, _, seconds = printed[printed.index(" word ") :].rpartition(" files: ")
    assert seconds.endswith(" s\n")
    return table


@pytest.mark.parametrize("context", ["pool", "dask", "ray"])
def test_the_example_counts_the_same_in_every_context(context: str) -> None:
    assert count(context) == count("sync")
