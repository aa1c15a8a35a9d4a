"""How often peers were cut off, and why: for metrics and for tests. Nothing about one peer is kept."""

from __future__ import annotations

import threading
from typing import get_args

from fray.errors.transport import RefusalReason

__all__ = ["RefusalCounts"]


class RefusalCounts:
    """Counts refusals by reason; any thread may count and read."""

    __slots__ = ("_counts", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[RefusalReason, int] = dict.fromkeys(get_args(RefusalReason), 0)

    def count(self, reason: RefusalReason) -> None:
        """Count one refusal."""
        with self._lock:
            self._counts[reason] += 1

    def snapshot(self) -> dict[RefusalReason, int]:
        """Return the counts of now; each reason is there, also with 0."""
        with self._lock:
            return dict(self._counts)

    def total(self) -> int:
        """Return the number of all refusals."""
        return sum(self.snapshot().values())
