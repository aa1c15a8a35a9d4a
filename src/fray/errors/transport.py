"""A connection between two processes of a job's pool can't be made, or can't go on."""

from __future__ import annotations

from typing import Literal

from fray.errors.base import FrayError

__all__ = [
    "AddressError",
    "ConnectionLostError",
    "FrameError",
    "FrameTooLargeError",
    "HandshakeError",
    "PeerUnreachableError",
    "RefusalReason",
    "TransportError",
    "TransportKeyError",
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
    next_step = "Let both have the same key (Secret), user and version of Fray, and no proxy between them."

    reason: RefusalReason
    problem: str


class FrameError(TransportError):
    """Bytes that aren't the next frame, or a frame that can't be sent: the connection can't go on."""

    message = "{reason} frame: {problem}"
    next_step = "See that both sides have the same version of Fray, and that no proxy is between them."

    reason: RefusalReason
    problem: str


class FrameTooLargeError(FrameError):
    """A frame, or a part of one, above a limit."""

    next_step = "Put large values and pass their references, or write them to storage."
