"""docs/contexts.md tells the bounds that the code has."""

from __future__ import annotations

from pathlib import Path

from fray.job import threads

PAGE = Path(__file__).parents[2] / "docs" / "contexts.md"


def test_the_bound_of_streams_stands_in_the_docs() -> None:
    assert f"at most {threads.STREAM_ITEMS} items ahead" in PAGE.read_text()
