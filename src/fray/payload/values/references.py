"""How references to a pool's objects and actors inside a value are found, while the value is pickled.

Handles are pickled by their own `__reduce__`, which tells here which object they stand for. So nothing that
encodes values needs to know handles. No handle, file, socket or client may stand here.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

__all__ = ["SCALARS", "Reference", "collector", "report_reference", "uncollected"]

SCALARS = frozenset((int, float, bool, str, bytes, complex, type(None)))
"""Types whose values hold no code, no buffer and no reference: `pickle.dumps` is enough for them."""


class Reference:
    """What the pool takes for a reference among arguments: handles of values derive from it.

    Their `__reduce__` calls `report_reference`.
    """

    __slots__ = ()

    @property
    def object_id(self) -> int:
        """The value that it stands for."""
        raise NotImplementedError


class _Collector(threading.local):
    found: list[int] | None = None
    """Where the pickling under way in this thread keeps the references; None when none is under way."""


collector = _Collector()
"""For `pickling`, which puts back what was there: one encoding may run within another."""


def report_reference(identity: int) -> bool:
    """Tell the encoding under way in this thread that the value holds a reference to an object or actor.

    False when none is: then somebody else pickles or copies it, and nobody keeps the object alive.
    """
    if collector.found is None:
        return False
    collector.found.append(identity)
    return True


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Let values be pickled to be looked at: their references are of no encoding."""
    outer, collector.found = collector.found, None
    try:
        yield
    finally:
        collector.found = outer
