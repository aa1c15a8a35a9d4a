"""Keys of pools for tests, as the operator makes them."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from pathlib import Path

from fray.runtime.pool.transport.keys import CERTIFICATE_FILE, PRIVATE_KEY_FILE, SECRET_FILE
from fray_operator.auth_keys import make_pair


def write_key(directory: Path) -> Path:
    """Write a secret and a certificate into `directory`, and return it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    pair = make_pair(datetime.now(UTC))
    (directory / SECRET_FILE).write_bytes(secrets.token_bytes(32))
    (directory / CERTIFICATE_FILE).write_bytes(pair.certificate)
    (directory / PRIVATE_KEY_FILE).write_bytes(pair.private_key)
    return directory
