"""Whatever a callable raises, its termination message is one JSON object of at most 4096 bytes."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from fray.termination import LIMIT, Ending, TerminationMessage

hostile = st.text(st.characters(exclude_categories=())) | st.builds(
    lambda unit, times: unit * times,
    st.sampled_from(["a", "é", "\N{PILE OF POO}", "\x00", '"', "\\", "\ud83d", "\u2028", "\n"]),
    st.integers(0, 5000),
)
digests = st.none() | st.just("ab" * 32)


@given(st.sampled_from(Ending), hostile, hostile, hostile, digests)
@example(Ending.RAISED, "\x00" * 9000, "\x00" * 9000, "\x00" * 9000, "ab" * 32)
@example(Ending.RAISED, "\ud800", "\udfff", "x\ud83d", None)
def test_it_always_fits_and_is_always_read(
    ending: Ending, kind: str, text: str, traceback: str, sha256: str | None
) -> None:
    line = TerminationMessage(ending, kind, text, traceback, sha256).to_json()
    assert len(line.encode()) <= LIMIT
    assert "\n" not in line
    read = TerminationMessage.from_json(line)
    assert read is not None
    assert (read.ending, read.sha256) == (ending, sha256)
    for given_text, kept, rest in (
        (kind, read.type, False),
        (text, read.message, False),
        (traceback, read.traceback, True),
    ):
        whole = given_text.encode("utf-8", "replace").decode()
        if kept != whole:
            part = kept.removeprefix("…") if rest else kept.removesuffix("…")
            assert kept.startswith("…") if rest else kept.endswith("…")
            assert whole.endswith(part) if rest else whole.startswith(part)


def test_short_texts_are_kept_whole() -> None:
    message = TerminationMessage(
        Ending.RAISED, "ValueError", "no “number”", "Traceback\n  …\nValueError: no", "cd" * 32
    )
    assert TerminationMessage.from_json(message.to_json()) == message
    assert message.lines == ("Traceback", "  …", "ValueError: no")


def test_a_long_traceback_keeps_its_end_and_takes_the_room_that_is_left() -> None:
    message = TerminationMessage(Ending.RAISED, "E", "é" * 5000, "start" + "x" * 9000 + "the end")
    line = message.to_json()
    read = TerminationMessage.from_json(line)
    assert read is not None
    assert read.traceback.startswith("…x")
    assert read.traceback.endswith("xthe end")
    assert read.message == "é" * 598 + "…"
    assert LIMIT - 8 < len(line.encode()) <= LIMIT


@given(
    st.text()
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["fray", "ending", "type", "message", "traceback", "sha256"]), inner
            )
        ),
    ).map(json.dumps)
)
@example('{"fray":1,"ending":"raised","type":"","message":"","traceback":"","sha256":3}')
@example('{"fray":1,"ending":"raised","type":"","message":"","traceback":"","sha256":0}')
@example('{"fray":1,"ending":"flown","type":"","message":"","traceback":""}')
@example('{"fray":1,"ending":["raised"],"type":"","message":"","traceback":""}')
@example("[" * 100_000)
def test_other_text_is_no_message(text: str) -> None:
    assert TerminationMessage.from_json(text) is None


def test_without_a_traceback_type_and_text_are_shown() -> None:
    assert TerminationMessage(Ending.EXITED, "SystemExit", "3").lines == ("SystemExit: 3",)
    assert TerminationMessage(Ending.RETURNED, "NoneType").lines == ("NoneType",)
