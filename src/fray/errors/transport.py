"""A connection between two processes of a job's pool can't be made, or can't go on."""

from __future__ import annotations

from typing import ClassVar, Literal

from fray.errors.base import FrayError

__all__ = [
    "AddressError",
    "ConnectionLostError",
    "FrameError",
    "FrameTooLargeError",
    "HandshakeError",
    "MalformedFrameError",
    "PeerUnreachableError",
    "RefusalReason",
    "ReplayedFrameError",
    "TransportError",
    "TransportKeyError",
    "TruncatedFrameError",
]

RefusalReason = Literal[
    "wrong_key", "wrong_user", "replayed", "truncated", "oversized", "malformed", "timeout", "crowded"
]
"""Why a peer was cut off; the names under which refusals are counted."""


class TransportError(FrayError):
    """A connection of a job's pool that can't be made, or can't go on."""


class AddressError(TransportError):
    """An address that can't be understood, or that this process can't listen on."""

    message = "address {address!r}: {problem}"
    next_step = "Addresses are `unix:/absolute/path` or `tcp:host:port`."

    address: str
    problem: str


class TransportKeyError(TransportError):
    """The directory of the pool's key doesn't hold a usable key."""

    message = "the pool's key in {directory}: {problem}"
    next_step = "In a cluster it is the Secret fray-auth, mounted: see that the operator made it."

    directory: str
    problem: str


class PeerUnreachableError(TransportError):
    """Nobody answered at an address."""

    message = "no connection to {address}: {problem}"
    next_step = "See that the process that listens there is running and ready."

    address: str
    problem: str


class ConnectionLostError(TransportError):
    """A connection that worked has ended; frames on their way may not have arrived."""

    message = "the connection to {peer} ended: {problem}"
    next_step = "Look whether that process and its host still run, and at what they printed last."

    peer: str
    problem: str


class HandshakeError(TransportError):
    """A peer that didn't prove within the deadline that it holds the pool's key."""

    message = "peer refused ({reason}): {problem}"

    reason: RefusalReason
    problem: str

    @property
    def next_step(self) -> str:
        """What to compare."""
        if self.reason == "wrong_key":
            return "Both sides need the same key: compare their Secrets."
        if self.reason == "wrong_user":
            return "Run all processes of a pool as the same user."
        return "See that the other side is Fray of the same version, and that no proxy is between them."


class FrameError(TransportError):
    """Bytes that can't be frames, or a frame that can't be sent: the connection can't go on."""

    next_step = "See that both sides have the same version of Fray, and that no proxy is between them."

    reason: ClassVar[RefusalReason] = "malformed"
    """Under which reason the refusal of the peer is counted."""


class MalformedFrameError(FrameError):
    """Bytes that aren't the next frame, of this version."""

    message = "not a frame: {problem}"

    problem: str


class FrameTooLargeError(FrameError):
    """A frame, or a part of one, above a limit: `part` names what, in bytes (buffers: a count)."""

    message = "a frame's {part} of {size} is above the limit of {limit}"
    next_step = "Put large values and pass their references, or write them to storage."
    reason = "oversized"

    part: str
    size: int
    limit: int


class ReplayedFrameError(FrameError):
    """An earlier frame again."""

    message = "frame {found} sent again: {expected} was expected"
    reason = "replayed"

    expected: int
    found: int


class TruncatedFrameError(FrameError):
    """A stream that ended within a frame."""

    message = "the stream ended within a frame, {received} bytes into it"
    reason = "truncated"

    received: int
