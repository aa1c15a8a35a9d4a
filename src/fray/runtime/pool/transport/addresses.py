"""Where a process of the pool listens, as text that fits into a message or a command line."""

from __future__ import annotations

from dataclasses import dataclass

from fray.errors import AddressError

__all__ = ["Address"]

_UNIX_PATH_LIMIT = 107
"""unix(7): `sun_path` has 108 bytes, the last of them zero."""


@dataclass(frozen=True, slots=True)
class Address:
    """`unix:/path`, `pod:/path`, `tcp:host:port` or `tcp:host:first-last`; `str` gives that form back.

    Parameters: `path` of a unix socket, else empty; `host` and `port` of TCP. Port 0 lets the system choose.
    With a `last` port above it, who listens takes the first free port of the range; 0: there is no range.
    A unix socket is for processes of one user; one `of_pod` is for all processes that its directory is
    mounted for, since containers of a pod may run as different users.
    """

    path: str = ""
    host: str = ""
    port: int = 0
    last: int = 0
    of_pod: bool = False

    @property
    def is_unix(self) -> bool:
        """Whether only processes of this machine can reach it."""
        return bool(self.path)

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the address that `text` says; an IPv6 host may stand in brackets.

        Raises `AddressError` for anything but `unix:/absolute/path`, `pod:/absolute/path`, `tcp:host:port`
        and `tcp:host:first-last`.
        """
        scheme, _, rest = text.partition(":")
        if scheme in ("unix", "pod"):
            if not rest.startswith("/"):
                raise AddressError(text, "the path must be absolute")
            if len(rest.encode()) > _UNIX_PATH_LIMIT:
                raise AddressError(text, f"the path is longer than {_UNIX_PATH_LIMIT} bytes")
            if "\0" in rest:
                raise AddressError(text, "the path holds a zero byte")
            return cls(path=rest, of_pod=scheme == "pod")
        if scheme != "tcp":
            raise AddressError(text, "it starts with none of `unix:`, `pod:` and `tcp:`")
        host, _, ports = rest.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host:
            raise AddressError(text, "it has no host")
        port, dash, last = ports.partition("-")
        if not _is_port(port) or (dash and not _is_port(last)):
            raise AddressError(text, "the port isn't a number from 0 to 65535")
        if dash and not 0 < int(port) <= int(last):
            raise AddressError(text, "the range of ports is empty or begins with 0")
        return cls(host=host, port=int(port), last=int(last) if dash else 0)

    @property
    def ports(self) -> range:
        """The ports that may be listened on, the first free one first."""
        return range(self.port, max(self.port, self.last) + 1)

    @property
    def authority(self) -> str:
        """The host and one port as URLs have them: `host:port`."""
        return f"{self._url_host}:{self.port}"

    @property
    def _url_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def __str__(self) -> str:
        if self.is_unix:
            return f"pod:{self.path}" if self.of_pod else f"unix:{self.path}"
        text = f"tcp:{self.authority}"
        return f"{text}-{self.last}" if self.last else text


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) < 65536
