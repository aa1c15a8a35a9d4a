"""An event loop whose clock jumps: nobody waits, and an hour of a controller's life takes milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["run"]

Result = TypeVar("Result")


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Like `asyncio.run`; its time starts at 0 and jumps to the next timer when nothing else is due."""
    with asyncio.Runner(loop_factory=_VirtualTimeLoop) as runner:
        return runner.run(main)


class _JumpingSelector(selectors.SelectSelector):
    """Instead of sleeping until something happens, has the clock jump."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "every task waits for something that will never happen"
            self.now += max(timeout, 0.0)
        return ready


class _VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now
