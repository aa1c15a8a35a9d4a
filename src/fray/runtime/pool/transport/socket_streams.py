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
"""Bytes that are read at most before a thread that sends gets its turn."""
_TLS_RECORD = 16 * 1024
"""Bytes of a full record (RFC 8446, 5.1): OpenSSL reads no more than one in a call."""


class SocketStream(Protocol):
    """A connected socket; errors are those of the system (`OSError`)."""

    @property
    def pending(self) -> bool:
        """Whether bytes are here that were read from the network with others."""
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


def _shut_down(connected: socket.socket) -> None:
    # The base class's: SSLSocket's own forgets its TLS state, which another thread may be using.
    with contextlib.suppress(OSError):  # the peer may have gone before
        socket.socket.shutdown(connected, socket.SHUT_RDWR)


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

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def shutdown(self) -> None:
        """End both directions."""
        _shut_down(self._socket)

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()


class TlsStream:
    """A TLS socket.

    OpenSSL allows one call at a time for a connection, reading or writing. So the socket never blocks: a
    lock is held for each call, but not while waiting for the network.
    """

    __slots__ = ("_failure", "_lock", "_socket")

    def __init__(self, connected: ssl.SSLSocket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._lock = threading.RLock()
        self._failure: OSError | None = None
        """What ended the connection after bytes that were given out first; the next read raises it."""

    @property
    def pending(self) -> bool:
        """Whether a part of a record is here that no `target` had room for."""
        with self._lock:
            return self._socket.pending() > 0

    def receive_into(self, target: memoryview, timeout: float | None) -> int | None:
        """Wait for bytes and put them into `target`."""
        if timeout is None and not self.pending:
            # Mostly nothing has come yet, and to find that out by reading costs an exception.
            _wait(self._socket.fileno(), select.POLLIN, None)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                with self._lock:
                    return self._read_records(target)
            except ssl.SSLWantReadError:
                events = select.POLLIN
            except ssl.SSLWantWriteError:
                events = select.POLLOUT
            left = None if deadline is None else deadline - time.monotonic()
            if not _wait(self._socket.fileno(), events, left):
                return None

    def send(self, parts: Sequence[BytesLike]) -> None:
        """Write all parts, small ones joined: TLS has no sendmsg."""
        for piece in _pieces(parts):
            self._write(piece)

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def shutdown(self) -> None:
        """End both directions, saying so to the peer if there is room for it."""
        with self._lock:
            with contextlib.suppress(OSError, ValueError):
                self._socket.unwrap()
            # Before a thread that sends has its turn: if the peer had ended TLS, it would send plain text.
            _shut_down(self._socket)

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()

    def _read_records(self, target: memoryview) -> int:
        """Read a record, and the next one as long as they are full: so seldom does a message end."""
        if self._failure is not None:
            raise self._failure
        target = target[:_TLS_READ_SIZE]
        total = count = self._socket.recv_into(target)
        while count == _TLS_RECORD and total < len(target):
            try:
                count = self._socket.recv_into(target[total:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError as error:
                self._failure = error  # OpenSSL would tell the next call of a plain end
                break
            total += count
        return total

    def _write(self, piece: BytesLike) -> None:
        while True:
            try:
                with self._lock:
                    # All or nothing: OpenSSL's partial writes are off, and a retry has to be the same.
                    self._socket.send(piece)
            except ssl.SSLWantWriteError:
                _wait(self._socket.fileno(), select.POLLOUT, None)
            except ssl.SSLWantReadError:
                _wait(self._socket.fileno(), select.POLLIN, None)
            else:
                return


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
