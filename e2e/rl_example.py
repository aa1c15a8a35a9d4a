"""The example of reinforcement learning, whatever it runs on: how it is started, and what it must print."""

from __future__ import annotations

import re
import sys
from pathlib import Path

__all__ = ["FOLDER", "build_command", "check_learning"]

FOLDER = Path(__file__).parents[1] / "examples" / "rl"
ROUNDS = 6


def build_command(curve: Path) -> list[str]:
    """The example as a program that draws its rewards."""
    return [sys.executable, "rl.py", "--rounds", str(ROUNDS), "--curve", str(curve)]


def check_learning(output: str, curve: Path) -> None:
    """Assert that all episodes were counted, that it learnt, and that it drew that."""
    found = re.search(r"(\d+) episodes, mean reward (\S+) -> (\S+)", output)
    assert found is not None
    assert int(found[1]) == ROUNDS * 24
    assert float(found[3]) > float(found[2])
    assert "polyline" in curve.read_text(encoding="utf-8")
