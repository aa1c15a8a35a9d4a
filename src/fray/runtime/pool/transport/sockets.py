"""What both shells of the transport do to sockets before a connection is theirs."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import stat
import struct
from pathlib import Path

from fray.errors import AddressError, HandshakeError
from fray.errors.transport import RefusalReason
from fray.runtime.pool.transport.addresses import Address

__all__ = ["check_user", "listening_socket", "peer_name", "source_of", "tls_refusal", "tune", "unlink_socket"]

_BACKLOG = 1024
_PROBE_SECONDS = 1
"""How often an idle connection over a network is tried: so all those to a lost host end at about one time."""
_CREDENTIALS = struct.Struct("3i")
"""unix(7): `struct ucred` is pid, uid, gid."""


def listening_socket(address: Address) -> socket.socket:
    """Return a non-blocking socket that listens on `address`.

    The directory of a unix socket is made if it's missing, with mode 0700; the socket itself has 0600. One of
    a pod has 0666, in a volume that is there: who has that volume may connect.

    Raises `AddressError` if that can't be done, or if others may enter the directory.
    """
    try:
        listener = _unix_listener(address) if address.is_unix else _tcp_listener(address)
    except OSError as error:
        raise AddressError(str(address), error.strerror or str(error)) from error
    listener.setblocking(False)
    return listener


def _unix_listener(address: Address) -> socket.socket:
    if not address.of_pod:
        directory = Path(address.path).parent
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise AddressError(str(address), "other users may enter its directory; it needs mode 0700")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(address.path)
        # Before listen: nobody can have connected yet.
        Path(address.path).chmod(0o666 if address.of_pod else 0o600)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def unlink_socket(address: Address) -> None:
    """Remove the file of a unix socket that nobody listens on any more."""
    Path(address.path).unlink(missing_ok=True)


def _tcp_listener(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    for port in address.ports:
        try:
            return socket.create_server((address.host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or port == address.ports[-1]:
                raise
    raise AssertionError("an address has at least one port")


def tune(connected: socket.socket, silence_seconds: int) -> None:
    """Set what a connection of either kind needs: small frames leave at once, and a cut link ends it.

    Kernels answer for processes that are busy or stopped: only a lost host or network is silent.
    """
    if connected.family == socket.AF_UNIX:
        return
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _PROBE_SECONDS),
        ("TCP_KEEPINTVL", _PROBE_SECONDS),
        ("TCP_KEEPCNT", silence_seconds // _PROBE_SECONDS),
        # tcp(7): also for what was sent and isn't acknowledged, which would be tried for 15 minutes.
        ("TCP_USER_TIMEOUT", silence_seconds * 1000),
    ):
        if (option := getattr(socket, name, None)) is not None:  # macOS has only some
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


def _credentials(connected: socket.socket) -> tuple[int, int] | None:
    if connected.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return None
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid


def check_user(connected: socket.socket, address: Address) -> None:
    """Check that the process at the other end of a unix socket is of our user, where the system tells.

    One of a pod is for all users. Raises `HandshakeError` if it's another's.
    """
    credentials = None if address.of_pod else _credentials(connected)
    if credentials is not None and credentials[1] != os.geteuid():
        raise HandshakeError("wrong_user", f"process {credentials[0]} is of user {credentials[1]}")


def peer_name(connected: socket.socket) -> str:
    """Return the other end in words, for messages."""
    credentials = _credentials(connected)
    if credentials is not None:
        # unix(7), pid_namespaces(7): a process of another container has no pid here.
        return f"process {credentials[0]}" if credentials[0] else "a process of another container"
    try:
        name = connected.getpeername()
    except OSError:
        return "a peer that has gone"
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "a process of this machine"


def source_of(connected: socket.socket) -> str:
    """Return the network address of the other end; empty for a process of this machine."""
    try:
        name = connected.getpeername()
    except OSError:
        return ""
    return str(name[0]) if isinstance(name, tuple) else ""


def tls_refusal(error: OSError) -> RefusalReason:
    """Return why TLS couldn't be agreed on, from what the ssl module raised."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, ssl.SSLCertVerificationError):
        return "wrong_key"
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "truncated"
    reason = error.reason or ""
    # OpenSSL's names: our peer has no certificate, or says by an alert that it doesn't trust ours.
    signs = ("CERTIFICATE" in reason, "UNKNOWN_CA" in reason, "ALERT_DECRYPT_ERROR" in reason)
    return "wrong_key" if any(signs) else "malformed"
