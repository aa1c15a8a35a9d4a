"""Which calls were cancelled, for hosts of actors and tasks that may hear of it before they have the call."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

__all__ = ["CancelledCalls"]

MOST: Final = 10_000
"""Of the calls that one host remembers. One that was cancelled when it had ended, or whose caller has died,
never comes to be forgotten."""


class CancelledCalls:
    """The calls that were cancelled last, at most `most` of them: the oldest are forgotten."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._calls: dict[Hashable, None] = {}
        """As a set in the order of their coming."""

    def add(self, call: Hashable) -> None:
        """Remember a call."""
        self._calls[call] = None
        if len(self._calls) > self._most:
            del self._calls[next(iter(self._calls))]

    def discard(self, call: Hashable) -> None:
        """Forget a call, if it is remembered."""
        self._calls.pop(call, None)

    def __contains__(self, call: Hashable) -> bool:
        return call in self._calls

    def __len__(self) -> int:
        return len(self._calls)
