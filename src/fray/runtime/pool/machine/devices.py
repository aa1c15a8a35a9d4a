"""Accelerators are slots with identities: which of a host's devices a process gets. Pure.

A process holds its devices from its start to its end: CUDA and libtpu read which ones when they start, and
don't give them back before the process ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fray.runtime.pool.machine.records import Needs

__all__ = ["UNITS", "Claims", "build_slots", "choose_slots", "is_device", "split_needs"]

UNITS = 10_000
"""A whole device, or a whole CPU."""

Claims = dict[str, dict[int, int]]
"""What a process holds of which devices: `{"GPU": {0: UNITS}}`."""


def is_device(resource: str) -> bool:
    """Whether a resource is counted in devices."""
    return resource in ("GPU", "TPU")


def split_needs(needs: Needs) -> tuple[Needs, Needs]:
    """Return what a process holds of devices, and the rest."""
    devices = tuple(each for each in needs if is_device(each[0]))
    return (devices, tuple(each for each in needs if not is_device(each[0]))) if devices else ((), needs)


def build_slots(total: Mapping[str, int]) -> dict[str, list[int]]:
    """Return what is free of each device of a host that has started nothing, by the resource's name."""
    slots = {}
    for name, amount in total.items():
        if is_device(name):
            rest = amount % UNITS
            slots[name] = [UNITS] * (amount // UNITS) + [rest] * bool(rest)
    return slots


def choose_slots(free: Sequence[int], amount: int) -> dict[int, int] | None:
    """Return how much to take of which devices, or None where it doesn't fit.

    Whole devices are taken whole; a fraction goes to the fullest device that has room for it.
    """
    whole, rest = divmod(amount, UNITS)
    unused = [index for index, left in enumerate(free) if left == UNITS]
    if len(unused) < whole:
        return None
    claims = dict.fromkeys(unused[:whole], UNITS)
    if rest:
        rooms = [index for index, left in enumerate(free) if left >= rest and index not in claims]
        if not rooms:
            return None
        claims[min(rooms, key=lambda index: free[index])] = rest
    return claims
