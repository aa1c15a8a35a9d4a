"""docs/pool.md says what the code does: numbers, metrics, settings and errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fray.errors import pool as pool_errors
from fray.job import progress_display
from fray.job.ledger import REMEMBERED_RUNS
from fray.job.pool_stats import PoolContextStats
from fray.runtime.pool.client.backpressure import MAX_BYTES, MAX_TASKS
from fray.runtime.pool.head.metrics import render_metrics
from fray.runtime.pool.head.metrics_server import (
    CLIENT_SECONDS,
    FRESH_SECONDS,
    MAX_CLIENTS_OF_SOURCE,
    MAX_REQUEST,
    SHARE,
)
from fray.runtime.pool.machine.cancelling import CANCEL_SECONDS
from fray.runtime.pool.machine.functions import MOST_NAMES, OTHER_NAMES
from fray.runtime.pool.machine.lineage import LINEAGE_LIMIT
from fray.runtime.pool.machine.tables import REMEMBERED_TASKS
from fray.runtime.pool.messages.specs import TaskSpec
from fray.runtime.pool.objects.directories import MEMORY_SHARE
from fray.runtime.pool.objects.values import INLINE_LIMIT
from fray.runtime.pool.state import PoolState
from fray.runtime.pool.view import RATE_SECONDS
from fray.runtime.pool.worker.generators import SMALL_BYTES, SMALL_ITEMS
from fray.vocabulary import POOL_METRICS_PORT

PAGE = (Path(__file__).parents[3] / "docs" / "pool.md").read_text()
MIB = 1024**2


@pytest.mark.parametrize(
    ("sentence", "fact"),
    [
        ("Up to 64 KiB it travels", INLINE_LIMIT == 64 * 1024),
        ("by default 30 % of the machine's", MEMORY_SHARE == 0.3),
        ("arguments of up to 256 MiB are kept", LINEAGE_LIMIT == 256 * MIB),
        ("`run` blocks at 512 MiB, and at 4,000,000 tasks", (MAX_BYTES, MAX_TASKS) == (512 * MIB, 4_000_000)),
        (
            "generator is ahead of its reader | 16, or 1,024 that take 256 KiB together |",
            (TaskSpec._field_defaults["buffered"], 16 * SMALL_ITEMS, SMALL_BYTES) == (16, 1024, 256 * 1024),
        ),
        ("the last 10,000 runs", REMEMBERED_RUNS == REMEMBERED_TASKS == 10_000),
        ("ended after 5 seconds", CANCEL_SECONDS == 5),
        ("longer than a second shows", progress_display.LazyBar.delay == 1.0),
        ("a line every 10 seconds", progress_display.LINES_SECONDS == 10.0),
        ("Requests above 8 KiB are refused", MAX_REQUEST == 8 * 1024),
        ("longer than 5 seconds is cut off", CLIENT_SECONDS == 5.0),
        ("at most once a second", FRESH_SECONDS == 1.0),
        ("one address has 4 connections", MAX_CLIENTS_OF_SOURCE == 4),
        ("over the last 10 seconds", RATE_SECONDS == 10),
        ("for up to 200 names; later ones are `(others)`", (MOST_NAMES, OTHER_NAMES) == (200, "(others)")),
        ("--metrics tcp:0.0.0.0:7099", POOL_METRICS_PORT == 7099),
        ("no more than a twentieth", SHARE == 20),
    ],
)
def test_what_the_page_says_is_so(sentence: str, fact: bool) -> None:
    assert sentence in PAGE
    assert fact


def test_every_metric_and_no_other_is_in_the_table() -> None:
    text = render_metrics(PoolState().stats(), {})
    assert set(re.findall(r"`(fray_pool_\w+)", PAGE)) == set(re.findall(r"# TYPE (\w+)", text))


def test_every_error_has_its_row() -> None:
    rows = set(re.findall(r"^\| `(\w+Error)` \|", PAGE, re.MULTILINE))
    assert rows == set(pool_errors.__all__) - {"TaskError"}


def test_every_count_is_shown() -> None:
    shown = PAGE.partition("print(ctx.stats())")[2].partition("```text\n")[2].partition("```")[0]
    names = [line.rsplit(maxsplit=1)[0].replace(" ", "_") for line in shown.splitlines()]
    assert [*names, "waits"] == list(PoolContextStats.__dataclass_fields__)
    assert "`stats.waits`" in PAGE


def test_the_picture_is_there_and_small() -> None:
    (picture,) = re.findall(r"!\[.*\]\((.*)\)", PAGE)
    path = Path(__file__).parents[3] / "docs" / picture
    assert 0 < path.stat().st_size < 100_000
    assert "map_shard" in path.read_text()
