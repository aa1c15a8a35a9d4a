"""Connections of an asyncio program, the head of a pool: listen and dial.

Its counterpart for threads, the workers, is `blocking`; what both do to sockets is in `sockets`, what a
connection does once it's made in `connection`.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from fray.errors import FrameError, HandshakeError, PeerUnreachableError, TransportError
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.connection import Connection
from fray.runtime.pool.transport.handshake import Role
from fray.runtime.pool.transport.keys import ListenerTls, TransportKey
from fray.runtime.pool.transport.refusals import RefusalCounts
from fray.runtime.pool.transport.settings import DEFAULT_SETTINGS, TransportSettings
from fray.runtime.pool.transport.sockets import (
    check_user,
    listening_socket,
    peer_name,
    source_of,
    tls_refusal,
    tune,
    unlink_socket,
)
from fray.runtime.pool.transport.tls import TlsLayer

__all__ = ["Connection", "OnConnection", "Server", "connect", "serve"]

OnConnection = Callable[[Connection], None]
_ACCEPT_PAUSE_SECONDS = 0.5
"""Pause when the process is out of file descriptors or memory: something has to end first."""
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_logger = logging.getLogger(__name__)


class Server:
    """A listening socket and the connections that it has accepted; made by `serve`."""

    def __init__(
        self,
        address: Address,
        key: TransportKey,
        on_connection: OnConnection,
        *,
        settings: TransportSettings,
        refusals: RefusalCounts,
    ) -> None:
        self._key = key
        self._tls = None if address.is_unix else ListenerTls(key)
        self._listener = listening_socket(address)
        port = 0 if address.is_unix else self._listener.getsockname()[1]
        self.address = address if address.is_unix else replace(address, port=port, last=0)
        """Where it listens; the port is the real one."""
        self.refusals = refusals
        """Peers that were cut off, by reason."""
        self._on_connection = on_connection
        self._settings = settings
        self._read_buffer = memoryview(bytearray(settings.read_size))
        self._tls_buffer = memoryview(bytearray(0 if self._tls is None else settings.read_size))
        self._strangers = asyncio.Semaphore(settings.max_handshakes)
        self._handshakes: Counter[str] = Counter()
        """How many of them each network address has."""
        self._admissions: set[asyncio.Task[None]] = set()
        self._unclaimed: set[socket.socket] = set()
        """Accepted for an admission that hasn't begun: if it is cancelled before, nobody else closes them."""
        self._connections: set[Connection] = set()
        self._accepting = asyncio.create_task(self._accept())

    async def close(self) -> None:
        """Stop listening and abort all connections; return when each `on_lost` was called."""
        self._accepting.cancel()
        await asyncio.gather(self._accepting, return_exceptions=True)
        for admission in self._admissions:
            admission.cancel()
        await asyncio.gather(*self._admissions, return_exceptions=True)
        for unclaimed in self._unclaimed:
            unclaimed.close()
        self._listener.close()
        if self.address.is_unix:
            unlink_socket(self.address)
        for connection in list(self._connections):
            connection.abort()
            await connection.lost()

    def began(self, connection: Connection) -> None:
        """Take in a connection whose peer has proved itself."""
        self._connections.add(connection)
        self._on_connection(connection)

    def ended(self, connection: Connection, reason: TransportError) -> None:
        """Forget a connection; count it if its peer sent what it must not send."""
        self._connections.discard(connection)
        if isinstance(reason, FrameError):
            self.refusals.count(reason.reason)
            _logger.warning("%s (%s)", reason.message, connection.peer)

    async def _accept(self) -> None:
        while True:
            await self._strangers.acquire()
            accepted = await self._accepted()
            source = source_of(accepted)
            if source and self._handshakes[source] >= self._settings.max_handshakes_per_source:
                accepted.close()
                self.refusals.count("crowded")
                _logger.warning("%s has too many connections that prove nothing", source)
                self._strangers.release()
                continue
            self._handshakes[source] += 1
            self._unclaimed.add(accepted)
            admission = asyncio.create_task(self._admit(accepted))
            self._admissions.add(admission)
            admission.add_done_callback(functools.partial(self._admission_ended, source))

    async def _accepted(self) -> socket.socket:
        # Not by `loop.sock_accept`: cancelled in the turn in which a peer comes, it would lose the socket.
        while True:
            try:
                accepted, _ = self._listener.accept()
            except BlockingIOError:
                await self._readable()
            except OSError as error:
                # accept(2): other errors are those of the one connection that was coming in.
                if error.errno in _EXHAUSTED:
                    _logger.error("can't accept connections on %s: %s", self.address, error)
                    await asyncio.sleep(_ACCEPT_PAUSE_SECONDS)
            else:
                accepted.setblocking(False)
                return accepted

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        coming = asyncio.Event()
        loop.add_reader(self._listener, coming.set)
        try:
            await coming.wait()
        finally:
            loop.remove_reader(self._listener)

    def _admission_ended(self, source: str, admission: asyncio.Task[None]) -> None:
        self._admissions.discard(admission)
        self._handshakes[source] -= 1
        if not self._handshakes[source]:
            del self._handshakes[source]
        self._strangers.release()
        if not admission.cancelled() and (error := admission.exception()) is not None:
            _logger.error("a connection to %s could not be made", self.address, exc_info=error)

    async def _admit(self, accepted: socket.socket) -> None:
        """See one peer through TLS and handshake, or cut it off and count why."""
        self._unclaimed.discard(accepted)
        connection = Connection(
            self._key.handshake(Role.LISTENER),
            self,
            peer=peer_name(accepted),
            settings=self._settings,
            read_buffer=self._read_buffer,
        )
        try:
            check_user(accepted, self.address)
            tune(accepted, self._settings.silence_seconds)
        except HandshakeError as error:
            accepted.close()
            self._refuse(connection, error)
            return
        except OSError as error:  # the peer has gone already
            accepted.close()
            self._refuse(connection, HandshakeError("truncated", str(error)))
            return
        try:
            async with asyncio.timeout(self._settings.handshake_seconds):
                context = None if self._tls is None else self._tls.context()
                await _adopt(connection, accepted, context, self._settings, self._tls_buffer)
                await connection.authenticated
        except HandshakeError as error:
            self._refuse(connection, error)
        except OSError as error:
            self._refuse(connection, HandshakeError(tls_refusal(error), str(error) or "no proof in time"))
        finally:
            connection.give_up()

    def _refuse(self, connection: Connection, error: HandshakeError) -> None:
        # The deadline can fall into the turn of the loop in which the peer was accepted.
        if connection.began:
            return
        self.refusals.count(error.reason)
        _logger.warning("%s (%s)", error.message, connection.peer)
        connection.refuse(error)


