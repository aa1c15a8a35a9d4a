"""What is done to the requests, watches and processes of the operator: decided by a seed, and counted.

Nothing is done here: who sends a request or reads from a watch asks what becomes of it.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from fray.kube.resources import JOBSETS, LEASES, Resource
from fray.testing.memory import Call

__all__ = ["Chaos", "Harm", "Intensity", "Moment", "WatchHarm"]

Moment = Literal["before", "after"]
"""Of a write: before the server has it, or once it is carried out."""


class Harm(StrEnum):
    """What can happen to a request."""

    CONFLICT = "409"
    EXPIRED = "410"
    THROTTLED = "429"
    FAILED = "500"
    UNAVAILABLE = "503"
    LIE = "carried out, but 504"
    CUT = "cut"
    CUT_AFTER = "carried out, but cut"
    HANG = "hang"
    HANG_AFTER = "carried out, but hang"
    LATE = "late"
    ORPHANED = "carried out after the client gave up"


class WatchHarm(StrEnum):
    """What can happen to an open watch."""

    CUT = "watch cut"
    SILENCE = "watch silent"
    EXPIRED = "watch ERROR 410"
    FAILED = "watch ERROR 500"
    LAG = "watch late"


WEIGHTS = {
    Harm.CONFLICT: 10,
    Harm.EXPIRED: 6,
    Harm.THROTTLED: 10,
    Harm.FAILED: 10,
    Harm.UNAVAILABLE: 10,
    Harm.LIE: 12,
    Harm.CUT: 10,
    Harm.CUT_AFTER: 14,
    Harm.HANG: 2,
    Harm.HANG_AFTER: 3,
    Harm.LATE: 12,
    Harm.ORPHANED: 10,
}
LATEST_SECONDS = 300.0
"""After how long a request may still be carried out."""
READS = ("GET", "LIST", "WATCH")
READ_WEIGHTS = {
    harm: weight for harm, weight in WEIGHTS.items() if harm not in (Harm.CONFLICT, Harm.ORPHANED)
}
JOBSET_WEIGHTS = {**WEIGHTS, Harm.ORPHANED: 60}
"""Of their creation: few come late enough to find their attempt ended and their name free."""
WATCH_WEIGHTS = {
    WatchHarm.CUT: 8,
    WatchHarm.SILENCE: 2,
    WatchHarm.EXPIRED: 5,
    WatchHarm.FAILED: 2,
    WatchHarm.LAG: 8,
}


@dataclass(frozen=True)
class Intensity:
    """How often: shares of all requests, of those about the Lease, of writes, and of events of watches."""

    request: float
    lease: float
    kill: float
    lease_kill: float
    watch: float

    @classmethod
    def choose(cls, rng: random.Random) -> Intensity:
        """Return one by chance; in some lives there are only kills, or only faults."""
        calm = rng.random()
        return cls(
            request=0.0 if calm < 0.1 else rng.uniform(0.1, 0.6),
            lease=0.0 if calm < 0.1 else rng.choice([0.0, 0.02, 0.02, 0.1, 0.1, 0.1, 0.1, 0.5]),
            kill=0.0 if calm > 0.95 else rng.uniform(0.03, 0.2),
            lease_kill=rng.choice([0.0, 0.002]),
            watch=0.0 if calm < 0.1 else rng.uniform(0.02, 0.2),
        )


class Chaos:
    """Decides about each request; `faults` and `kills` are what was done, by what it was done to."""

    def __init__(self, rng: random.Random, intensity: Intensity) -> None:
        self._rng, self._intensity = rng, intensity
        self.enabled = True
        self.faults: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()

    def latency(self) -> float:
        """Return seconds on the way of an unharmed message."""
        return self._rng.uniform(0.001, 0.02)

    def lateness(self) -> float:
        """Return seconds by which a message comes late."""
        return self._rng.choice([0.3, 2.0, 8.0]) * self._rng.uniform(0.2, 1.0)

    def orphan_lateness(self, call: Call) -> float:
        """Return seconds after which a request arrives that its sender mostly has given up.

        The creation of a JobSet may come long after its attempt has ended: no server fences it.
        """
        return self._rng.uniform(1.0, LATEST_SECONDS if call.resource == JOBSETS else 50.0)

    def retry_after(self) -> float:
        """Return the seconds that a server asks to wait."""
        return float(self._rng.randint(1, 4))

    def harm(self, call: Call) -> Harm | None:
        """Return what happens to a request."""
        share = self._intensity.lease if call.resource == LEASES else self._intensity.request
        if not self.enabled or self._rng.random() >= share:
            return None
        harm = self._choose(_weigh(call))
        self.faults[f"{_describe(call)}: {harm}"] += 1
        return harm

    def watch_harm(self, resource: Resource) -> WatchHarm | None:
        """Return what happens to a watch before its next event."""
        if not self.enabled or self._rng.random() >= self._intensity.watch:
            return None
        harm = self._choose(WATCH_WEIGHTS)
        self.faults[f"{resource.plural}: {harm}"] += 1
        return harm

    def kill(self, call: Call) -> Moment | None:
        """Return when its process dies at a request, if it does."""
        if not self.enabled or call.method in READS:
            return None
        share = self._intensity.lease_kill if call.resource == LEASES else self._intensity.kill
        if self._rng.random() >= share:
            return None
        moment: Moment = self._rng.choice(["before", "after"])
        self.kills[f"{moment} {_describe(call)}"] += 1
        return moment

    def _choose(self, weights: dict[_Kind, int]) -> _Kind:
        return self._rng.choices(list(weights), list(weights.values()))[0]


_Kind = Harm | WatchHarm


def _weigh(call: Call) -> dict[Harm, int]:
    if call.method in READS:
        return READ_WEIGHTS
    return JOBSET_WEIGHTS if (call.method, call.resource) == ("POST", JOBSETS) else WEIGHTS


def _describe(call: Call) -> str:
    return f"{call.method} {call.resource.plural}"
