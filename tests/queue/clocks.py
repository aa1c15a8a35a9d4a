"""Time that passes when a test says so."""

from __future__ import annotations


class Clock:
    """Seconds since 1970 that stand still until `advance`."""

    def __init__(self) -> None:
        self.now = 1_000_000_000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds
