"""A host's store in directories of its own, with room to spare."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.runtime.pool.objects.directories import OwnedStore, create_store
from fray.runtime.pool.objects.store import HostStore


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[OwnedStore]:
    (tmp_path / "shared").mkdir()
    (tmp_path / "disk").mkdir()
    made = create_store(limit=10_000_000, spill=tmp_path / "disk", shared_memory=tmp_path / "shared")
    yield made
    made.close()


@pytest.fixture
def store(owned: OwnedStore) -> HostStore:
    return owned.store
