"""Lines of output as they are shown: prefixed, decoded, and harmless on a terminal."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fray.cli.lines import LineFormatter, clean_for_terminal
from fray.types import JobId, LogLine

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def line(text: str, *, place: tuple[int, int] = (0, 0), **marks: bool) -> LogLine:
    rank = 2 * place[0] + place[1]
    return LogLine(JobId("job"), 1, rank, *place, text, NOON, **marks)


def formatter(*, terminal: bool = False, color: bool = False, timestamps: bool = False) -> LineFormatter:
    return LineFormatter(terminal=terminal, color=color, timestamps=timestamps)


def test_each_line_has_its_place() -> None:
    assert formatter().format(line("a", place=(1, 0))) == "[1/0] a\n"


def test_a_line_in_parts_has_one_prefix_and_one_end() -> None:
    lines = formatter()
    assert lines.format(line("ca", goes_on=True)) + lines.format(line("fé")) == "[0/0] café\n"
    assert lines.format(line("half", goes_on=True)) == "[0/0] half"
    assert lines.format(line("other", place=(0, 1))) == "\n[0/1] other\n"
    assert lines.format(line("half", goes_on=True)) + lines.end() == "[0/0] half\n"


def test_of_a_progress_bar_the_last_state_is_left() -> None:
    lines = formatter()
    assert lines.format(line("\r10%\r50%\r100%")) == "[0/0] 100%\n"
    assert lines.format(line("windows\r")) == "[0/0] windows\n"
    # One that fills many parts comes as it is: where its states begin is known with its end only.
    assert lines.format(line("1%\r2", goes_on=True)) + lines.format(line("%\r3%")) == "[0/0] 1%\r2%\r3%\n"


def test_a_terminal_is_shown_whole_lines() -> None:
    lines = formatter(terminal=True)
    assert lines.format(line("ca", goes_on=True)) + lines.end() == "[0/0] ca\n"


def test_states_of_a_progress_bar_are_lines_where_nothing_can_be_taken_back() -> None:
    lines = formatter()
    states = [line("10%", unfinished=True), line("20%", unfinished=True), line("20%", unfinished=True)]
    assert [lines.format(each) for each in states] == ["[0/0] 10%\n", "[0/0] 20%\n", ""]
    assert lines.format(line("10%\r20%")) == "", "as it was shown"
    assert lines.format(line("20%")) == "[0/0] 20%\n"


def test_a_terminal_shows_states_below_the_other_lines_and_each_in_its_place() -> None:
    lines = formatter(terminal=True)
    first, second = line("10%", unfinished=True), line("a", place=(0, 1), unfinished=True)
    assert lines.format(first) == "\x1b[?7l[0/0] 10%\n\x1b[?7h"
    assert lines.format(second) == "\x1b[1A\x1b[J\x1b[?7l[0/0] 10%\n[0/1] a\n\x1b[?7h"
    whole = lines.format(line("whole", place=(1, 0)))
    assert whole == "\x1b[2A\x1b[J[1/0] whole\n\x1b[?7l[0/0] 10%\n[0/1] a\n\x1b[?7h"
    assert lines.format(line("10%\r100%")) == "\x1b[2A\x1b[J[0/0] 100%\n\x1b[?7l[0/1] a\n\x1b[?7h"
    assert (lines.lift_states(), lines.lift_states()) == ("\x1b[1A\x1b[J", "")
    assert lines.draw_states() == "\x1b[?7l[0/1] a\n\x1b[?7h"


def test_timestamps_stand_first() -> None:
    assert formatter(timestamps=True).format(line("a")) == "2026-01-31T12:00:00.000Z [0/0] a\n"


def test_neighbouring_ranks_have_different_colours() -> None:
    lines = formatter(color=True)
    prefixes = [lines.format(line("", place=place)) for place in ((0, 0), (0, 1), (1, 0), (1, 1))]
    assert len({prefix.partition("m")[0] for prefix in prefixes}) == 4


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain\n", "plain\n"),
        ("tab\there\n", "tab\there\n"),
        ("10%\r50%\r100%\n", "100%\n"),
        ("windows\r\n", "windows\n"),
        ("\x1b[2J\x1b[Hcleared\n", "cleared\n"),
        ("\x1b]0;title\x07text\n", "text\n"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", "link\n"),
        ("\x1b[31mred\x1b[0m\n", "\x1b[31mred\x1b[0m\x1b[0m\n"),
        ("\x1b[1;38:5:9mred\n", "\x1b[1;38:5:9mred\x1b[0m\n"),
        ("bell\x07 back\x08\n", "bell back\n"),
        ("\x1bcreset\n", "reset\n"),
        ("\x9b2Jc1\n", "2Jc1\n"),
        ("\x1b[?1049h\n", "\n"),
        ("unfinished \x1b[", "unfinished "),
        ("\x1bPq;data", ""),
    ],
)
def test_a_terminal_sees_text_and_colours_and_nothing_else(line: str, shown: str) -> None:
    assert clean_for_terminal(line) == shown


@given(st.text())
def test_no_text_can_harm_a_terminal(text: str) -> None:
    line = clean_for_terminal(text.replace("\n", ""))
    rest = line
    while "\x1b" in rest:
        before, _, rest = rest.partition("\x1b")
        assert before.isprintable() or not any(ord(c) < 32 and c != "\t" for c in before)
        assert rest.startswith("[")
        assert rest.lstrip("[0123456789;:").startswith("m")
    assert not any(ord(c) < 32 and c != "\t" for c in rest)
