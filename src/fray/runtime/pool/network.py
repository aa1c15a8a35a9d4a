"""Where the processes of a pool reach each other when it has more than one host."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fray.runtime.pool.messages.specs import Shape
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.keys import TransportKey

__all__ = ["PoolNetwork"]


@dataclass(frozen=True)
class PoolNetwork:
    """The driver's side of a pool of several hosts.

    Parameters: the pool's `key`, with a certificate for TCP; `listen`: the address of the head, whose host
    is what others know this one by, so no wildcard; `allowed`: what each kind of host has that may join
    (None: nobody knows; what no host has waits 10 minutes for one).
    """

    key: TransportKey
    listen: Address
    allowed: tuple[Shape, ...] | None = None

    @property
    def objects(self) -> Address:
        """Where the objects of the driver's host are served."""
        if self.listen.is_unix:
            return Address(path=f"{self.listen.path}-objects")
        return replace(self.listen, port=0)
