"""What the proxy does to the operator's requests while a storm lasts, decided one by one from a seed."""

from __future__ import annotations

import random
from collections import Counter

from e2e.faulty_proxy import Call, Fault, Harm

__all__ = ["Storm"]

SHARE = 0.3
"""Of the requests, those that are harmed."""
_FAULTS = {
    Fault(Harm.ANSWER, 429, "TooManyRequests"): 6,
    Fault(Harm.ANSWER, 500, "InternalError"): 6,
    Fault(Harm.ANSWER, 503, "ServiceUnavailable"): 4,
    Fault(Harm.ANSWER, 409, "Conflict"): 3,
    Fault(Harm.LIE, 500, "InternalError"): 5,
    Fault(Harm.CUT): 4,
    Fault(Harm.CUT_AFTER): 5,
    Fault(Harm.CUT_IN_BODY): 2,
    Fault(Harm.HANG_AFTER): 1,
    Fault(Harm.DELAY): 6,
}


class Storm:
    """A rule for the proxy; `rages` turns it on and off, `done` counts by what was harmed how."""

    def __init__(self, seed: int) -> None:
        self.rages = False
        self.done: Counter[str] = Counter()
        self._chance = random.Random(f"storm {seed}")
        self._faults, self._weights = list(_FAULTS), list(_FAULTS.values())

    def __call__(self, call: Call) -> Fault | None:
        """Return what happens to a request, None for nothing."""
        # Drawn also for those that are spared: the n-th request meets the n-th decision.
        harmed = self._chance.random() < SHARE
        (fault,) = self._chance.choices(self._faults, self._weights)
        if not self.rages or not harmed:
            return None
        if fault.status == 409 and call.method not in ("PUT", "PATCH"):
            fault = Fault(Harm.ANSWER, 500, "InternalError")  # a conflict is nothing that a server would say
        self.done[str(fault)] += 1
        return fault
