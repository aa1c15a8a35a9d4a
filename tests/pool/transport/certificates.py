"""Keys of pools for tests, as the operator would make them."""

from __future__ import annotations

import datetime
import secrets
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fray.runtime.pool.transport.keys import CERTIFICATE_FILE, PRIVATE_KEY_FILE, SECRET_FILE

VALID = datetime.timedelta(days=1)


def write_key(directory: Path) -> Path:
    """Write a secret and a self-signed P-256 certificate into `directory`, and return it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory / SECRET_FILE).write_bytes(secrets.token_bytes(32))
    private_key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "fray-auth")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - VALID)
        .not_valid_after(now + VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private_key, hashes.SHA256())
    )
    (directory / CERTIFICATE_FILE).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (directory / PRIVATE_KEY_FILE).write_bytes(
        private_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return directory
