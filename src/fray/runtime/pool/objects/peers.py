"""Objects on their way between hosts: a server for those of this host, and `fetch` for those of others.

Each host has one process for the server, forked by its nanny, which has nothing else to do. A request is an
identity and where the reader's own host serves objects, one at a time on a connection. The answer is the size
and then chunks, or that there is no such object, or the address of an earlier reader to ask instead, which
lets the reader wait until it has the object itself. No byte is unpickled here. A transfer that is cut begins
anew, and from the first server: an object that was rebuilt in between may differ from the one before.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from typing import TypeAlias

from fray.errors import (
    ConnectionLostError,
    ObjectLostError,
    StoreDirectoryError,
    StoreFullError,
    SurroundingsError,
    TransportError,
)
from fray.runtime.pool.messages.specs import HostId, ObjectId
from fray.runtime.pool.objects.readers import Readers
from fray.runtime.pool.objects.store import HostStore
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.transport.endpoints import Connection, Server, serve
from fray.runtime.pool.transport.frames import Frame, allocate
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.transport.settings import DEFAULT_SETTINGS, TransportSettings

__all__ = ["PeerFetch", "fetch", "run_object_server", "serve_objects"]

SETTINGS = replace(DEFAULT_SETTINGS, dial_seconds=4.0)
"""Kernels answer for processes that are busy. One that hasn't within the time of three attempts of TCP is cut
off, and the reader is to learn so while there is another way.
"""
CHUNK = 512 * 1024
"""Bytes of one chunk: few system calls, and little memory for many transfers at once."""
TRIES = 3
"""How often a transfer is begun that was cut."""
SILENCE_SECONDS = 15.0
"""A server that sends nothing for that long is taken for gone, and not asked again."""

SHARED_BYTES = 4 * 1024 * 1024
"""From that size on, later readers are sent to earlier ones."""
COMING_SECONDS = 30.0
"""How long a reader waits until another one has received an object whole."""
MAX_HOPS = 32
"""Readers that a reader asks one after the other. More than a broadcast to 2**32 hosts needs."""
PAUSE_SECONDS = 0.02
"""Between two looks at whether an object has come that is on its way."""

_Write: TypeAlias = Callable[[memoryview], object]
_Room: TypeAlias = Callable[[int], AbstractContextManager[_Write]]
_WANTED = 1
_FOUND = 2
_MISSING = 3
_CHUNK = 4
_FORWARDED = 5
_ELSEWHERE = 6
_COMING = 7
_IDENTITY_BYTES = 16
_SIZE = struct.Struct("!Q")


async def serve_objects(
    address: Address, key: TransportKey, store: HostStore, *, settings: TransportSettings = DEFAULT_SETTINGS
) -> Server:
    """Serve the objects of `store` at `address` to peers that hold `key`, until the server is closed.

    Raises what `transport.serve` raises.
    """
    answers: set[asyncio.Task[None]] = set()
    readers = Readers()

    def begin(connection: Connection) -> None:
        under_way: list[asyncio.Task[None]] = []

        def answer(frame: Frame) -> None:
            if any(not task.done() for task in under_way):
                connection.abort()  # many at once, from one that reads none of them, would fill the memory
                return
            task = asyncio.get_running_loop().create_task(_answer(connection, store, readers, frame))
            under_way[:] = [task]
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
    """Serve the objects of `store` until `lifeline` is at its end; `ready` gets the real address.

    `lifeline` is the reading end of a pipe whose writing end only the parent holds: it ends with it.

    Raises what `transport.serve` raises.
    """

    async def run() -> None:
        ended = asyncio.Event()
        server = await serve_objects(_everywhere(address), key, store)
        asyncio.get_running_loop().add_reader(lifeline, ended.set)
        ready(address if address.is_unix else replace(server.address, host=address.host))
        await ended.wait()
        asyncio.get_running_loop().remove_reader(lifeline)
        await server.close()

    asyncio.run(run())


def _everywhere(address: Address) -> Address:
    """Return the address of all interfaces for that of one: a port-forward comes by the loopback one."""
    with contextlib.suppress(ValueError):  # a name, or the path of a socket
        if not ip_address(address.host).is_loopback:
            return replace(address, host="::" if ":" in address.host else "0.0.0.0")
    return address


async def _answer(connection: Connection, store: HostStore, readers: Readers, frame: Frame) -> None:
    if frame.kind not in (_WANTED, _FORWARDED) or len(frame.body) < _IDENTITY_BYTES:
        connection.abort()
        return
    identity = int.from_bytes(frame.body[:_IDENTITY_BYTES])
    reader = frame.body[_IDENTITY_BYTES:].decode(errors="replace")
    coming, data = _look(store, identity)
    shared = data is None or len(data) >= SHARED_BYTES
    try:
        if data is None and not (coming and frame.kind == _FORWARDED):
            connection.send(_MISSING, frame.body)
        elif reader and shared and (other := readers.choose_other(identity, reader)):
            connection.send(_ELSEWHERE, other.encode())
        else:
            with readers.receiving(identity, reader if shared else ""):
                await _send(connection, store, identity, data)
    except ConnectionLostError:
        pass  # the reader has gone
    finally:
        if shared:
            store.unmap(identity)


def _look(store: HostStore, identity: ObjectId) -> tuple[bool, memoryview | None]:
    """Return whether an object is on its way to this host, and the object if it's there."""
    coming = store.is_locked(identity)  # first: it may come before the second look
    try:
        return coming, store.open(identity)
    except (ObjectLostError, StoreDirectoryError):
        return coming, None


