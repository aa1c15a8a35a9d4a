"""The key that makes processes one pool, and the TLS settings that come from it. Nothing prints it."""

from __future__ import annotations

import logging
import secrets
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from fray.errors import TransportKeyError
from fray.runtime.pool.transport.handshake import NONCE_SIZE, SECRET_SIZE, Handshake, Role
from fray.vocabulary import ACCEPTED_FILE, CERTIFICATE_FILE, PRIVATE_KEY_FILE

__all__ = [
    "ACCEPTED_FILE",
    "CERTIFICATE_FILE",
    "PRIVATE_KEY_FILE",
    "SECRET_FILE",
    "ListenerTls",
    "TransportKey",
]

_logger = logging.getLogger(__name__)

SECRET_FILE = "pool.key"
"""32 random bytes."""


@dataclass(frozen=True, slots=True)
class TransportKey:
    """What the processes of one pool share; without a certificate it serves unix sockets only.

    Parameters: the `secret` of 32 bytes, and the paths of a PEM `certificate` and its `private_key`.

    Raises `ValueError` for a secret of another length or a certificate without key.
    """

    secret: bytes = field(repr=False)
    certificate: Path | None = None
    private_key: Path | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != SECRET_SIZE:
            raise ValueError(f"a pool's secret has {SECRET_SIZE} bytes")
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("a certificate and its private key go together")

    @classmethod
    def generate(cls) -> TransportKey:
        """Return a new key for unix sockets."""
        return cls(secrets.token_bytes(SECRET_SIZE))

    @classmethod
    def load(cls, directory: Path) -> TransportKey:
        """Return the key in `directory`; the files' names are the constants of this module.

        Raises `TransportKeyError` if it isn't there or isn't a key.
        """
        try:
            secret = (directory / SECRET_FILE).read_bytes()
        except OSError as error:
            raise TransportKeyError(str(directory), f"{SECRET_FILE}: {error.strerror}") from error
        if len(secret) != SECRET_SIZE:
            raise TransportKeyError(
                str(directory), f"{SECRET_FILE} has {len(secret)} bytes, not {SECRET_SIZE}"
            )
        certificate, private_key = directory / CERTIFICATE_FILE, directory / PRIVATE_KEY_FILE
        if certificate.exists() != private_key.exists():
            raise TransportKeyError(
                str(directory), f"it holds only one of {CERTIFICATE_FILE} and {PRIVATE_KEY_FILE}"
            )
        return cls(secret, certificate, private_key) if certificate.exists() else cls(secret)

    def handshake(self, role: Role) -> Handshake:
        """Return a fresh handshake for one connection."""
        return Handshake(self.secret, role, secrets.token_bytes(NONCE_SIZE))

    def tls_context(self, role: Role) -> ssl.SSLContext:
        """Return the settings of mutual TLS 1.3 in which only the holders of these certificates are trusted.

        They are read from the files of this moment: in a cluster keys are rotated while pods run.

        Raises `TransportKeyError` without a certificate, or if it can't be used.
        """
        if self.certificate is None or self.private_key is None:
            raise TransportKeyError("memory", "TCP needs a certificate; this key has none")
        listens = role is Role.LISTENER
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if listens else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # Not names but the one certificate says who belongs to the pool: pods have no stable addresses.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        accepted = self.certificate.with_name(ACCEPTED_FILE)
        for last in (False, True):
            try:
                context.load_verify_locations(accepted if accepted.exists() else self.certificate)
                context.load_cert_chain(self.certificate, self.private_key)
                break
            except (OSError, ssl.SSLError) as error:
                # The kubelet replaces all files at once, maybe between two of these reads: then a second look
                # finds those that belong together.
                if last:
                    raise TransportKeyError(
                        str(self.certificate.parent), f"the certificate: {error}"
                    ) from error
        if listens:
            # Sessions are never resumed; a ticket would lie unread at a peer that only writes.
            context.num_tickets = 0
        return context

    def stamp(self) -> tuple[tuple[int, int], ...]:
        """Return what changes whenever the certificates do."""
        certificate = self.certificate or Path()
        return tuple(map(_stamp, (certificate, certificate.with_name(ACCEPTED_FILE))))


class ListenerTls:
    """The settings of TLS of a listener, read anew when its key has been rotated."""

    def __init__(self, key: TransportKey) -> None:
        self._key, self._stamp = key, key.stamp()
        self._context = key.tls_context(Role.LISTENER)

    def context(self) -> ssl.SSLContext:
        """Return the settings of this moment; the last ones where the files can't be used."""
        stamp = self._key.stamp()
        if stamp != self._stamp:
            try:
                self._context = self._key.tls_context(Role.LISTENER)
            except TransportKeyError as error:
                _logger.warning("going on with the key of before: %s", error.message)
            else:
                self._stamp = stamp
        return self._context


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_ino, status.st_mtime_ns
