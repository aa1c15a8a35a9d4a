"""What the Secret `fray-auth` holds, and what is to become of it: pure, but for making keys.

All pods of a namespace that belong to pools show one certificate and accept only those of the Secret. The
kubelet brings a changed Secret to each pod at another time, so a key is replaced in three writes, each of
which every pod has seen before the next one:

1. prepare: the next certificate is accepted, the old one is shown;
2. switch: the next one is shown, both are accepted;
3. forget: only the new one is accepted.

Each write is one update of one object, so a process that dies between two of them leaves a state from which
any other goes on. How long pods have had for the last write is measured by the process that saw it, never by
the clock of another.
"""

from __future__ import annotations

import base64
import binascii
import enum
import secrets
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fray.kube.objects import Manifest
from fray.runtime.pool.transport.keys import ACCEPTED_FILE, CERTIFICATE_FILE, PRIVATE_KEY_FILE, SECRET_FILE
from fray.vocabulary import AUTH_SECRET, LABEL_MANAGED_BY, MANAGED_BY

__all__ = [
    "OVERLAP_SECONDS",
    "ROTATION",
    "AuthKeys",
    "KeyPair",
    "Step",
    "apply_step",
    "build_secret",
    "derive_step",
    "is_ours",
    "make_pair",
    "parse_keys",
]

OVERLAP_SECONDS: Final = 600.0
"""How long pods have to see a write before the next one; the kubelet takes two minutes at most."""
ROTATION: Final = timedelta(days=30)
"""Age at which a certificate is replaced."""
VALIDITY: Final = timedelta(days=3650)
"""How long before and after its making a certificate is valid: no clock of a pod is so wrong."""
NEXT_CERTIFICATE: Final = "next.crt"
NEXT_PRIVATE_KEY: Final = "next.key"
SECRET_SIZE: Final = 32
MOST_ACCEPTED: Final = 2


@dataclass(frozen=True)
class KeyPair:
    """A self-signed certificate and its private key, both PEM."""

    certificate: bytes = field(repr=False)
    private_key: bytes = field(repr=False)


@dataclass(frozen=True)
class AuthKeys:
    """The keys of a namespace: what pods show and accept, and in the first step what they show next.

    `secret` is what tokens of other engines are derived from; it stays for as long as the Secret.
    """

    secret: bytes = field(repr=False)
    shown: KeyPair
    accepted: tuple[bytes, ...] = field(repr=False)
    following: KeyPair | None = None


class Step(enum.Enum):
    """What is to be done with a namespace's keys."""

    KEEP = "keep"
    """Nothing."""
    MAKE = "make"
    """Make all of them anew: there are none, or none that can be used."""
    REPAIR = "repair"
    """Write those that there are as they should stand."""
    PREPARE = "prepare"
    """Have the next certificate accepted."""
    SWITCH = "switch"
    """Have the next certificate shown."""
    FORGET = "forget"
    """Have only the shown certificate accepted."""


def make_pair(now: datetime) -> KeyPair:
    """Return a new P-256 key with a certificate signed by itself."""
    private_key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # OpenSSL finds a certificate by its name: two of one name that are both accepted would hide each other.
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"{AUTH_SECRET} {serial:x}")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private_key.public_key())
        .serial_number(serial)
        .not_valid_before(now - VALIDITY)
        .not_valid_after(now + VALIDITY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private_key.public_key()), critical=False)
        .sign(private_key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    unencrypted = serialization.NoEncryption()
    key = private_key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, unencrypted)
    return KeyPair(certificate.public_bytes(encoding), key)


def is_ours(secret: Manifest) -> bool:
    """Return whether an operator made this Secret: what somebody else put there is never written over."""
    return (secret["metadata"].get("labels") or {}).get(LABEL_MANAGED_BY) == MANAGED_BY


