"""Pools of this machine, shut down at the end of each test; gates are open again by then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fray.job import JobContext
from fray.job.pool import start_pool
from tests.behaviour.gates import Gate, Signal


@pytest.fixture
def make_pool() -> Iterator[Callable[[int], JobContext]]:
    made: list[JobContext] = []

    def make(workers: int) -> JobContext:
        made.append(start_pool(workers))
        return made[-1]

    yield make
    for context in made:
        context.shutdown()


@pytest.fixture
def gate(tmp_path: Path, make_pool: Callable[[int], JobContext]) -> Iterator[Gate]:
    made = Gate(tmp_path / "gate")
    yield made
    made.open()


@pytest.fixture
def signal(tmp_path: Path) -> Signal:
    return Signal(tmp_path / "signal")
