"""Which references a test reads."""

from __future__ import annotations

import pytest

from tests.unit.pool.objects.samples import were_read


@pytest.fixture
def read() -> list[int]:
    """The references that the test reads."""
    were_read.clear()
    return were_read
