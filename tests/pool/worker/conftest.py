"""A pool of one host with a scripted head, and the promise that no test leaves a process behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.pool.worker.scripted_head import Pool, make_pool


@pytest.fixture
def pool() -> Iterator[Pool]:
    with make_pool() as made:
        yield made
