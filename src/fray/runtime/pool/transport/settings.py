"""What the pool's transport may use, in one frozen object that both ends of a pool share."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from fray.runtime.pool.transport.frames import FrameLimits

__all__ = ["DEFAULT_SETTINGS", "TransportSettings"]


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """The limits of connections."""

    limits: FrameLimits = field(default_factory=FrameLimits)
    """What one frame may measure."""
    handshake_seconds: float = 10.0
    """From the connection's start until the peer has proved itself; a silent one is cut then."""
    dial_seconds: float = inf
    """Of these, until the peer's kernel has answered over a network."""
    silence_seconds: int = 9
    """How long the peer's kernel may answer nothing before the connection is taken for lost. Those who use a
    pool are to know within 10 s that its head is gone, also where its machine says nothing any more."""
    max_handshakes: int = 256
    """Peers that haven't proved themselves yet, at once; more wait in the kernel's queue."""
    max_handshakes_per_source: int = 64
    """How many of them one network address may have; more are cut off, so that others find a place."""
    high_water: int = 4 * 1024 * 1024
    """Bytes that wait to be sent when a connection asks its user to pause."""
    low_water: int = 1024 * 1024
    """Bytes that wait to be sent when it asks to go on."""
    most_unread: int = 256 * 1024 * 1024
    """Bytes that may wait for a peer that doesn't read: with more, it is cut off after `stalled_seconds`."""
    stalled_seconds: float = 10.0
    """How long that peer may read nothing. One that reads slowly isn't cut off, however much waits for it."""
    read_size: int = 256 * 1024
    """Bytes read by one system call, large buffers apart."""


DEFAULT_SETTINGS = TransportSettings()
