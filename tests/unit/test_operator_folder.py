"""The folder `operator/` must never hide the standard library's module of that name."""

import operator
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_this_session_has_the_standard_module() -> None:
    assert sys.modules["operator"] is operator
    assert operator.itemgetter(1)([0, 7]) == 7


def test_the_folder_holds_neither_modules_nor_tests() -> None:
    folder = ROOT / "operator"
    assert list(folder.glob("*.py")) == []
    assert [*folder.rglob("test_*.py"), *folder.rglob("conftest.py")] == []


def test_no_other_folder_has_that_name() -> None:
    assert [p for top in ("src", "tests", "e2e") for p in (ROOT / top).rglob("operator") if p.is_dir()] == []


@pytest.mark.parametrize("flags", [[], ["-S"]])
def test_an_interpreter_started_at_the_root_has_it_too(flags: list[str]) -> None:
    code = "import operator, collections; operator.itemgetter"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, *flags, "-c", code], cwd=ROOT, env=environment, check=True)
