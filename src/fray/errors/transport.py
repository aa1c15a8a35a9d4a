"""A connection between two processes of a job's pool can't be made, or can't go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
    "SequenceError",
    "TransportError",
    "TransportKeyError",
    "TruncatedFrameError",
]

RefusalReason = Literal[
    "wrong_key", "wrong_user", "replayed", "truncated", "oversized", "malformed", "timeout"
]
"""Why a peer was cut off; the names under which refusals are counted."""


@dataclass(eq=False)
class TransportError(FrayError):
    """A connection of a job's pool that can't be made, or can't go on."""


@dataclass(eq=False)
class AddressError(TransportError):
    """An address that can't be understood, or that this process can't listen on."""

    address: str
    problem: str

    @property
    def message(self) -> str:
        """The address and what is wrong with it."""
        return f"address {self.address!r}: {self.problem}"

    @property
    def next_step(self) -> str:
        """What an address looks like."""
        return "Addresses are `unix:/absolute/path` or `tcp:host:port`."


@dataclass(eq=False)
class TransportKeyError(TransportError):
    """The directory of the pool's key doesn't hold a usable key."""

    directory: str
    problem: str

    @property
    def message(self) -> str:
        """The directory and what is wrong with it; never the key."""
        return f"the pool's key in {self.directory}: {self.problem}"

    @property
    def next_step(self) -> str:
        """Where keys come from."""
        return "In a cluster it is the Secret fray-auth, mounted: see that the operator made it."


@dataclass(eq=False)
class PeerUnreachableError(TransportError):
    """Nobody answered at an address."""

    address: str
    problem: str

    @property
    def message(self) -> str:
        """The address and the system's reason."""
        return f"no connection to {self.address}: {self.problem}"

    @property
    def next_step(self) -> str:
        """What to look at."""
        return "See that the process that listens there is running and ready."


@dataclass(eq=False)
class ConnectionLostError(TransportError):
    """A connection that worked has ended; frames on their way may not have arrived."""

    peer: str
    problem: str

    @property
    def message(self) -> str:
        """The peer and how it ended."""
        return f"the connection to {self.peer} ended: {self.problem}"

    @property
    def next_step(self) -> str:
        """Where the cause shows."""
        return "Look whether that process and its host still run, and at what they printed last."


@dataclass(eq=False)
class HandshakeError(TransportError):
    """A peer that didn't prove within the deadline that it holds the pool's key."""

    reason: RefusalReason
    problem: str

    @property
    def message(self) -> str:
        """The reason and what was seen."""
        return f"peer refused ({self.reason}): {self.problem}"

    @property
    def next_step(self) -> str:
        """What to compare."""
        if self.reason == "wrong_key":
            return "Both sides need the same key: compare their Secrets."
        if self.reason == "wrong_user":
            return "Run all processes of a pool as the same user."
        return "See that the other side is Fray of the same version, and that no proxy is between them."


@dataclass(eq=False)
class FrameError(TransportError):
    """Bytes that can't be frames, or a frame that can't be sent: the connection can't go on."""

    @property
    def reason(self) -> RefusalReason:
        """Under which reason the refusal of the peer is counted."""
        return "malformed"

    @property
    def next_step(self) -> str:
        """What the usual causes are."""
        return "See that both sides have the same version of Fray, and that no proxy is between them."


@dataclass(eq=False)
class MalformedFrameError(FrameError):
    """Bytes that aren't a frame of this version."""

    problem: str

    @property
    def message(self) -> str:
        """What was found."""
        return f"not a frame: {self.problem}"


@dataclass(eq=False)
class FrameTooLargeError(FrameError):
    """A frame, or a part of one, above a limit: `part` names what, in bytes (buffers: a count)."""

    part: str
    size: int
    limit: int

    @property
    def message(self) -> str:
        """The part, its size and the limit."""
        return f"a frame's {self.part} of {self.size} is above the limit of {self.limit}"

    @property
    def reason(self) -> RefusalReason:
        """Under which reason the refusal of the peer is counted."""
        return "oversized"

    @property
    def next_step(self) -> str:
        """How to send less at once."""
        return "Put large values and pass their references, or write them to storage."


@dataclass(eq=False)
class SequenceError(FrameError):
    """A frame out of order: an earlier one again, or some were left out."""

    expected: int
    found: int

    @property
    def message(self) -> str:
        """Both numbers."""
        kind = "sent again" if self.reason == "replayed" else "after a gap"
        return f"frame {self.found} {kind}: {self.expected} was expected"

    @property
    def reason(self) -> RefusalReason:
        """`replayed` for a number of the past, by serial number arithmetic (RFC 1982) on 32 bits."""
        return "replayed" if (self.found - self.expected) % 2**32 >= 2**31 else "malformed"


@dataclass(eq=False)
class TruncatedFrameError(FrameError):
    """A stream that ended within a frame."""

    received: int

    @property
    def message(self) -> str:
        """How much of the frame had come."""
        return f"the stream ended within a frame, {self.received} bytes into it"

    @property
    def reason(self) -> RefusalReason:
        """Under which reason the refusal of the peer is counted."""
        return "truncated"
