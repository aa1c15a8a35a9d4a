"""One connection of an asyncio program, from its first byte: who it is with, what it receives, what it sends.

`transport` makes connections and decides how long their handshake may take; nothing here opens a socket.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from fray.errors import ConnectionLostError, FrameError, HandshakeError, TransportError
from fray.runtime.pool.transport.frames import BytesLike, Frame, FrameDecoder, encode_frame
from fray.runtime.pool.transport.handshake import Handshake, refusal
from fray.runtime.pool.transport.settings import TransportSettings
from fray.runtime.pool.transport.sockets import tls_refusal
from fray.runtime.pool.transport.tls import TlsLayer

__all__ = ["Connection", "ConnectionOwner"]

_WRITE_SIZE = 256 * 1024
"""Bytes handed to the event loop at once: it copies what the kernel doesn't take."""


class ConnectionOwner(Protocol):
    """Who made a connection and hears of its beginning and end."""

    def began(self, connection: Connection, /) -> None:
        """The peer has proved itself; the first frame comes after this."""

    def ended(self, connection: Connection, reason: TransportError, /) -> None:
        """A connection that began is over."""


class Connection(asyncio.BufferedProtocol):
    """One authenticated connection; use it on the event loop's thread only. Made by `serve` and `connect`.

    Set the callbacks within `on_connection`; none is called before that. An exception of a callback ends the
    connection and is reported to the loop's exception handler.
    """

    def __init__(
        self,
        handshake: Handshake,
        owner: ConnectionOwner,
        *,
        peer: str,
        settings: TransportSettings,
        read_buffer: memoryview,
    ) -> None:
        self.peer = peer
        """The other end, in words."""
        self.on_frame: Callable[[Frame], None] = _no_receiver
        """Called with each frame, in order."""
        self.on_lost: Callable[[TransportError], None] = _ignore
        """Called once, last: `ConnectionLostError` (either side or the network) or a `FrameError`."""
        self.on_pause: Callable[[bool], None] = _ignore
        """Called with True when more than `high_water` bytes wait to be sent, with False when few are left.

        May be called within `send`."""
        self.authenticated: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the peer has proved itself; once it is done otherwise, the peer never will."""
        self._handshake = handshake
        self._owner = owner
        self._settings = settings
        self._decoder = FrameDecoder(settings.limits)
        # Shared by the connections of one owner: between get_buffer and buffer_updated nothing else runs.
        self._read_buffer = read_buffer
        self._filling = False
        self.connected = False
        """Whether there has been a connection, authenticated or not."""
        self._transport: asyncio.Transport | TlsLayer | None = None
        self._failure: TransportError | None = None
        self._closing = False
        self._gone = asyncio.Event()
        self._sequence = 0
        self._queue: deque[BytesLike] = deque()
        self._queued = 0
        self._flush_scheduled = False
        self._transport_full = False
        self._written = 0
        self._stall: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def began(self) -> bool:
        """Whether the peer has proved itself, over by now or not."""
        proved = self.authenticated
        return proved.done() and not proved.cancelled() and proved.exception() is None

    def send(
        self,
        kind: int,
        body: bytes | bytearray,
        buffers: Sequence[BytesLike] = (),
        *,
        flags: int = 0,
        at_once: bool = False,
    ) -> None:
        """Queue one frame; all that is queued within one turn of the loop leaves together.

        `at_once`: a small one doesn't wait for others of its turn, if none is queued.

        Never blocks and never drops: watch `on_pause` or await `drain`. Who doesn't do so has the connection
        ended where more than `most_unread` bytes wait for a peer that reads nothing any more. Buffers aren't
        copied and must stay as they are until they are sent.

        Raises `FrameTooLargeError` (the connection goes on), or `ConnectionLostError`.
        """
        if self._closing:
            raise ConnectionLostError(self.peer, "it is closed")
        parts = encode_frame(self._sequence, kind, body, buffers, flags=flags, limits=self._settings.limits)
        self._sequence += 1
        transport = self._transport
        if at_once and len(parts) == 1 and transport and not (self._queue or self._transport_full):
            # May call pause_writing before it returns.
            transport.write(parts[0])
            return
        self._queue.extend(parts)
        self._queued += sum(map(len, parts))
        if self._queued >= _WRITE_SIZE:
            self._flush()
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush_scheduled_now)
        if self._queued > self._settings.high_water and self._writable.is_set():
            self._writable.clear()
            self.on_pause(True)
        if self._queued > self._settings.most_unread and self._stall is None:
            self._watch_for_stall()

    async def drain(self) -> None:
        """Return when few bytes wait to be sent.

        Raises `ConnectionLostError`.
        """
        await self._writable.wait()
        if self._gone.is_set():
            raise ConnectionLostError(self.peer, "it is closed")

    def close(self) -> None:
        """Send what is queued, then end the connection; no frame is received any more."""
        self._closing = True
        self._flush()

    def give_up(self) -> None:
        """Wait no longer for the peer to prove itself: end the connection unless it has."""
        if not self.began:
            # Nobody awaits it any more, so nobody would take the reason of an end that comes later.
            self.authenticated.cancel()
            self.abort()

    def abort(self) -> None:
        """End the connection at once; what is queued is dropped."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    async def lost(self) -> None:
        """Return when the connection is over and `on_lost` was called."""
        await self._gone.wait()

    def refuse(self, error: HandshakeError) -> None:
        """Tell the peer why it is cut off, and do it; only before it is authenticated."""
        if self._transport is not None:
            self._transport.write(refusal(error))
        # Not close(): with TLS that would wait for the peer's consent.
        self.abort()

    def connection_made(self, transport: asyncio.BaseTransport | TlsLayer) -> None:
        """Begin the handshake (called by the event loop, or by what does TLS for it)."""
        assert isinstance(transport, asyncio.Transport | TlsLayer)
        self._transport = transport
        self.connected = True
        transport.set_write_buffer_limits(high=_WRITE_SIZE)
        opening = self._handshake.start()
        if opening:
            transport.write(opening)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (the signature is asyncio's)
        """Return where the event loop is to put the next bytes."""
        target = self._decoder.target() if self._failure is None else None
        self._filling = target is not None
        return self._read_buffer if target is None else target

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that were put there."""
        if self._closing or self._failure is not None:
            return
        if not self._handshake.done:
            self._authenticate(self._read_buffer[:nbytes])
            return
        try:
            if self._filling:
                frames = self._decoder.filled(nbytes)
            else:
                frames = self._decoder.feed(self._read_buffer[:nbytes])
        except FrameError as error:
            self._cut_off(error)
            return
        self._deliver(frames)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody that it is over (called by the event loop, once)."""
        # asyncio would end a transport anew that was closed, has sent all it had, and is aborted then.
        self._transport = None
        if self._stall is not None:
            self._stall.cancel()
        try:
            if self.began:
                reason = self._reason(exc)
                self._owner.ended(self, reason)
                self.on_lost(reason)
            elif not self.authenticated.done():
                self.authenticated.set_exception(_unproven(exc))
        finally:
            self._closing = True
            self._queue.clear()
            self._queued = 0
            self._gone.set()
            self._writable.set()

    def pause_writing(self) -> None:
        """Stop handing bytes to the event loop: the kernel takes no more."""
        self._transport_full = True

    def resume_writing(self) -> None:
        """Hand on what has been waiting."""
        self._transport_full = False
        self._flush()

    def _authenticate(self, data: memoryview) -> None:
        # The one that waits for the future may have given up (deadline): then the peer comes too late.
        if self._transport is None or self.authenticated.done():
            return
        try:
            answer = self._handshake.feed(data)
        except HandshakeError as error:
            self._failure = error
            self.authenticated.set_exception(error)
            return
        if answer:
            self._transport.write(answer)
        if not self._handshake.done:
            return
        self.authenticated.set_result(None)
        self._owner.began(self)
        try:
            frames = self._decoder.feed(self._handshake.leftover())
        except FrameError as error:
            self._cut_off(error)
            return
        self._deliver(frames)

    def _deliver(self, frames: list[Frame]) -> None:
        for frame in frames:
            if self._closing:
                break
            try:
                self.on_frame(frame)
            except OSError as error:
                # asyncio takes it for one of the socket, and reports it in its debug mode only.
                context = {"message": f"a frame of {self.peer} was not dealt with", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)
                raise

    def _cut_off(self, error: FrameError) -> None:
        self._failure = error
        self.abort()

    def _reason(self, exc: Exception | None) -> TransportError:
        if self._failure is not None:
            return self._failure
        if self._closing:
            return ConnectionLostError(self.peer, "this side closed it")
        try:
            self._decoder.close()
        except FrameError as error:
            return error
        reason = ConnectionLostError(self.peer, "the peer closed it" if exc is None else repr(exc))
        reason.__cause__ = exc
        return reason

    def _watch_for_stall(self) -> None:
        # A timer, not the time of the last write: where this loop itself stood still, it writes first.
        loop = asyncio.get_running_loop()
        self._stall = loop.call_later(self._settings.stalled_seconds, self._end_if_stalled, self._written)

    def _end_if_stalled(self, written: int) -> None:
        self._stall = None
        if self._queued <= self._settings.most_unread:
            return
        if self._written > written:
            self._watch_for_stall()
            return
        seconds = self._settings.stalled_seconds
        reason = f"it has read nothing for {seconds:g} s, and {self._queued:,} bytes wait for it"
        self._failure = ConnectionLostError(self.peer, reason)
        self.abort()

    def _flush_scheduled_now(self) -> None:
        self._flush_scheduled = False
        self._flush()

    def _flush(self) -> None:
        transport = self._transport
        if transport is None:
            return
        while self._queue and not self._transport_full:
            self._written += 1
            # May call pause_writing before it returns.
            transport.write(self._next_write())
        if self._queued <= self._settings.low_water and not self._writable.is_set():
            self._writable.set()
            self.on_pause(False)
        if self._closing and not self._queue:
            # Not now: asyncio ends a transport twice that is closed within its own resume_writing.
            asyncio.get_running_loop().call_soon(transport.close)

    def _next_write(self) -> BytesLike:
        """Take from the queue a slice of a large part, or small parts joined."""
        queue = self._queue
        size = len(queue[0])
        if size > _WRITE_SIZE:
            part = memoryview(queue[0])
            queue[0] = part[_WRITE_SIZE:]
            self._queued -= _WRITE_SIZE
            return part[:_WRITE_SIZE]
        parts = [queue.popleft()]
        while queue and size + len(queue[0]) <= _WRITE_SIZE:
            size += len(queue[0])
            parts.append(queue.popleft())
        self._queued -= size
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _unproven(exc: Exception | None) -> HandshakeError:
    """Return why a connection ended before the peer had proved itself."""
    if isinstance(exc, ssl.SSLError):
        # In TLS 1.3 a dialler hears only now that the listener doesn't trust its certificate.
        error = HandshakeError(tls_refusal(exc), str(exc))
    else:
        error = HandshakeError("truncated", "the peer ended the connection within the handshake")
    error.__cause__ = exc
    return error


def _no_receiver(frame: Frame) -> None:
    raise RuntimeError(f"nobody receives frame {frame.sequence}: on_connection has to set on_frame")


def _ignore(_: object) -> None:
    """Do nothing."""