async def _adopt(
    connection: Connection,
    connected: socket.socket,
    context: ssl.SSLContext | None,
    settings: TransportSettings,
    read_buffer: memoryview,
) -> None:
    loop = asyncio.get_running_loop()
    if context is None:
        await loop.connect_accepted_socket(lambda: connection, connected)
        return
    seconds = settings.handshake_seconds
    layer = TlsLayer(context, connection, server_side=True, read_buffer=read_buffer, close_seconds=seconds)
    await loop.connect_accepted_socket(lambda: layer, connected)
    await layer.begin()


async def serve(
    address: Address,
    key: TransportKey,
    on_connection: OnConnection,
    *,
    settings: TransportSettings = DEFAULT_SETTINGS,
    refusals: RefusalCounts | None = None,
) -> Server:
    """Listen on `address`; `on_connection` is called with each peer that has proved that it holds `key`.

    Raises `AddressError` if the address can't be used, `TransportKeyError` if TCP lacks a certificate.
    """
    return Server(
        address,
        key,
        on_connection,
        settings=settings,
        refusals=RefusalCounts() if refusals is None else refusals,
    )


class _Dialler:
    """Owns the one connection that `connect` makes."""

    def __init__(self, on_connection: OnConnection) -> None:
        self.began = on_connection

    def ended(self, connection: Connection, reason: TransportError) -> None:
        """Nothing is kept about it: the connection's own callback tells its user."""


async def connect(
    address: Address,
    key: TransportKey,
    on_connection: OnConnection,
    *,
    settings: TransportSettings = DEFAULT_SETTINGS,
) -> Connection:
    """Dial `address`; return the connection once both sides have proved themselves.

    `on_connection` is called before the first frame can arrive.

    Raises `PeerUnreachableError` if nobody answers, `HandshakeError` if who answers isn't of this pool or
    doesn't accept us, `TransportKeyError` if TCP lacks a certificate.
    """
    connection = Connection(
        key.handshake(Role.DIALLER),
        _Dialler(on_connection),
        peer=str(address),
        settings=settings,
        read_buffer=memoryview(bytearray(settings.read_size)),
    )
    context = None if address.is_unix else key.tls_context(Role.DIALLER)
    try:
        async with asyncio.timeout(settings.handshake_seconds):
            await _dial(address, connection, context, settings)
            await connection.authenticated
    except ssl.SSLError as error:
        raise HandshakeError(tls_refusal(error), str(error)) from error
    except TimeoutError as error:
        if connection.connected:
            raise HandshakeError("timeout", f"no proof from {address} in time") from error
        raise PeerUnreachableError(str(address), "no answer in time") from error
    except (ConnectionResetError, ConnectionAbortedError, BrokenPipeError) as error:
        raise HandshakeError("truncated", f"{address} ended the connection: {error}") from error
    except OSError as error:
        raise PeerUnreachableError(str(address), error.strerror or str(error)) from error
    finally:
        connection.give_up()
    return connection


async def _dial(
    address: Address, connection: Connection, context: ssl.SSLContext | None, settings: TransportSettings
) -> None:
    loop = asyncio.get_running_loop()
    if context is not None:
        buffer, seconds = memoryview(bytearray(settings.read_size)), settings.handshake_seconds
        layer = TlsLayer(context, connection, server_side=False, read_buffer=buffer, close_seconds=seconds)
        stream, _ = await loop.create_connection(lambda: layer, address.host, address.port)
        tune(stream.get_extra_info("socket"), settings.silence_seconds)
        await layer.begin()
        return
    dialled = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        dialled.setblocking(False)
        await loop.sock_connect(dialled, address.path)
        check_user(dialled, address)
    except BaseException:
        dialled.close()
        raise
    await loop.create_unix_connection(lambda: connection, sock=dialled)
