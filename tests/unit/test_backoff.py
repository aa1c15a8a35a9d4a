"""The pauses between tries."""

from __future__ import annotations

from fray.backoff import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.pause(failures) for failures in (1, 2, 3, 4, 5000)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_the_other_side_may_ask_for_a_longer_pause_within_reason() -> None:
    backoff = Backoff(0.5, 3.0, longest_asked=10.0)
    assert [backoff.pause(3, asked) for asked in (None, 1.0, 5.0, 60.0)] == [2.0, 2.0, 5.0, 10.0]
