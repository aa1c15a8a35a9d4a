"""How references to a pool's objects and actors inside a value are found, while the value is pickled.

Handles are pickled by their own `__reduce__`, which tells here which object they stand for. So nothing that
encodes values needs to know handles. No handle, file, socket or client may stand here.
"""

from __future__ import annotations

import threading

__all__ = ["Reference", "collector", "report_reference"]


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
