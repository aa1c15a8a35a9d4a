"""How messages become bytes and come back: frames, without any I/O.

A frame is a fixed header, the lengths of its buffers, a body and the buffers:

    4s magic and version | H kind | H flags | I sequence | I buffers | Q length of the body
    Q length, once a buffer | body | buffers, one after the other

All numbers are big-endian. Kind, flags and body belong to the layer above and aren't looked at here; no
byte is unpickled here. Sequence numbers start at 0 on each connection and direction and wrap at 2**32.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from fray.errors import (
    FrameError,
    FrameTooLargeError,
    MalformedFrameError,
    ReplayedFrameError,
    TruncatedFrameError,
)

__all__ = [
    "Allocate",
    "BytesLike",
    "Frame",
    "FrameDecoder",
    "FrameLimits",
    "allocate",
    "encode_frame",
    "next_sequence",
]

BytesLike: TypeAlias = bytes | bytearray | memoryview
Allocate: TypeAlias = Callable[[int], memoryview]
"""Returns writable memory of that many bytes for one buffer, e.g. a piece of shared memory."""

_MAGIC = b"FRY\x01"
_HEADER = struct.Struct("!4sHHIIQ")
_HEADER_SIZE = _HEADER.size
_LENGTH_SIZE = 8
_SEQUENCE_MASK = 0xFFFFFFFF
_JOIN_LIMIT = 16 * 1024
"""Bytes up to which copying is cheaper than another part of a write, or another read."""
_SMALL_FRAME = 64 * 1024
"""Frames up to this size are gathered whole before they are looked at again."""
_MMAP_THRESHOLD = 1024 * 1024
_Header: TypeAlias = tuple[bytes, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """What a frame may measure at most; both sides of a connection use the same."""

    max_body: int = 8 * 1024**3
    """Bytes of a body. A receiver copies it once more than buffers, so that large data belongs into those."""
    max_buffers: int = 4096
    """Buffers of one frame."""
    max_total: int = 8 * 1024**3
    """Bytes of body and buffers together: what one frame can make a receiver allocate."""


class Frame(NamedTuple):
    """One received frame. Buffers are writable, and only the receiver holds them."""

    kind: int
    flags: int
    sequence: int
    body: bytes
    buffers: tuple[memoryview, ...]


def next_sequence(sequence: int) -> int:
    """Return the number of the frame after that one."""
    return (sequence + 1) & _SEQUENCE_MASK


def allocate(size: int) -> memoryview:
    """Return `size` bytes of writable memory; pages of large ones are only used once written to."""
    if size < _MMAP_THRESHOLD:
        return memoryview(bytearray(size))
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def encode_frame(
    sequence: int,
    kind: int,
    body: bytes | bytearray,
    buffers: Sequence[BytesLike] = (),
    *,
    flags: int = 0,
    limits: FrameLimits,
) -> list[BytesLike]:
    """Return the parts of a frame, to be written one after the other; large ones aren't copied.

    `kind` and `flags` are 0 to 65535; of `sequence`, the lower 32 bits count. Each buffer is C-contiguous
    memory that must stay as it is until it is sent.

    Raises `FrameTooLargeError` for a frame that a receiver with the same limits would refuse.
    """
    size = len(body)
    sequence &= _SEQUENCE_MASK
    if not buffers and size <= _JOIN_LIMIT and size <= limits.max_body and size <= limits.max_total:
        return [_HEADER.pack(_MAGIC, kind, flags, sequence, 0, size) + body]
    views = [_flat(buffer) for buffer in buffers]
    _check_size("body", size, limits.max_body)
    _check_size("number of buffers", len(views), limits.max_buffers)
    _check_size("body and buffers", size + sum(map(len, views)), limits.max_total)
    header = _HEADER.pack(_MAGIC, kind, flags, sequence, len(views), size)
    if views:
        header += struct.pack(f"!{len(views)}Q", *map(len, views))
    if size <= _JOIN_LIMIT:
        return [b"".join((header, body)), *views]
    return [header, body, *views]


def _flat(buffer: BytesLike) -> memoryview:
    view = memoryview(buffer)
    # A view with a zero in its shape can't be cast.
    return view.cast("B") if view.nbytes else memoryview(b"")


def _check_size(part: str, size: int, limit: int) -> None:
    if size > limit:
        raise FrameTooLargeError(part, size, limit)


class _Partial:
    """A large frame whose memory is allocated and being filled."""

    __slots__ = ("_buffers", "_header", "_views", "received")

    def __init__(self, header: _Header, body: bytearray, buffers: tuple[memoryview, ...]) -> None:
        self._header = header
        self._buffers = (memoryview(body), *buffers)
        self._views = [view for view in reversed(self._buffers) if len(view)]
        self.received = 0

    @property
    def complete(self) -> bool:
        return not self._views

    def target(self) -> memoryview:
        return self._views[-1]

    def advance(self, count: int) -> None:
        rest = self._views[-1][count:]
        if len(rest):
            self._views[-1] = rest
        else:
            self._views.pop()
        self.received += count

    def fill(self, data: memoryview) -> memoryview:
        """Copy from `data` what belongs to this frame and return the rest."""
        while self._views and len(data):
            target = self._views[-1]
            count = min(len(target), len(data))
            target[:count] = data[:count]
            self.advance(count)
            data = data[count:]
        return data

    def frame(self) -> Frame:
        _, kind, flags, sequence, _, _ = self._header
        return Frame(kind, flags, sequence, bytes(self._buffers[0]), self._buffers[1:])


class FrameDecoder:
    """Turns a stream of bytes, cut anywhere, back into frames.

    Bytes go in through `feed`, or, where `target` offers memory for them, straight into that and are counted
    by `filled`: so a large buffer is written once, by the kernel. After a `FrameError` each call raises it
    again. Memory beyond the frames handed out is bounded by the limits.

    Parameters: `limits`, and `allocate` for the memory of received buffers.
    """

    __slots__ = (
        "_allocate",
        "_expected",
        "_failure",
        "_limits",
        "_max_body",
        "_need",
        "_partial",
        "_pending",
    )

    def __init__(self, limits: FrameLimits, *, allocate: Allocate = allocate) -> None:
        self._limits = limits
        self._max_body = min(limits.max_body, limits.max_total)
        self._allocate = allocate
        self._expected = 0
        self._pending = bytearray()
        self._need = 0
        self._partial: _Partial | None = None
        self._failure: FrameError | None = None

    def feed(self, data: BytesLike) -> list[Frame]:
        """Take the next bytes of the stream and return the frames that they complete.

        Raises `MalformedFrameError`, `FrameTooLargeError` or `ReplayedFrameError`; frames before the bad one
        in the same `data` are dropped with the connection.
        """
        if self._failure is not None:
            raise self._failure
        frames: list[Frame] = []
        if self._partial is not None:
            data = self._partial.fill(memoryview(data))
            self._finish_partial(frames)
        if self._pending:
            self._pending += data
            if len(self._pending) < self._need:
                return frames
            data = bytes(self._pending)
            self._pending.clear()
        try:
            # Slices of bytes are bytes: a third faster than bytes of slices of a view.
            self._parse(bytes(data), frames)
        except FrameError as error:
            self._failure = error
            raise
        return frames

    def target(self) -> memoryview | None:
        """Return where the next bytes of the stream belong, or None when they go to `feed`."""
        if self._failure is not None:
            raise self._failure
        if self._partial is None:
            return None
        target = self._partial.target()
        return target if len(target) >= _JOIN_LIMIT else None

    def filled(self, count: int) -> list[Frame]:
        """Take note that `count` bytes of the stream were written to `target`; return completed frames."""
        frames: list[Frame] = []
        if self._partial is None or not 0 <= count <= len(self._partial.target()):
            raise ValueError(f"{count} bytes don't fit into what target() offered")
        self._partial.advance(count)
        self._finish_partial(frames)
        return frames

    def close(self) -> None:
        """Take note that the stream has ended.

        Raises `TruncatedFrameError` if that was within a frame.
        """
        if self._failure is not None:
            raise self._failure
        received = len(self._pending) if self._partial is None else self._partial.received
        if self._partial is not None or received:
            self._failure = TruncatedFrameError(received)
            raise self._failure

    def _finish_partial(self, frames: list[Frame]) -> None:
        if self._partial is not None and self._partial.complete:
            frames.append(self._partial.frame())
            self._partial = None
            self._expected = next_sequence(self._expected)

    def _parse(self, data: bytes, frames: list[Frame]) -> None:
        """Decode whole frames; keep what is left. The loop is the hot path: small frames without buffers."""
        offset, size = 0, len(data)
        expected, max_body = self._expected, self._max_body
        unpack, new, append = _HEADER.unpack_from, tuple.__new__, frames.append
        while size - offset >= _HEADER_SIZE:
            magic, kind, flags, sequence, count, length = unpack(data, offset)
            start = offset + _HEADER_SIZE
            end = start + length
            if magic == _MAGIC and sequence == expected and not count and end <= size and length <= max_body:
                append(new(Frame, (kind, flags, sequence, data[start:end], ())))
                expected = (expected + 1) & _SEQUENCE_MASK
                offset = end
            else:
                self._expected = expected
                offset = self._parse_any(data, offset, frames)
                expected = self._expected
        self._expected = expected
        if offset < size:
            self._keep(data, offset, _HEADER_SIZE)

    def _parse_any(self, data: bytes, offset: int, frames: list[Frame]) -> int:
        """Decode, or begin, the frame at `offset`; return where the next one starts."""
        header: _Header = _HEADER.unpack_from(data, offset)
        self._check(header)
        *_, count, length = header
        table = offset + _HEADER_SIZE
        body = table + count * _LENGTH_SIZE
        if len(data) < body:
            return self._keep(data, offset, body - offset)
        sizes = struct.unpack_from(f"!{count}Q", data, table)
        _check_size("body and buffers", length + sum(sizes), self._limits.max_total)
        end = body + length + sum(sizes)
        if end > len(data) and end - offset <= _SMALL_FRAME:
            return self._keep(data, offset, end - offset)
        buffers = tuple(map(self._allocate, sizes))
        self._partial = _Partial(header, bytearray(length), buffers)
        rest = self._partial.fill(memoryview(data)[body:])
        self._finish_partial(frames)
        return len(data) - len(rest)

    def _check(self, header: _Header) -> None:
        magic, _, _, sequence, count, length = header
        if magic != _MAGIC:
            raise MalformedFrameError(f"it starts with {magic!r} instead of {_MAGIC!r}")
        if sequence != self._expected:
            # A number of the past, by serial number arithmetic on 32 bits (RFC 1982), or one after a gap.
            if (sequence - self._expected) & _SEQUENCE_MASK > _SEQUENCE_MASK >> 1:
                raise ReplayedFrameError(self._expected, sequence)
            raise MalformedFrameError(f"number {sequence} after a gap: {self._expected} was expected")
        _check_size("number of buffers", count, self._limits.max_buffers)
        _check_size("body", length, self._max_body)

    def _keep(self, data: bytes, offset: int, need: int) -> int:
        """Keep the rest of `data` until `need` bytes are there; return its end."""
        self._pending += memoryview(data)[offset:]
        self._need = need
        return len(data)
