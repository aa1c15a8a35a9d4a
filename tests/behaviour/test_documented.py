"""docs/contexts.md and the suite tell the same differences."""

from __future__ import annotations

from pathlib import Path

from fray.job import threads
from tests.behaviour.contexts import CONTEXTS, labels

PAGE = Path(__file__).parents[2] / "docs" / "contexts.md"


def test_the_table_of_the_docs_is_that_of_the_suite() -> None:
    section = PAGE.read_text().partition("## What differs\n")[2]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    words = {True: "yes", False: "no"}
    expected = [
        f"| | {' | '.join(CONTEXTS)} |",
        f"|{'---|' * (len(CONTEXTS) + 1)}",
        *(
            f"| {label} | {' | '.join(words[getattr(traits, name)] for traits in CONTEXTS.values())} |"
            for name, label in labels().items()
        ),
    ]
    assert rows == expected


def test_the_bound_of_streams_stands_in_the_docs() -> None:
    assert f"at most {threads.STREAM_ITEMS} items ahead" in PAGE.read_text()
