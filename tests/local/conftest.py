"""One state directory for each test, and the promise that no test leaves a process behind."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.harness import Fray


@pytest.fixture
def fray(tmp_path: Path) -> Iterator[Fray]:
    command = Fray(tmp_path, uuid.uuid4().hex)
    yield command
    left = command.clean_up()
    assert not left, f"the test left processes behind: {left}"
