"""Code that tests send by value; this module counts as local, since it is no installed one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

FACTOR = 3
LOCK = threading.Lock()


def triple(number: int) -> int:
    return number * FACTOR


class Scale:
    def __init__(self, by: int) -> None:
        self.by = by

    def apply(self, number: int) -> int:
        return number * self.by


class Unreadable:
    """Pickles, and doesn't come back."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)


def guarded() -> None:
    with LOCK:
        pass


def items() -> Iterator[int]:
    yield 1


async def later() -> int:
    return 1
