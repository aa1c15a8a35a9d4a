"""Keys: loaded from a directory, complete or refused, and never shown."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from fray.errors import TransportKeyError
from fray.runtime.pool.transport.handshake import Role
from fray.runtime.pool.transport.keys import CERTIFICATE_FILE, PRIVATE_KEY_FILE, SECRET_FILE, TransportKey
from tests.pool.transport.certificates import write_key


def test_a_key_never_shows_its_secret(tmp_path: Path) -> None:
    key = TransportKey.load(write_key(tmp_path))
    for text in (repr(key), str(key), f"{key}"):
        assert repr(key.secret)[2:12] not in text
        assert key.secret.hex()[:10] not in text
        assert PRIVATE_KEY_FILE not in text


def test_a_secret_alone_serves_unix_sockets_only(tmp_path: Path) -> None:
    (tmp_path / SECRET_FILE).write_bytes(b"s" * 32)
    key = TransportKey.load(tmp_path)
    assert key == TransportKey(b"s" * 32)
    with pytest.raises(TransportKeyError, match="certificate"):
        key.tls_context(Role.LISTENER)


def test_generated_keys_differ() -> None:
    assert TransportKey.generate() != TransportKey.generate()


@pytest.mark.parametrize("missing", [SECRET_FILE, CERTIFICATE_FILE, PRIVATE_KEY_FILE])
def test_an_incomplete_directory_is_refused(tmp_path: Path, missing: str) -> None:
    (write_key(tmp_path) / missing).unlink()
    with pytest.raises(TransportKeyError) as refused:
        TransportKey.load(tmp_path)
    assert refused.value.directory == str(tmp_path)


def test_a_secret_of_another_length_is_refused_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / SECRET_FILE).write_bytes(b"hunter2hunter2")
    with pytest.raises(TransportKeyError, match="14 bytes") as refused:
        TransportKey.load(tmp_path)
    assert "hunter2" not in str(refused.value)


def test_a_certificate_of_another_private_key_is_refused(tmp_path: Path) -> None:
    one, other = write_key(tmp_path / "one"), write_key(tmp_path / "other")
    (one / PRIVATE_KEY_FILE).write_bytes((other / PRIVATE_KEY_FILE).read_bytes())
    with pytest.raises(TransportKeyError, match="certificate"):
        TransportKey.load(one).tls_context(Role.LISTENER)


@pytest.mark.parametrize("role", list(Role))
def test_tls_is_mutual_and_1_3_on_both_sides(tmp_path: Path, role: Role) -> None:
    context = TransportKey.load(write_key(tmp_path)).tls_context(role)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize(
    "arguments", [(b"short",), (b"s" * 32, Path("tls.crt")), (b"s" * 32, None, Path("tls.key"))]
)
def test_half_a_key_is_a_mistake_of_the_caller(arguments: tuple[bytes, Path | None]) -> None:
    with pytest.raises(ValueError, match=r"32 bytes|together"):
        TransportKey(*arguments)
