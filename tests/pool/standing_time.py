"""An event loop whose timers wait for the test: how quick the machine is decides nothing."""

from __future__ import annotations

import asyncio

__all__ = ["StandingLoop"]


class StandingLoop(asyncio.SelectorEventLoop):
    """Its time stands still but for `pass_time`; input and output go on as ever."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__()

    def time(self) -> float:
        """Return the seconds that the test has let pass."""
        return self._now

    def pass_time(self, seconds: float) -> None:
        """Let time pass, on the loop's thread: what was due by then happens in the loop's next turn."""
        self._now += seconds
