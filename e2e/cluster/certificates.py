"""Keys and certificates for a throw-away cluster: one authority, and whatever it signs.

Nothing here is fit for a cluster that lives longer than its tests: keys are written unencrypted.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority", "Pair", "build_key_pem", "write_private"]

_LIFETIME = datetime.timedelta(days=3650)
_CLOCK_SKEW = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


def write_private(path: Path, content: bytes) -> Path:
    """Write a file that only its owner may read; returns `path`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    return path


def build_key_pem() -> bytes:
    """A new P-256 private key, for signing service-account tokens.

    In the older SEC 1 form, as the apiserver reads the public half from this file too, and only finds it
    there.
    """
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


class Authority:
    """A certificate authority made on the spot; its certificate is `certificate` (PEM)."""

    def __init__(self, pair: Pair | None = None) -> None:
        if pair is None:
            self._key = ec.generate_private_key(ec.SECP256R1())
            self._name = _name("fray-test-ca", ())
            self._certificate = (
                _builder(self._name, self._name, self._key.public_key())
                .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
                .add_extension(_usage(signs_certificates=True), critical=True)
                .sign(self._key, hashes.SHA256())
            )
        else:
            key = serialization.load_pem_private_key(pair.key, password=None)
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise TypeError("the authority's key is not an elliptic-curve key")
            self._key = key
            self._certificate = x509.load_pem_x509_certificate(pair.certificate)
            self._name = self._certificate.subject

    @property
    def certificate(self) -> bytes:
        """What others must trust, PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def pair(self) -> Pair:
        """Certificate and key, to make the same authority again later."""
        return Pair(self.certificate, _key_pem(self._key))

    def issue_client(self, common_name: str, organizations: Sequence[str] = ()) -> Pair:
        """A client certificate: the apiserver reads the name as user, the organizations as groups."""
        return self._issue(common_name, organizations, (), ExtendedKeyUsageOID.CLIENT_AUTH)

    def issue_server(self, common_name: str, names: Sequence[str]) -> Pair:
        """A serving certificate for `names`, each an IP address or a DNS name."""
        return self._issue(common_name, (), names, ExtendedKeyUsageOID.SERVER_AUTH)

    def _issue(
        self,
        common_name: str,
        organizations: Sequence[str],
        names: Sequence[str],
        purpose: x509.ObjectIdentifier,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(_name(common_name, organizations), self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        )
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative(n) for n in names]), critical=False
            )
        signed = builder.sign(self._key, hashes.SHA256())
        return Pair(signed.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
    )


def _name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organizations]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
