"""Blocking reads and writes of many parts on a plain socket and on a TLS one, under one interface.

One thread may read while another writes. Frames and peers aren't known here.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from fray.runtime.pool.transport.frames import BytesLike

__all__ = ["PlainStream", "SocketStream", "TlsStream"]

_PARTS_PER_CALL = 512
"""Below IOV_MAX (1024 on Linux and macOS), above which sendmsg refuses."""
_TLS_WRITE_SIZE = 256 * 1024
_TLS_READ_SIZE = 256 * 1024
"""Bytes that are decrypted at most before a thread that sends gets its turn."""


class SocketStream(Protocol):
    """A connected socket; errors are those of the system (`OSError`)."""

    @property
    def pending(self) -> bool:
        """Whether bytes are here that were read from the network with others, or the end."""
        ...

    def receive_into(self, target: memoryview, timeout: float | None) -> int | None:
        """Wait for bytes and put them into `target`; return how many: 0 at the end, None after `timeout`."""

    def send(self, parts: Sequence[BytesLike]) -> None:
        """Write all parts, in order; one thread at a time."""

    def fileno(self) -> int:
        """Return the socket's descriptor."""

    def shutdown(self) -> None:
        """End both directions, so that threads that wait in a call return from it."""

    def close(self) -> None:
        """Give the socket back to the system; no thread may be in a call."""


def _wait(descriptor: int, events: int, timeout: float | None) -> bool:
    if descriptor < 0:
        raise OSError(errno.EBADF, "the socket is closed")
    poll = select.poll()
    poll.register(descriptor, events)
    return bool(poll.poll(None if timeout is None else max(timeout, 0) * 1000))


class PlainStream:
    """A blocking socket without TLS."""

    __slots__ = ("_socket",)

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(True)
        self._socket = connected

    @property
    def pending(self) -> bool:
        """There are none: all is read from the kernel."""
        return False

    def receive_into(self, target: memoryview, timeout: float | None) -> int | None:
        """Wait for bytes and put them into `target`."""
        if timeout is not None and not _wait(self._socket.fileno(), select.POLLIN, timeout):
            return None
        return self._socket.recv_into(target)

    def send(self, parts: Sequence[BytesLike]) -> None:
        """Write all parts, many with one system call."""
        if len(parts) == 1:
            self._socket.sendall(parts[0])
            return
        waiting = [memoryview(part) for part in reversed(parts) if len(part)]
        while waiting:
            sent = self._socket.sendmsg(waiting[: -_PARTS_PER_CALL - 1 : -1])
            while waiting and sent >= len(waiting[-1]):
                sent -= len(waiting.pop())
            if sent:
                waiting[-1] = waiting[-1][sent:]

    def send_at_once(self, data: bytes) -> None:
        """Write what there is room for, and drop the rest."""
        with contextlib.suppress(OSError):  # there is none, or the peer has gone
            self._socket.send(data, socket.MSG_DONTWAIT)

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def shutdown(self) -> None:
        """End both directions."""
        with contextlib.suppress(OSError):  # the peer may have gone before
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()


