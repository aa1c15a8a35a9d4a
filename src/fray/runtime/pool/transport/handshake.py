"""How two processes prove to each other that they hold the pool's key, before any frame; without I/O.

The side that dialled proves first, so that a stranger gets nothing but a nonce:

    listener -> dialler   CHALLENGE  nonce L
    dialler -> listener   PROOF      nonce D, nonce L, HMAC
    listener -> dialler   ACCEPT     nonce L, nonce D, HMAC; or REFUSED with a reason

All messages have one fixed layout and size, read by struct: nothing is unpickled. The HMAC-SHA256 is over
the whole message but itself: protocol version, kind, role and both nonces, so that no message works in
another place, direction or connection. It says who is there, not what comes after: TLS or the kernel (unix
sockets) keep the stream whole.
"""

from __future__ import annotations

import enum
import hmac
import struct
from typing import get_args

from fray.errors import HandshakeError
from fray.errors.transport import RefusalReason

__all__ = ["MESSAGE_SIZE", "NONCE_SIZE", "SECRET_SIZE", "Handshake", "Role", "refusal"]

SECRET_SIZE = 32
NONCE_SIZE = 32
_MAGIC = b"FRYH"
_VERSION = 1
_LAYOUT = struct.Struct("!4sHBBB3x32s32s32s")
MESSAGE_SIZE = _LAYOUT.size
_MAC_SIZE = 32
_CONTEXT = b"fray pool handshake\0"
_ZEROS = bytes(32)
_REASONS: tuple[RefusalReason, ...] = get_args(RefusalReason)


class Role(enum.IntEnum):
    """Which side of the connection a process is."""

    LISTENER = 1
    DIALLER = 2


class _Kind(enum.IntEnum):
    CHALLENGE = 1
    PROOF = 2
    ACCEPT = 3
    REFUSED = 4


def refusal(error: HandshakeError) -> bytes:
    """Return what a listener tells the peer that it cuts off for `error`."""
    code = _REASONS.index(error.reason)
    return _LAYOUT.pack(_MAGIC, _VERSION, _Kind.REFUSED, Role.LISTENER, code, _ZEROS, _ZEROS, _ZEROS)


class Handshake:
    """One side of one handshake, fed with what the peer sends, cut anywhere.

    Parameters: the `secret` of the pool; the `role` of this side; a fresh random `nonce` of 32 bytes.
    """

    __slots__ = ("_buffer", "_expected", "_nonce", "_role", "_secret", "done")

    def __init__(self, secret: bytes, role: Role, nonce: bytes) -> None:
        if len(secret) != SECRET_SIZE or len(nonce) != NONCE_SIZE:
            raise ValueError(f"a secret has {SECRET_SIZE} bytes and a nonce {NONCE_SIZE}")
        self._secret = secret
        self._role = role
        self._nonce = nonce
        self._buffer = bytearray()
        self._expected = _Kind.PROOF if role is Role.LISTENER else _Kind.CHALLENGE
        self.done = False
        """Whether the peer has proved that it holds the key."""

    def start(self) -> bytes:
        """Return what to send before anything has come; empty for the side that dialled."""
        if self._role is Role.DIALLER:
            return b""
        return _LAYOUT.pack(_MAGIC, _VERSION, _Kind.CHALLENGE, self._role, 0, self._nonce, _ZEROS, _ZEROS)

    def feed(self, data: bytes | bytearray | memoryview) -> bytes:
        """Take what the peer sent; return what to answer, often nothing.

        Raises `HandshakeError`: a listener tells the peer with `refusal`; both cut it off.
        """
        self._buffer += data
        answer = b""
        while not self.done:
            if self._buffer[: len(_MAGIC)] != _MAGIC[: len(self._buffer)]:
                raise HandshakeError("malformed", "the peer doesn't speak this protocol")
            if len(self._buffer) < MESSAGE_SIZE:
                break
            if len(self._buffer) > MESSAGE_SIZE and self._expected is not _Kind.ACCEPT:
                # Who doesn't wait for our answer isn't following the protocol; frames may follow ACCEPT only.
                raise HandshakeError("oversized", "the peer sent more than the message it had to send")
            message = bytes(self._buffer[:MESSAGE_SIZE])
            del self._buffer[:MESSAGE_SIZE]
            answer += self._answer(message)
        return answer

    def close(self) -> None:
        """Take note that the peer has ended the connection.

        Raises `HandshakeError` unless the handshake was done.
        """
        if not self.done:
            raise HandshakeError("truncated", "the peer ended the connection within the handshake")

    def leftover(self) -> bytes:
        """Return what came after the handshake: the first frames of a listener."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def _answer(self, message: bytes) -> bytes:
        _, version, kind, role, code, nonce, echoed, _ = _LAYOUT.unpack(message)
        if version != _VERSION:
            raise HandshakeError("malformed", f"the peer speaks version {version}, we {_VERSION}")
        if kind == _Kind.REFUSED and self._role is Role.DIALLER and code < len(_REASONS):
            raise HandshakeError(_REASONS[code], "the listener refused us")
        if kind != self._expected or role == self._role:
            raise HandshakeError("malformed", f"message {kind} of role {role}, not {self._expected!r}")
        if kind == _Kind.CHALLENGE:
            self._expected = _Kind.ACCEPT
            return self._sealed(_Kind.PROOF, nonce)
        self._verify(message, echoed)
        self.done = True
        return b"" if self._role is Role.DIALLER else self._sealed(_Kind.ACCEPT, nonce)

    def _verify(self, message: bytes, echoed: bytes) -> None:
        genuine = hmac.compare_digest(self._mac(message[:-_MAC_SIZE]), message[-_MAC_SIZE:])
        if not genuine:
            raise HandshakeError("wrong_key", "the peer's proof was made with another key")
        if not hmac.compare_digest(echoed, self._nonce):
            raise HandshakeError("replayed", "the peer's proof answers the challenge of another connection")

    def _sealed(self, kind: _Kind, peer_nonce: bytes) -> bytes:
        unsealed = _LAYOUT.pack(_MAGIC, _VERSION, kind, self._role, 0, self._nonce, peer_nonce, _ZEROS)
        content = unsealed[:-_MAC_SIZE]
        return content + self._mac(content)

    def _mac(self, content: bytes) -> bytes:
        return hmac.digest(self._secret, _CONTEXT + content, "sha256")
