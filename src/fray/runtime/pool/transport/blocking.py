"""A connection for programs of threads, the workers of a pool: the blocking counterpart of `transport`."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import NoReturn

from fray.errors import ConnectionLostError, HandshakeError, PeerUnreachableError
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.frames import (
    Allocate,
    BytesLike,
    Frame,
    FrameDecoder,
    allocate,
    encode_frame,
    next_sequence,
)
from fray.runtime.pool.transport.handshake import MESSAGE_SIZE, Handshake, Role
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.transport.settings import DEFAULT_SETTINGS, TransportSettings
from fray.runtime.pool.transport.socket_streams import PlainStream, SocketStream, TlsStream
from fray.runtime.pool.transport.sockets import check_user, tls_refusal, tune

__all__ = ["BlockingConnection"]


class BlockingConnection:
    """One authenticated connection; made by `connect`.

    Any thread may `send` and `close`; one at a time receives, others wait for it.
    """

    def __init__(
        self,
        stream: SocketStream,
        decoder: FrameDecoder,
        *,
        peer: str,
        settings: TransportSettings,
        early: bytes,
    ) -> None:
        self.peer = peer
        """The other end, in words."""
        self._stream = stream
        self._decoder = decoder
        self._limits = settings.limits
        self._read_buffer = memoryview(bytearray(settings.read_size))
        self._frames = deque(decoder.feed(early))
        # Reentrant, since a signal's handler may close the connection while its thread is in a call.
        self._receiving = threading.RLock()
        self._sending = threading.RLock()
        self._sequence = 0
        self._send_failure = ""
        self._closed = False

    @classmethod
    def connect(
        cls,
        address: Address,
        key: TransportKey,
        *,
        settings: TransportSettings = DEFAULT_SETTINGS,
        allocate: Allocate = allocate,
    ) -> BlockingConnection:
        """Dial `address`; return the connection once both sides have proved themselves.

        `allocate` gives the memory of received buffers.

        Raises `PeerUnreachableError` if nobody answers, `HandshakeError` if who answers isn't of this pool
        or doesn't accept us, `TransportKeyError` if TCP lacks a certificate.
        """
        deadline = time.monotonic() + settings.handshake_seconds
        context = None if address.is_unix else key.tls_context(Role.DIALLER)
        connected = _dial(address, deadline, settings)
        try:
            stream = PlainStream(connected) if context is None else _secure(connected, context, deadline)
            early = _authenticate(stream, key.handshake(Role.DIALLER), deadline)
            decoder = FrameDecoder(settings.limits, allocate=allocate)
            return cls(stream, decoder, peer=str(address), settings=settings, early=early)
        except BaseException:
            connected.close()
            raise

    def send(
        self, kind: int, body: bytes | bytearray, buffers: Sequence[BytesLike] = (), *, flags: int = 0
    ) -> None:
        """Send one frame; return when the kernel has all of it.

        Raises `FrameTooLargeError` (the connection goes on), or `ConnectionLostError`.
        """
        with self._sending:
            if self._closed or self._send_failure:
                raise ConnectionLostError(self.peer, self._send_failure or "this side closed it")
            parts = encode_frame(self._sequence, kind, body, buffers, flags=flags, limits=self._limits)
            self._sequence = next_sequence(self._sequence)
            try:
                self._stream.send(parts)
            except OSError as error:
                # Part of the frame may be out: nothing can follow it. What has come can still be received.
                self._send_failure = str(error)
                raise ConnectionLostError(self.peer, self._send_failure) from error

    def receive(self, timeout: float | None = None) -> Frame:
        """Return the next frame, at once if it has come with an earlier one.

        `timeout` is in seconds.

        Raises `TimeoutError` (nothing is lost), `ConnectionLostError` or a `FrameError`.
        """
        with self._receiving:
            self._await_frame(timeout)
            return self._frames.popleft()

    def receive_all(self, timeout: float | None = None) -> list[Frame]:
        """Return the frames that have come, at least one; `timeout` and errors as with `receive`."""
        with self._receiving:
            self._await_frame(timeout)
            frames = list(self._frames)
            self._frames.clear()
            return frames

    @property
    def pending(self) -> bool:
        """Whether there is more to receive although the descriptor needn't be readable."""
        return bool(self._frames) or self._stream.pending

    def fileno(self) -> int:
        """Return the socket's descriptor, for selectors.

        Readable doesn't mean that a whole frame has come; and what came with an earlier frame doesn't make it
        readable: wait on it only while nothing is `pending`.
        """
        return self._stream.fileno()

    def close(self) -> None:
        """End the connection; a thread that waits in `receive` or `send` gets `ConnectionLostError`."""
        if self._closed:
            return
        self._closed = True
        self._stream.shutdown()
        # Only when no thread is in a call, since the system may give the descriptor to another file.
        with self._sending, self._receiving:
            self._stream.close()

    def _await_frame(self, timeout: float | None) -> None:
        """Read until at least one frame is there."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._frames:
            target = self._decoder.target()
            left = None if deadline is None else deadline - time.monotonic()
            try:
                count = self._stream.receive_into(self._read_buffer if target is None else target, left)
            except OSError as error:
                self._raise_lost(error)
            if count is None:
                raise TimeoutError(f"no frame from {self.peer} in time")
            if count == 0:
                self._raise_lost(None)
            if target is None:
                self._frames.extend(self._decoder.feed(self._read_buffer[:count]))
            else:
                self._frames.extend(self._decoder.filled(count))

    def _raise_lost(self, error: OSError | None) -> NoReturn:
        if self._closed:
            raise ConnectionLostError(self.peer, "this side closed it") from error
        self._decoder.close()
        raise ConnectionLostError(self.peer, str(error or "the peer closed it")) from error


def _dial(address: Address, deadline: float, settings: TransportSettings) -> socket.socket:
    try:
        left = _left(deadline)
        if address.is_unix:
            return _dial_unix(address, left)
        return _dial_tcp(address, min(left, settings.dial_seconds), settings.silence_seconds)
    except OSError as error:
        raise PeerUnreachableError(str(address), error.strerror or str(error)) from error


def _dial_tcp(address: Address, timeout: float, silence_seconds: int) -> socket.socket:
    connected = socket.create_connection((address.host, address.port), timeout=timeout)
    tune(connected, silence_seconds)
    return connected


def _dial_unix(address: Address, timeout: float) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.settimeout(timeout)
        connected.connect(address.path)
        check_user(connected, address)
    except BaseException:
        connected.close()
        raise
    return connected


def _secure(connected: socket.socket, context: ssl.SSLContext, deadline: float) -> TlsStream:
    """Agree on TLS before `deadline`."""
    stream = TlsStream(connected, context)
    try:
        stream.agree(deadline)
    except OSError as error:
        raise HandshakeError(tls_refusal(error), str(error)) from error
    return stream


def _left(deadline: float) -> float:
    """Return the seconds left for the whole: a peer that sends a byte now and then doesn't gain time."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the peer was too slow")
    return left


def _authenticate(stream: SocketStream, handshake: Handshake, deadline: float) -> bytes:
    """Go through the handshake and return what came after it."""
    buffer = memoryview(bytearray(MESSAGE_SIZE))
    try:
        while not handshake.done:
            count = stream.receive_into(buffer, _left(deadline))
            if count is None:
                continue  # there is no time left
            if not count:
                handshake.close()
            stream.send([handshake.feed(buffer[:count])])
    except OSError as error:
        raise HandshakeError(tls_refusal(error), str(error)) from error
    return handshake.leftover()