async def _send(
    connection: Connection, store: HostStore, identity: ObjectId, data: memoryview | None
) -> None:
    while data is None:
        connection.send(_COMING, b"")
        await connection.drain()
        await asyncio.sleep(PAUSE_SECONDS)
        coming, data = _look(store, identity)
        if data is None and not coming:
            connection.send(_MISSING, b"")
            return
    connection.send(_FOUND, _SIZE.pack(len(data)))
    for start in range(0, len(data), CHUNK):
        connection.send(_CHUNK, b"", [data[start : start + CHUNK]])
        await connection.drain()
        # Which returns at once while there is room: others get their turn, and a lost peer is noticed.
        await asyncio.sleep(0)


def fetch(
    address: Address,
    key: TransportKey,
    identity: ObjectId,
    into: HostStore,
    *,
    home: str = "",
    settings: TransportSettings = SETTINGS,
) -> memoryview:
    """Return an object of the host whose server is at `address`, from a copy in this host's store.

    `home` is where this host serves its objects: the server may then send this reader to an earlier one, and
    later ones to this. Several that fetch the same object at once, in any process of this host, share one
    transfer. Where neither memory nor disk has room for the copy, the bytes are this process's own.

    Raises:
        ObjectLostError: that host hasn't got it.
        ConnectionLostError: the transfer was cut each time it was tried, or isn't what was promised.
        TransportError: no connection to it can be made.
    """

    def receive(room: _Room, reader: str) -> None:
        for last in (*(False,) * (TRIES - 1), True):
            try:
                if _follow(address, key, identity, reader, room, settings):
                    return
            except ConnectionLostError as error:
                if last or isinstance(error.__cause__, TimeoutError):
                    raise
            reader = ""  # from here on this comes from the server itself, whatever others do

    with contextlib.suppress(StoreFullError), into.exclusive(identity), closing(into.places()) as places:
        for disk in places:
            with contextlib.suppress(ObjectLostError):
                return into.open(identity)
            with contextlib.suppress(StoreFullError):
                receive(partial(_room_in, into, identity, disk=disk), home)
                return into.open(identity)
    own = bytearray()

    @contextlib.contextmanager
    def own_room(_: int) -> Iterator[_Write]:
        own.clear()
        yield own.extend

    receive(own_room, "")
    return memoryview(own).toreadonly()


def _follow(
    address: Address,
    key: TransportKey,
    identity: ObjectId,
    reader: str,
    room: _Room,
    settings: TransportSettings,
) -> bool:
    """Receive an object from a server, or from the reader it sends this one to; False if that one fails."""
    earlier = ""
    for _ in range(MAX_HOPS):
        kind = _FORWARDED if earlier else _WANTED
        try:
            source = Address.parse(earlier) if earlier else address
            chunks = _Chunks()
            with closing(
                BlockingConnection.connect(source, key, settings=settings, allocate=chunks.allocate)
            ) as connection:
                connection.send(kind, identity.to_bytes(_IDENTITY_BYTES) + reader.encode())
                other = _receive(connection, identity, room, chunks)
        except (ObjectLostError, TransportError):
            if not earlier:
                raise
            return False
        if not other:
            return True
        earlier = other
    return False


