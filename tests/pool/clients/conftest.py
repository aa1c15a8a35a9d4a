"""A pool whose head is a process of its own, as in pods: over TLS on the loopback interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pool.clients.pods import Pods, running_pods
from tests.pool.transport.certificates import write_key


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_key(tmp_path_factory.mktemp("key"))


@pytest.fixture
def pods(key: Path) -> Iterator[Pods]:
    """The head and one host with two workers."""
    with running_pods(key) as made:
        made.start_host()
        yield made
