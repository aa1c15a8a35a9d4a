"""The end of a log, and then what comes: no line is told twice, and none is lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from fray.cluster.kubernetes.logs import PrintedLines
from fray.types import JobId, LogLine

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


def line(number: int, *, rank: int = 0, at: float | None = None) -> LogLine:
    moment = START + timedelta(seconds=number if at is None else at)
    return LogLine(JobId("job"), 1, rank, 0, rank, f"{rank}: {number}", moment)


def texts(lines: Iterable[LogLine]) -> list[str]:
    return [each.text for each in lines]


def test_what_was_told_before_is_not_told_again() -> None:
    told = PrintedLines([line(1), line(2), line(1, rank=1)], 2)
    assert texts(told.last) == ["0: 2", "1: 1"]
    again = [line(1), line(1, rank=1), line(2), line(3), line(2, rank=1), line(1, rank=2)]
    assert texts(told.skip(again)) == ["0: 3", "1: 2", "2: 1"]


def test_a_line_of_the_same_moment_is_new() -> None:
    told = PrintedLines([line(1), line(2)], 0)
    assert texts(told.last) == []
    assert texts(told.skip([line(1), line(2), line(3, at=2), line(4)])) == ["0: 3", "0: 4"]


def test_nothing_is_lost_where_a_log_lost_its_beginning() -> None:
    told = PrintedLines([line(1), line(2)], 1)
    assert texts(told.skip([line(3), line(4)])) == ["0: 3", "0: 4"]


def test_a_state_of_an_unfinished_line_is_none_of_the_lines_that_were_told() -> None:
    told = PrintedLines([line(1)], 1)
    state = replace(line(1), text="10%", unfinished=True)
    assert texts(told.skip([state, line(1), line(2)])) == ["10%", "0: 2"]
