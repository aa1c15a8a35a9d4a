"""The queues under test: one behaviour suite runs on each of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import pytest

from fray.queue import FileQueue, HttpQueueServer, MemoryQueue, Queue
from tests.queue.clocks import Clock

KINDS = ("memory", "file", "object", "http")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def object_url() -> Iterator[str]:
    """A place in fsspec's memory, emptied afterwards: its file system is one for the process."""
    root = f"queue-{uuid.uuid4().hex}"
    yield f"memory://{root}"
    files = fsspec.filesystem("memory")
    if files.exists(f"/{root}"):
        files.rm(f"/{root}", recursive=True)


@pytest.fixture
def server(clock: Clock) -> Iterator[HttpQueueServer]:
    with HttpQueueServer(port=0, clock=clock) as running:
        yield running


@pytest.fixture(params=KINDS)
def queue(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Queue[Any]:
    makers: dict[str, Callable[[], Queue[Any]]] = {
        "memory": lambda: MemoryQueue(clock=clock),
        "file": lambda: FileQueue(tmp_path / "queue", clock=clock),
        "object": lambda: FileQueue(request.getfixturevalue("object_url"), clock=clock),
        "http": lambda: request.getfixturevalue("server").new_queue("q"),
    }
    return makers[request.param]()
