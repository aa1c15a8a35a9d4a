"""What programs and servers wrote reaches no status or event with bytes that act on a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fray.plan.events import derive_events
from fray.plan.lifecycle import decide
from fray.plan.observation import (
    Evidence,
    EvidenceKind,
    GangObservation,
    HostObservation,
    HostPhase,
    Waiting,
)
from fray.plan.settings import RetryPolicy
from fray.plan.texts import TEXT_LIMIT, clean_text
from fray.testing import build_frayjob
from fray.vocabulary import Reason
from tests.unit.plan.frayjobs import with_status

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
HOSTILE = "\x1b[2J\x1b]0;title\x07lost \x1b[31mhope\x1b[0m\x00\x07\x9b\ud800\u202e!"
SHOWN = "lost hope" + "\N{REPLACEMENT CHARACTER}" * 5 + "!"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("as it is: é 漢 😀", "as it is: é 漢 😀"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("lines\r\nof Windows\r\n", "lines\nof Windows\n"),
        ("10%\r20%\N{NO-BREAK SPACE}done\x0b\u2028", "10% 20% done  "),
        ("\x1b[1;31mred\x1b[0m \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "red link"),
        ("half a sequence \x1b[", "half a sequence \N{REPLACEMENT CHARACTER}["),
        (HOSTILE, SHOWN),
        ("x" * TEXT_LIMIT, "x" * TEXT_LIMIT),
        ("x" * (TEXT_LIMIT + 1), "x" * (TEXT_LIMIT - 3) + "..."),
        ("\x1b[0m" * TEXT_LIMIT + "after more than is looked at", ""),
        ("\t" + "x" * 100 * TEXT_LIMIT, "\t" + "x" * (TEXT_LIMIT - 4) + "..."),
    ],
)
def test_a_text_is_shown_without_what_is_not_printable(written: str, shown: str) -> None:
    assert clean_text(written) == shown


@given(st.text(st.characters()))
def test_any_text_becomes_one_that_can_be_kept_and_shown(written: str) -> None:
    shown = clean_text(written)
    assert shown.encode().decode() == shown
    assert all(character.isprintable() or character in "\n\t" for character in shown)
    assert clean_text(shown) == shown


def failed(**facts: Any) -> GangObservation:
    return GangObservation((HostObservation(0, 0, 0, "pod", HostPhase.FAILED, **facts),))


def waits(message: str) -> GangObservation:
    host = HostObservation(0, 0, 0, "pod", HostPhase.PENDING)
    return GangObservation((host,), Waiting(Reason.ADMISSION_REFUSED, message))


@pytest.mark.parametrize(
    "observed",
    [
        failed(exit_code=1, log_tail=("fine", HOSTILE)),
        failed(message=HOSTILE),
        failed(reason=HOSTILE),
        failed(exit_code=1, evidence=Evidence(EvidenceKind.TAKEN, HOSTILE)),
        waits(HOSTILE),
    ],
    ids=["its log", "its message", "its reason", "what took it away", "why it waits"],
)
def test_hostile_bytes_reach_neither_status_nor_events(observed: GangObservation) -> None:
    job = build_frayjob()
    job = with_status(job, decide(job, None, now=NOW, policy=RetryPolicy()).status)
    status = decide(job, observed, now=NOW, policy=RetryPolicy()).status
    told = [condition.message for condition in status.conditions]
    told += [attempt.message or "" for attempt in status.attempts]
    told += [draft.message for draft in derive_events(job.status, status)]
    assert any(SHOWN in text for text in told)
    assert all(character.isprintable() or character == "\n" for text in told for character in text)
