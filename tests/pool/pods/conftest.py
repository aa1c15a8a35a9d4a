"""An attempt with a key of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pool.pods.attempt import Attempt, running_attempt
from tests.pool.transport.certificates import write_key


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_key(tmp_path_factory.mktemp("key"))


@pytest.fixture
def attempt(key: Path, tmp_path: Path) -> Iterator[Attempt]:
    with running_attempt(key, tmp_path) as made:
        yield made
