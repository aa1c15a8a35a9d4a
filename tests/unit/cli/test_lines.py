"""Lines of output as they are shown: prefixed, decoded, and harmless on a terminal."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fray.cli.lines import LineFormatter, clean_for_terminal
from fray.cluster.local.logs import LogPiece

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def piece(data: bytes, *, place: tuple[int, int] = (0, 0), ends: bool = True) -> LogPiece:
    return LogPiece(place, NOON, data, ends)


def formatter(*, terminal: bool = False, color: bool = False, timestamps: bool = False) -> LineFormatter:
    return LineFormatter(hosts_per_slice=2, terminal=terminal, color=color, timestamps=timestamps)


def test_each_line_has_its_place_and_the_last_one_ends() -> None:
    assert formatter().format(piece(b"a\n\nb", place=(1, 0))) == "[1/0] a\n[1/0] \n[1/0] b\n"


def test_a_line_in_pieces_has_one_prefix_and_keeps_characters_whole() -> None:
    lines = formatter()
    text = lines.format(piece(b"caf\xc3", ends=False)) + lines.format(piece(b"\xa9\nnext\n"))
    assert text == "[0/0] café\n[0/0] next\n"


def test_what_is_no_utf8_is_replaced() -> None:
    assert formatter().format(piece(b"\xff\xc3\n")) == "[0/0] \ufffd\ufffd\n"


def test_only_newlines_end_lines() -> None:
    text = "a\u2028b\x0cc\r\x1dd\n"
    assert formatter().format(piece(text.encode())) == f"[0/0] {text}"


def test_timestamps_stand_first() -> None:
    assert formatter(timestamps=True).format(piece(b"a\n")) == "2026-01-31T12:00:00.000Z [0/0] a\n"


def test_neighbouring_ranks_have_different_colours() -> None:
    lines = formatter(color=True)
    prefixes = [lines.format(piece(b"\n", place=place)) for place in ((0, 0), (0, 1), (1, 0), (1, 1))]
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
