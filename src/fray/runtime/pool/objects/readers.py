"""Which hosts a server of objects sends what to at present, so that later readers are sent to them. Pure.

A host that sends an object to all its readers by itself is done when its link has carried it once for each.
If it sends it to a few, and each of these to as many others, N readers take as long as log N.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fray.runtime.pool.messages.specs import ObjectId

__all__ = ["AT_ONCE", "Readers"]

AT_ONCE = 3
"""Readers that are sent one object at the same time.

With k of them, a broadcast to N takes k transfers for each of log N / log k levels: least with 3. Up to 3
readers, none waits for another one.
"""


class Readers:
    """The readers of a server's transfers under way, by the addresses where they serve what they have."""

    def __init__(self) -> None:
        self._readers: dict[ObjectId, list[str]] = {}

    def choose_other(self, identity: ObjectId, reader: str) -> str:
        """Return which earlier reader a reader should ask instead, each in turn; empty: none of them."""
        earlier = [each for each in self._readers.get(identity, ()) if each != reader]
        if len(earlier) < AT_ONCE:
            return ""
        other = earlier[0]
        self._readers[identity].remove(other)
        self._readers[identity].append(other)
        return other

    @contextlib.contextmanager
    def receiving(self, identity: ObjectId, reader: str) -> Iterator[None]:
        """Count a reader for as long as the block takes; an empty address isn't counted."""
        if not reader:
            yield
            return
        readers = self._readers.setdefault(identity, [])
        readers.append(reader)
        try:
            yield
        finally:
            readers.remove(reader)
            if not readers and self._readers.get(identity) is readers:
                del self._readers[identity]
