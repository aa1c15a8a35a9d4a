"""Where a process of the pool listens, as text that fits into a message or a command line."""

from __future__ import annotations

from dataclasses import dataclass

from fray.errors import AddressError

__all__ = ["Address"]

_UNIX_PATH_LIMIT = 107
"""unix(7): `sun_path` has 108 bytes, the last of them zero."""


@dataclass(frozen=True, slots=True)
class Address:
    """`unix:/path` (this machine) or `tcp:host:port`; `str` gives that form back.

    Parameters: `path` of a unix socket, else empty; `host` and `port` of TCP. Port 0 lets the system choose.
    """

    path: str = ""
    host: str = ""
    port: int = 0

    @property
    def is_unix(self) -> bool:
        """Whether only processes of this machine can reach it."""
        return bool(self.path)

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the address that `text` says; an IPv6 host may stand in brackets.

        Raises `AddressError` for anything but `unix:/absolute/path` and `tcp:host:port`.
        """
        scheme, _, rest = text.partition(":")
        if scheme == "unix":
            if not rest.startswith("/"):
                raise AddressError(text, "the path must be absolute")
            if len(rest.encode()) > _UNIX_PATH_LIMIT:
                raise AddressError(text, f"the path is longer than {_UNIX_PATH_LIMIT} bytes")
            if "\0" in rest:
                raise AddressError(text, "the path holds a zero byte")
            return cls(path=rest)
        if scheme != "tcp":
            raise AddressError(text, "it starts with neither `unix:` nor `tcp:`")
        host, _, port = rest.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host:
            raise AddressError(text, "it has no host")
        if not (port.isascii() and port.isdigit() and int(port) < 65536):
            raise AddressError(text, "the port isn't a number from 0 to 65535")
        return cls(host=host, port=int(port))

    def __str__(self) -> str:
        if self.is_unix:
            return f"unix:{self.path}"
        return f"tcp:[{self.host}]:{self.port}" if ":" in self.host else f"tcp:{self.host}:{self.port}"
