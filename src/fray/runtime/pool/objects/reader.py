"""Reading the values that lie in stores: from this host's own, or through it from another host.

What to do when an object can't be read is decided elsewhere; here it's only said.
"""

from __future__ import annotations

from collections.abc import Callable

from fray.errors import ObjectLostError, SurroundingsError
from fray.runtime.pool.messages.specs import HostId, ObjectId, Stored
from fray.runtime.pool.objects.flat_format import Encoded
from fray.runtime.pool.objects.store import HostStore

__all__ = ["ObjectReader"]

Fetch = Callable[[ObjectId, HostId], memoryview]
"""Returns an object of another host."""


class ObjectReader:
    """One process's way to stored objects; `host` is where the process runs.

    `fetch` raises `SurroundingsError` or `ObjectLostError` when an object can't be had.
    """

    def __init__(self, host: HostId, store: HostStore, fetch: Fetch) -> None:
        self.host = host
        self._store = store
        self._fetch = fetch

    def write(self, object_id: ObjectId, encoded: Encoded) -> Stored:
        """Keep a value in this host's store; raises what that raises."""
        written = self._store.write(object_id, encoded)
        return Stored(self.host, written.size, encoded.contained, on_disk=written.on_disk)

    def read(self, object_id: ObjectId, host: HostId) -> memoryview | str:
        """Return the bytes of an object that lies on `host`, or in words why they can't be had."""
        try:
            try:
                return self._store.open(object_id)
            except ObjectLostError:
                if host == self.host:
                    raise
            return self._fetch(object_id, host)
        except (ObjectLostError, SurroundingsError) as error:
            return error.message
