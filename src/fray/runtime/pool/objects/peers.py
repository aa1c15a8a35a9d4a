"""Objects on their way between hosts: a server for those of this host, and `fetch` for those of others.

Each host has one process for the server, forked by its nanny, which has nothing else to do. A request is an
identity, one at a time on a connection; the answer is the size and then chunks, or that there is no such
object. No byte is unpickled here. A transfer that is cut begins anew: an object that was rebuilt meanwhile
may differ from the one before.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable
from contextlib import closing

from fray.errors import (
    ConnectionLostError,
    ObjectLostError,
    StoreDirectoryError,
    StoreFullError,
    TransportError,
)
from fray.runtime.pool.messages import HostId, ObjectId
from fray.runtime.pool.objects.store import HostStore
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.transport.endpoints import Connection, Server, serve
from fray.runtime.pool.transport.frames import Frame
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.transport.settings import DEFAULT_SETTINGS, TransportSettings

__all__ = ["PeerFetch", "fetch", "run_object_server", "serve_objects"]

CHUNK = 512 * 1024
"""Bytes of one chunk: few system calls, and little memory for many transfers at once."""
TRIES = 3
"""How often a transfer is begun that was cut."""
SILENCE_SECONDS = 30.0
"""A server that sends nothing for that long is taken for gone."""

_WANTED = 1
_FOUND = 2
_MISSING = 3
_CHUNK = 4
_IDENTITY_BYTES = 16
_SIZE = struct.Struct("!Q")


async def serve_objects(
    address: Address, key: TransportKey, store: HostStore, *, settings: TransportSettings = DEFAULT_SETTINGS
) -> Server:
    """Serve the objects of `store` at `address` to whoever holds `key`, until the server is closed.

    Raises what `transport.serve` raises.
    """
    answers: set[asyncio.Task[None]] = set()

    def begin(connection: Connection) -> None:
        def answer(frame: Frame) -> None:
            task = asyncio.get_running_loop().create_task(_answer(connection, store, frame))
            answers.add(task)
            task.add_done_callback(answers.discard)

        connection.on_frame = answer

    return await serve(address, key, begin, settings=settings)


def run_object_server(
    address: Address,
    key: TransportKey,
    store: HostStore,
    *,
    lifeline: int,
    ready: Callable[[Address], None],
) -> None:
    """Serve the objects of `store` until `lifeline` is at its end; `ready` is told the real address.

    `lifeline` is the reading end of a pipe whose writing end only the parent holds: it ends with it.

    Raises what `transport.serve` raises.
    """

    async def run() -> None:
        ended = asyncio.Event()
        server = await serve_objects(address, key, store)
        asyncio.get_running_loop().add_reader(lifeline, ended.set)
        ready(server.address)
        await ended.wait()
        asyncio.get_running_loop().remove_reader(lifeline)
        await server.close()

    asyncio.run(run())


async def _answer(connection: Connection, store: HostStore, frame: Frame) -> None:
    if frame.kind != _WANTED or len(frame.body) != _IDENTITY_BYTES:
        connection.abort()
        return
    try:
        try:
            data = store.open(int.from_bytes(frame.body))
        except (ObjectLostError, StoreDirectoryError):
            connection.send(_MISSING, frame.body)
            return
        connection.send(_FOUND, _SIZE.pack(len(data)))
        for start in range(0, len(data), CHUNK):
            connection.send(_CHUNK, b"", [data[start : start + CHUNK]])
            await connection.drain()
            # Which returns at once while there is room: others get their turn, and a lost peer is noticed.
            await asyncio.sleep(0)
    except ConnectionLostError:
        return  # whoever wanted it has gone


def fetch(
    address: Address,
    key: TransportKey,
    identity: ObjectId,
    into: HostStore,
    *,
    settings: TransportSettings = DEFAULT_SETTINGS,
) -> None:
    """Copy an object from the host whose server is at `address` into this host's store.

    Several that fetch the same object at once, in any process of this host, share one transfer.

    Raises:
        ObjectLostError: that host hasn't got it.
        ConnectionLostError: the transfer was cut each time it was tried, or isn't what was promised.
        TransportError: no connection to it can be made.
        StoreFullError: neither memory nor disk has room here.
    """
    with into.exclusive(identity), closing(into.places()) as places:
        disk, tries = next(places), 0
        while not into.contains(identity):
            try:
                with closing(BlockingConnection.connect(address, key, settings=settings)) as connection:
                    _receive(connection, identity, into, disk=disk)
            except StoreFullError:
                place = next(places, None)
                if place is None:
                    raise
                disk = place
            except ConnectionLostError:
                tries += 1
                if tries == TRIES:
                    raise


class PeerFetch:
    """`fetch` by the number of a host.

    Parameters: `address_of` gives where a host's objects are read, or nothing for one that is gone; the
    pool's `key`; the `store` of this host.
    """

    def __init__(
        self, address_of: Callable[[HostId], str | None], key: TransportKey, store: HostStore
    ) -> None:
        self._address_of = address_of
        self._key = key
        self._store = store

    def __call__(self, identity: ObjectId, host: HostId) -> None:
        """Copy an object from another host into this host's store.

        Raises `ObjectLostError` if it can't be had from there, `StoreFullError` if there is no room here.
        """
        address = self._address_of(host)
        if not address:
            raise ObjectLostError(f"{identity:x}", f"host {host} is gone")
        try:
            fetch(Address.parse(address), self._key, identity, self._store)
        except TransportError as error:
            raise ObjectLostError(f"{identity:x}", error.message) from error


def _receive(connection: BlockingConnection, identity: ObjectId, into: HostStore, *, disk: bool) -> None:
    connection.send(_WANTED, identity.to_bytes(_IDENTITY_BYTES))
    frame = _next_frame(connection)
    if frame.kind == _MISSING:
        raise ObjectLostError(f"{identity:x}", f"{connection.peer} hasn't got it")
    if frame.kind != _FOUND or len(frame.body) != _SIZE.size:
        raise ConnectionLostError(connection.peer, f"it answered with a frame of kind {frame.kind}")
    (size,) = _SIZE.unpack(frame.body)
    with into.receiving(identity, size, disk=disk) as file:
        received = 0
        while received < size:
            frame = _next_frame(connection)
            count = sum(map(len, frame.buffers))
            if frame.kind != _CHUNK or not 0 < count <= size - received:
                raise ConnectionLostError(
                    connection.peer, f"it sent {count} bytes after {received} of {size}"
                )
            for buffer in frame.buffers:
                _write(file, buffer)
            received += count


def _next_frame(connection: BlockingConnection) -> Frame:
    try:
        return connection.receive(SILENCE_SECONDS)
    except TimeoutError as error:
        raise ConnectionLostError(connection.peer, f"it was silent for {SILENCE_SECONDS} s") from error


def _write(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]