def parse_keys(secret: Manifest) -> AuthKeys | None:
    """Return the keys in a Secret; None where it has none that can be used.

    Garbage in the certificates that are accepted besides, or to come, costs only these.
    """
    data = secret.get("data")
    read = {name: _decode(value) for name, value in (data if isinstance(data, dict) else {}).items()}
    shown = _parse_pair(read.get(CERTIFICATE_FILE, b""), read.get(PRIVATE_KEY_FILE, b""))
    if shown is None or len(read.get(SECRET_FILE, b"")) != SECRET_SIZE:
        return None
    following = _parse_pair(read.get(NEXT_CERTIFICATE, b""), read.get(NEXT_PRIVATE_KEY, b""))
    known = dict.fromkeys([shown.certificate, *([] if following is None else [following.certificate])])
    known |= dict.fromkeys(_parse_certificates(read.get(ACCEPTED_FILE, b"")))
    return AuthKeys(read[SECRET_FILE], shown, tuple(known)[:MOST_ACCEPTED], following)


def derive_step(secret: Manifest, *, now: datetime, unchanged_seconds: float) -> Step:
    """Return what is to be done with a Secret that has been as it is for so long."""
    keys = parse_keys(secret)
    if keys is None:
        return Step.MAKE
    if secret.get("data") != build_secret(keys, namespace="")["data"]:
        return Step.REPAIR
    if unchanged_seconds < OVERLAP_SECONDS:
        return Step.KEEP
    if keys.following is not None:
        return Step.SWITCH
    if len(keys.accepted) > 1:
        return Step.FORGET
    begins = x509.load_pem_x509_certificate(keys.shown.certificate).not_valid_before_utc
    # One from the future was made by a wrong clock, or this one is wrong: a rotation too many costs nothing.
    return Step.KEEP if -timedelta(days=1) <= now - begins - VALIDITY < ROTATION else Step.PREPARE


def apply_step(keys: AuthKeys | None, step: Step, *, now: datetime) -> AuthKeys:
    """Return the keys after a step."""
    if keys is None or step is Step.MAKE:
        pair = make_pair(now)
        return AuthKeys(secrets.token_bytes(SECRET_SIZE), pair, (pair.certificate,))
    if step is Step.PREPARE:
        following = make_pair(now)
        accepted = keys.shown.certificate, following.certificate
        return replace(keys, accepted=accepted, following=following)
    if step is Step.SWITCH and keys.following is not None:
        accepted = keys.following.certificate, keys.shown.certificate
        return replace(keys, shown=keys.following, accepted=accepted, following=None)
    if step is Step.FORGET:
        return replace(keys, accepted=(keys.shown.certificate,))
    return keys


def build_secret(keys: AuthKeys, *, namespace: str) -> Manifest:
    """Return the Secret that holds these keys, under the names that pods read them by."""
    files = {
        SECRET_FILE: keys.secret,
        CERTIFICATE_FILE: keys.shown.certificate,
        PRIVATE_KEY_FILE: keys.shown.private_key,
        ACCEPTED_FILE: b"".join(keys.accepted),
    }
    if keys.following is not None:
        files |= {
            NEXT_CERTIFICATE: keys.following.certificate,
            NEXT_PRIVATE_KEY: keys.following.private_key,
        }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": AUTH_SECRET, "namespace": namespace, "labels": {LABEL_MANAGED_BY: MANAGED_BY}},
        "data": {name: base64.b64encode(content).decode() for name, content in files.items()},
    }


def _decode(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        return b""


def _parse_pair(certificate: bytes, private_key: bytes) -> KeyPair | None:
    found = _parse_certificates(certificate)
    if len(found) != 1:
        return None
    try:
        key = serialization.load_pem_private_key(private_key, password=None)
        public = x509.load_pem_x509_certificate(found[0]).public_key()
    except (TypeError, ValueError, UnsupportedAlgorithm):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != public:
        return None
    return KeyPair(found[0], private_key)


def _parse_certificates(text: bytes) -> list[bytes]:
    """Return the certificates in a text, as PEM; none where any of it can't be read."""
    try:
        found = x509.load_pem_x509_certificates(text)
    except ValueError:
        return []
    return [each.public_bytes(serialization.Encoding.PEM) for each in found]