class TlsStream:
    """A socket with TLS, once `agree` has returned.

    OpenSSL works in memory here, and the socket is read with few large calls. On a socket of its own, OpenSSL
    takes two for each record of 16 KiB, and sender and reader of a large object wait for each other.

    It allows one call at a time for a connection, reading or writing. So a lock is held for each call, but
    not while waiting for the network.
    """

    __slots__ = (
        "_encrypted", "_ended", "_failure", "_incoming", "_lock", "_more", "_outgoing", "_sending", "_stream",
        "_tls",
    )  # fmt: skip

    def __init__(self, connected: socket.socket, context: ssl.SSLContext) -> None:
        self._stream = PlainStream(connected)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing)
        self._encrypted = memoryview(bytearray(_TLS_READ_SIZE))
        self._lock = threading.RLock()
        self._more = False
        """Whether the last `target` wasn't all: there was no room in it, or the end comes after it."""
        self._sending = False
        """Whether there may be encrypted bytes that have still to be written."""
        self._ended = False
        """Whether the peer has said that it was all."""
        self._failure: OSError | None = None
        """What ended the connection after bytes that were given out first; the next read raises it."""

    def agree(self, deadline: float) -> None:
        """Agree on TLS with the peer, until `deadline` on the monotonic clock.

        Raises `TimeoutError`, or another `OSError` if they can't agree.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                done = False
            except ssl.SSLError:
                self._stream.send([self._outgoing.read()])  # it says why
                raise
            else:
                done = True
            self._stream.send([self._outgoing.read()])
            if done:
                return
            received = self._receive(deadline)
            if received is None:
                raise TimeoutError("the peer was too slow")
            if not received:
                raise ConnectionResetError("the peer ended the connection")

    @property
    def pending(self) -> bool:
        """Whether bytes are here that no `target` had room for, or the end of the connection."""
        return self._more

    def receive_into(self, target: memoryview, timeout: float | None) -> int | None:
        """Wait for bytes and put them into `target`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            count = self._decrypt(target)
            if count or self._ended:
                return count
            received = self._receive(deadline)
            if not received:
                return received

    def send(self, parts: Sequence[BytesLike]) -> None:
        """Write all parts, small ones joined: TLS has no sendmsg."""
        for piece in _pieces(parts):
            with self._lock:
                self._sending = True
                self._tls.write(piece)
                encrypted = self._outgoing.read()
            self._stream.send([encrypted])
            self._sending = False

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._stream.fileno()

    def shutdown(self) -> None:
        """End both directions, saying so to the peer if there is room for it."""
        with self._lock:
            if not self._sending:  # else it would come in the middle of other words
                with contextlib.suppress(OSError, ValueError):
                    self._tls.unwrap()
                self._stream.send_at_once(self._outgoing.read())
            self._stream.shutdown()

    def close(self) -> None:
        """Give the socket back."""
        self._stream.close()

    def _receive(self, deadline: float | None) -> int | None:
        """Wait for encrypted bytes; return how many have come: 0 at the end, None at the deadline."""
        count = self._stream.receive_into(
            self._encrypted, None if deadline is None else deadline - time.monotonic()
        )
        if count:
            self._incoming.write(self._encrypted[:count])
        return count

    def _decrypt(self, target: memoryview) -> int:
        """Fill `target` with what has come; return how many bytes that were."""
        total = 0
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._more = False
            # A read that finds nothing raises: without the look, that would be one for each message.
            while self._incoming.pending or self._tls.pending():
                if total == len(target):
                    self._more = True
                    break
                try:
                    count: int = self._tls.read(len(target) - total, target[total:])  # type: ignore[assignment]
                except ssl.SSLWantReadError:  # the rest of a record is on its way
                    break
                except OSError as error:
                    if not total:
                        raise
                    self._failure = error  # OpenSSL would tell the next call of a plain end
                    self._more = True
                    break
                if not count:
                    self._ended = self._more = True
                    break
                total += count
        return total


def _pieces(parts: Sequence[BytesLike]) -> Iterable[BytesLike]:
    """Join small parts and cut large ones, so that each piece is worth one call."""
    if len(parts) == 1 and len(parts[0]) <= _TLS_WRITE_SIZE:
        return parts
    return _cut(parts)


def _cut(parts: Sequence[BytesLike]) -> Iterator[BytesLike]:
    small: list[BytesLike] = []
    size = 0
    for part in parts:
        if size + len(part) <= _TLS_WRITE_SIZE:
            small.append(part)
            size += len(part)
            continue
        if size:
            yield b"".join(small)
        small, size = [], 0
        view = memoryview(part)
        for start in range(0, len(view), _TLS_WRITE_SIZE):
            yield view[start : start + _TLS_WRITE_SIZE]
    if size:
        yield b"".join(small)
