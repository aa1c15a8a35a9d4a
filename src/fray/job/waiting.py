"""What `wait` looks for and gives back, alike in every context. How a context waits is its own business."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import TypeVar

from fray.job.engine import Entry

__all__ = ["find_ready", "take_out"]


T = TypeVar("T")
E = TypeVar("E", bound=Entry)

FEW = 16
"""Gaps that are closed one after the other, each at the price of moving the pointers behind it."""


def find_ready(awaited: Iterable[E], count: int) -> tuple[list[int], list[E]]:
    """Return where the first `count` ready ones stand, and what isn't ready before the last of them."""
    found: list[int] = []
    pending: list[E] = []
    for position, one in enumerate(awaited):
        if not one.ready:
            pending.append(one)
            continue
        found.append(position)
        if len(found) == count:
            break
    return found, pending


def take_out(futures: list[T], positions: Sequence[int]) -> tuple[list[T], list[T]]:
    """Return what stands at the positions, which ascend, and the others, in their order; spends `futures`.

    A loop that takes one of 100,000 at a time does this to all of them each time: touching each future is
    most of what it costs, so few are taken out of the list where they stand.
    """
    taken = [futures[position] for position in positions]
    if len(positions) <= FEW:
        for position in reversed(positions):
            del futures[position]
        return taken, futures
    stays = bytearray(b"\1") * len(futures)
    for position in positions:
        stays[position] = 0
    return taken, list(compress(futures, stays))
