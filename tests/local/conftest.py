"""One state directory for each test, and the promise that no test leaves a process behind."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.cluster import LocalCluster
from tests.local.harness import Fray


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """Jobs and actors of this process, with a state directory of their own."""
    monkeypatch.setenv("FRAY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    with LocalCluster() as made:
        yield made
        for actor in made.get_actors():
            made.delete_actor(actor)


@pytest.fixture
def fray(tmp_path: Path) -> Iterator[Fray]:
    command = Fray(tmp_path, uuid.uuid4().hex)
    yield command
    left = command.clean_up()
    assert not left, f"the test left processes behind: {left}"