class PeerFetch:
    """`fetch` by the number of a host.

    Parameters: the number of this host (`home`); `address_of` gives where a host's objects are read, or
    nothing for one that is gone; the pool's `key`; the `store` of this host; `on_copied` is called with the
    copies that lie in it from then on, and with 0 bytes for those that this process removes from it.
    """

    def __init__(
        self,
        home: HostId,
        address_of: Callable[[HostId], str | None],
        key: TransportKey,
        store: HostStore,
        on_copied: Callable[[ObjectId, int], None],
    ) -> None:
        self._home = home
        self._address_of = address_of
        self._key = key
        self._store = store
        self._on_copied = on_copied
        store.on_evicted = lambda identity: on_copied(identity, 0)

    def __call__(self, identity: ObjectId, host: HostId) -> memoryview:
        """Return an object that lies on another host, from a copy in this host's store if it has room.

        Raises `ObjectLostError` if it can't be had from there.
        """
        data = self._fetch(identity, host)
        if self._store.contains(identity):
            self._on_copied(identity, len(data))
        return data

    def copy(self, identity: ObjectId, host: HostId) -> int:
        """Copy an object into this host's store; return its size, or 0 if that couldn't be done."""
        try:
            size = len(self._fetch(identity, host))
        except (ObjectLostError, SurroundingsError):
            return 0
        return size if self._store.contains(identity) else 0

    def _fetch(self, identity: ObjectId, host: HostId) -> memoryview:
        address = self._address_of(host)
        if not address:
            raise ObjectLostError(f"{identity:x}", f"host {host} is gone")
        try:
            home = self._address_of(self._home) or ""
            return fetch(Address.parse(address), self._key, identity, self._store, home=home)
        except TransportError as error:
            raise ObjectLostError(f"{identity:x}", error.message) from error


class _Chunks:
    """Memory for received chunks, used again: new memory is cleared by the kernel page for page."""

    def __init__(self) -> None:
        self._free: list[memoryview] = []

    def allocate(self, size: int) -> memoryview:
        """Return memory for a buffer, at most twice as much as that needs."""
        if not CHUNK // 2 <= size <= CHUNK:
            return allocate(size)
        return (self._free.pop() if self._free else memoryview(bytearray(CHUNK)))[:size]

    def release(self, buffer: memoryview) -> None:
        """Take back what `allocate` gave, once nobody reads it any more."""
        if len(whole := memoryview(buffer.obj)) == CHUNK:
            self._free.append(whole)


def _receive(
    connection: BlockingConnection,
    identity: ObjectId,
    room: _Room,
    chunks: _Chunks,
) -> str:
    """Receive what was asked for; return the address of the reader to ask instead, or nothing."""
    give_up_at = time.monotonic() + COMING_SECONDS
    while (frame := _next_frame(connection)).kind == _COMING:
        if time.monotonic() > give_up_at:  # its reader may be stopped, and this one needn't wait for it
            raise ConnectionLostError(connection.peer, f"it had no object within {COMING_SECONDS} s")
    if frame.kind == _ELSEWHERE:
        return bytes(frame.body).decode()
    if frame.kind == _MISSING:
        raise ObjectLostError(f"{identity:x}", f"{connection.peer} hasn't got it")
    if frame.kind != _FOUND or len(frame.body) != _SIZE.size:
        raise ConnectionLostError(connection.peer, f"it answered with a frame of kind {frame.kind}")
    (size,) = _SIZE.unpack(frame.body)
    with room(size) as write:
        received = 0
        while received < size:
            frame = _next_frame(connection)
            count = sum(map(len, frame.buffers))
            if frame.kind != _CHUNK or not 0 < count <= size - received:
                raise ConnectionLostError(
                    connection.peer, f"it sent {count} bytes after {received} of {size}"
                )
            for buffer in frame.buffers:
                write(buffer)
                chunks.release(buffer)
            received += count
    return ""


@contextlib.contextmanager
def _room_in(store: HostStore, identity: ObjectId, size: int, *, disk: bool) -> Iterator[_Write]:
    try:
        with store.receiving(identity, size, disk=disk, copy=True) as file:
            yield partial(_write, file)
    except StoreDirectoryError as error:
        if not disk:
            raise
        raise StoreFullError(size, (str(store.spill_directory),)) from error


def _next_frame(connection: BlockingConnection) -> Frame:
    try:
        return connection.receive(SILENCE_SECONDS)
    except TimeoutError as error:
        raise ConnectionLostError(connection.peer, f"it was silent for {SILENCE_SECONDS} s") from error


def _write(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]
