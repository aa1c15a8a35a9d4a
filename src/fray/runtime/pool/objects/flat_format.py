"""The bytes of a value: one format for what travels in messages and for what lies in files.

    4s magic | I buffers | Q bytes of the pickle | Q bytes, once a buffer | pickle | buffers

Numbers are little-endian; each buffer begins at a multiple of 64 bytes, and is read where it lies.

Pickle is opaque here; nothing in this file may pickle, unpickle or look into a value.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from fray.errors import MalformedPayloadError
from fray.runtime.pool.messages.specs import Inline, ObjectId

__all__ = ["ALIGNMENT", "HEADER", "MAGIC", "BytesLike", "Encoded", "pack", "split"]

BytesLike = bytes | bytearray | memoryview

ALIGNMENT = 64
"""Of buffers, in bytes: a cache line, and what vector instructions want at most."""

COPIED_BYTES = 1024
"""A value without buffers, up to that size, is copied sooner than a view of it is made."""

MAGIC = b"FRV\x01"
HEADER = struct.Struct("<4sIQ")


class Encoded(NamedTuple):
    """A value as bytes: its pickle, and the buffers beside it, which still are the value's own memory."""

    body: bytes
    buffers: list[memoryview]
    contained: tuple[ObjectId, ...]
    """References inside the value."""

    @property
    def size(self) -> int:
        """Bytes of the flat format."""
        size = HEADER.size + 8 * len(self.buffers) + len(self.body)
        for buffer in self.buffers:
            size += -size % ALIGNMENT + len(buffer)
        return size

    def parts(self) -> list[BytesLike]:
        """Return the flat format in parts to be written one after the other; large ones aren't copied."""
        header = HEADER.pack(MAGIC, len(self.buffers), len(self.body))
        if not self.buffers:
            return [header, self.body]
        header += struct.pack(f"<{len(self.buffers)}Q", *map(len, self.buffers))
        parts: list[BytesLike] = [header, self.body]
        size = len(header) + len(self.body)
        for buffer in self.buffers:
            padding = -size % ALIGNMENT
            parts += (bytes(padding), buffer) if padding else (buffer,)
            size += padding + len(buffer)
        return parts

    def to_value(self) -> bytes | Inline:
        """Return the value as it travels with messages."""
        data = self.to_bytes()
        return Inline(data, self.contained) if self.contained else data

    def to_bytes(self) -> bytes:
        """Return the flat format as one."""
        if not self.buffers:
            return pack(self.body)
        return b"".join(self.parts())


def pack(body: bytes) -> bytes:
    """Return the flat format of a pickle that has no buffers beside it."""
    return HEADER.pack(MAGIC, 0, len(body)) + body


def split(data: BytesLike) -> tuple[bytes | memoryview, list[memoryview]]:
    """Return the pickle and the buffers, as views of `data`, read-only, or as a copy where that is cheaper.

    Raises `MalformedPayloadError`: `data` isn't in this format.
    """
    if len(data) < HEADER.size:
        raise MalformedPayloadError(f"{len(data)} bytes are less than a header")
    magic, count, length = HEADER.unpack_from(data)
    body = HEADER.size + 8 * count
    if magic != MAGIC or body > len(data):
        raise MalformedPayloadError("it doesn't begin like one")
    end = body + length
    if end == len(data) <= COPIED_BYTES and type(data) is bytes:
        return data[body:], []
    view = memoryview(data).toreadonly()
    buffers = []
    for size in struct.unpack_from(f"<{count}Q", view, HEADER.size):
        start = end + -end % ALIGNMENT
        end = start + size
        buffers.append(view[start:end])
    if end > len(view):
        raise MalformedPayloadError(f"{len(view)} bytes of {end}")
    return view[body : body + length], buffers
