"""What a nanny gets when it starts, through a pipe: so the key is in no argument and no variable."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path

from fray.runtime.pool.messages.specs import HostId, Shape
from fray.runtime.pool.transport.keys import TransportKey

__all__ = ["HostConfig"]


@dataclass(frozen=True)
class HostConfig:
    """One host of a pool."""

    token: str
    """The pool's name, unique; empty: the head tells it."""
    head: str
    """Where the head listens: an address."""
    secret: bytes = field(repr=False)
    host: HostId
    """0: the head gives it a number."""
    name: str
    resources: Shape
    workers: int
    """Processes for tasks without a profile."""
    store: str
    """Directory of the host's objects in memory; it exists, and is removed with the pool."""
    spill: str
    """The same on disk."""
    store_limit: int
    """Bytes of memory for objects."""
    objects: str = ""
    """Where this host's objects are to be served to other hosts: an address; empty: they aren't."""
    attach: str = ""
    """`module:function`, called in each worker with token, client and objects before its first task."""
    certificate: str = ""
    """Paths of the certificate and its key, PEM; empty for pools of one host."""
    private_key: str = ""
    sys_path: tuple[str, ...] = ()
    """Where workers look for modules; empty: where this process does."""
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Environment variables of all workers."""
    drain_seconds: float = 0.0
    """How long the host stays after SIGTERM, for what runs there and to save what only lies there."""

    @property
    def key(self) -> TransportKey:
        """The pool's key."""
        if not self.certificate:
            return TransportKey(self.secret)
        return TransportKey(self.secret, Path(self.certificate), Path(self.private_key))

    def to_json(self) -> str:
        """Return text from which `from_json` makes the same; it holds the secret."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return json.dumps({**values, "secret": self.secret.hex()})

    @classmethod
    def from_json(cls, text: str) -> HostConfig:
        """Return what `to_json` was called on.

        Raises `ValueError` or `TypeError` for another text.
        """
        values = json.loads(text)
        for name in ("resources", "env"):
            values[name] = tuple((key, value) for key, value in values[name])
        values["sys_path"] = tuple(values["sys_path"])
        return cls(**{**values, "secret": bytes.fromhex(values["secret"])})
