"""When a head is taken for one that stands still."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fray.runtime.pool import joined_pool as module
from fray.runtime.pool.joined_pool import SILENT_SECONDS, await_silence

SILENT = [(False, 1.0)]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (SILENT * SILENT_SECONDS, True),
        (SILENT * (SILENT_SECONDS - 1), False),
        (SILENT * (SILENT_SECONDS - 1) + [(True, 1.0)] + SILENT * (SILENT_SECONDS - 1), False),
        # A second that took longer: this process stood still, and looks before the head could say anything.
        (SILENT * (SILENT_SECONDS - 1) + [(False, 60.0)] + SILENT * (SILENT_SECONDS - 1), False),
        ([(False, 60.0)] + SILENT * SILENT_SECONDS, True),
    ],
)
def test_a_head_is_silent_after_some_whole_seconds_without_a_word(
    seconds: list[tuple[bool, float]], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    left = list(seconds)

    def hears(_: float) -> bool:
        nonlocal now
        heard, took = left.pop(0) if left else (False, 1.0)
        now += took
        return heard

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    ends_after = len(seconds)
    asked = iter(range(1, ends_after + 2))
    assert await_silence(hears, lambda: next(asked) > ends_after) is expected
