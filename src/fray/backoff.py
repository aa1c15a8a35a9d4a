"""When to try again what has failed. Standard library only: programs, pods and the operator share it."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Backoff"]


@dataclass(frozen=True)
class Backoff:
    """Pauses between tries: `first` seconds, then twice as long each time, at most `longest`.

    Args:
        tries: How many further tries there are.
        longest_asked: The longest pause, in seconds, that the other side can ask for.
    """

    first: float
    longest: float
    tries: float = math.inf
    longest_asked: float = math.inf

    def pause(self, failures: int, asked: float | None = None) -> float:
        """Return the seconds to wait after this many failures in a row; at least what was `asked` for."""
        # The exponent is bounded: 2.0 ** 2000 overflows.
        doubled = min(self.longest, self.first * 2.0 ** min(failures - 1, 60))
        return max(doubled, min(asked or 0.0, self.longest_asked))
