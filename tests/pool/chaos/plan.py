"""What a seed stands for: the tasks in their order, and the faults, each due after so many tasks have ended.

Pure: the same seed gives the same plan on any machine. Which task a fault hits is up to the processes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum, auto

__all__ = ["Blow", "Fault", "Kind", "Unit", "faults", "units"]


class Kind(StrEnum):
    """What a unit of the load is."""

    NO_OP = auto()
    WORK = auto()
    LARGE = auto()
    PASSED_ON = auto()
    PUT = auto()
    PUT_INSIDE = auto()
    CLOSURE = auto()
    HOLDS_GIL = auto()
    NESTED = auto()
    STREAM = auto()
    LIST_OF_STREAM = auto()
    CALL = auto()
    TALLY = auto()
    FAILING = auto()
    CANCELLED = auto()
    CANCELLED_BY_FORCE = auto()
    TOO_LONG = auto()
    DIES_ONCE = auto()
    POISONED = auto()
    FRAIL = auto()
    ONE_OFF = auto()


_SHARES = {
    Kind.NO_OP: 600,
    Kind.WORK: 120,
    Kind.LARGE: 30,
    Kind.PASSED_ON: 20,
    Kind.PUT: 20,
    Kind.PUT_INSIDE: 15,
    Kind.CLOSURE: 15,
    Kind.HOLDS_GIL: 2,
    Kind.NESTED: 8,
    Kind.STREAM: 8,
    Kind.LIST_OF_STREAM: 4,
    Kind.CALL: 120,
    Kind.TALLY: 60,
    Kind.FAILING: 20,
    Kind.CANCELLED: 6,
    Kind.CANCELLED_BY_FORCE: 2,
    Kind.TOO_LONG: 1,
    Kind.DIES_ONCE: 2,
    Kind.POISONED: 0.5,
    Kind.FRAIL: 20,
    Kind.ONE_OFF: 1,
}


@dataclass(frozen=True)
class Unit:
    """One thing to do. `size` is in bytes, items, children or calls, as its kind has it."""

    key: int
    kind: Kind
    size: int


def units(seed: int) -> Iterator[Unit]:
    """Give the load without end."""
    chance = random.Random(seed)
    kinds, shares = list(_SHARES), list(_SHARES.values())
    key = 0
    while True:
        key += 1
        kind = chance.choices(kinds, shares)[0]
        yield Unit(key, kind, _size(kind, chance))


def _size(kind: Kind, chance: random.Random) -> int:
    if kind in (Kind.LARGE, Kind.PASSED_ON, Kind.PUT, Kind.PUT_INSIDE, Kind.CLOSURE):
        return chance.choice((10_000, 70_000, 200_000, 500_000, 3_000_000))
    if kind in (Kind.STREAM, Kind.LIST_OF_STREAM):
        return chance.randrange(0, 60)
    return chance.randrange(2, 6)


class Blow(StrEnum):
    """What is done to processes, and to the disk."""

    KILL = auto()
    KILL_THREE = auto()
    KILL_ALL = auto()
    STOP = auto()
    KILL_NANNY = auto()
    STOP_NANNY = auto()
    FILL_DISK = auto()


_BLOWS = {
    Blow.KILL: 60,
    Blow.KILL_THREE: 6,
    Blow.KILL_ALL: 2,
    Blow.STOP: 25,
    Blow.KILL_NANNY: 2,
    Blow.STOP_NANNY: 5,
    Blow.FILL_DISK: 5,
}


@dataclass(frozen=True)
class Fault:
    """Something bad. `after`: units ended; `victim` chooses a worker; `seconds`: how long it lasts."""

    after: int
    blow: Blow
    victim: float
    seconds: float


def faults(seed: int, *, every: int) -> Iterator[Fault]:
    """Give the faults without end, one in `every` units on average."""
    chance = random.Random(~seed)
    blows, weights = list(_BLOWS), list(_BLOWS.values())
    after = 0
    while True:
        after += 1 + int(chance.expovariate(1 / every))
        blow = chance.choices(blows, weights)[0]
        yield Fault(after, blow, chance.random(), chance.choice((0.01, 0.05, 0.2, 0.6)))
