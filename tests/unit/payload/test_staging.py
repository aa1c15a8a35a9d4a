"""Staged payloads are written once, read whole, and what storage refuses is told without credentials."""

from __future__ import annotations

from pathlib import Path

import pytest

from fray.errors import PayloadMissingError, PayloadStorageError
from fray.payload.staging import FsspecStorage, staged_url


@pytest.mark.parametrize("base", ["gs://bucket/fray", "gs://bucket/fray/"])
def test_the_digest_is_the_name(base: str) -> None:
    assert staged_url(base, "ab12") == "gs://bucket/fray/payloads/ab12"


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return staged_url(
        {"file": f"file://{tmp_path}/stage", "memory": f"memory://{tmp_path}"}[request.param], "ab"
    )


def test_what_was_written_is_read(url: str) -> None:
    FsspecStorage().write(url, b"payload")
    FsspecStorage().write(url, b"payload")
    assert FsspecStorage().read(url) == b"payload"


def test_what_is_there_is_not_written_again_unless_it_was_cut(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/ab"
    (tmp_path / "ab").write_bytes(b"PAYLOAD")
    FsspecStorage().write(url, b"payload")
    assert (tmp_path / "ab").read_bytes() == b"PAYLOAD"
    (tmp_path / "ab").write_bytes(b"pay")
    FsspecStorage().write(url, b"payload")
    assert (tmp_path / "ab").read_bytes() == b"payload"


def test_a_payload_that_is_gone_is_missing(url: str) -> None:
    with pytest.raises(PayloadMissingError, match="no payload is there"):
        FsspecStorage().read(url)


def test_what_storage_refuses_is_told(tmp_path: Path) -> None:
    (tmp_path / "stage").write_text("a file")
    with pytest.raises(PayloadStorageError, match=r"stage.*(Exists|NotADirectory)"):
        FsspecStorage().write(f"file://{tmp_path}/stage/ab", b"payload")
    with pytest.raises(PayloadStorageError, match="IsADirectory"):
        FsspecStorage().read(f"file://{tmp_path}")


def test_an_unknown_scheme_is_told_without_credentials() -> None:
    with pytest.raises(PayloadStorageError, match=r"nothing://\*\*\*@host/ab") as caught:
        FsspecStorage().read("nothing://me:s3cret@s3/cret@host/ab")
    assert "cret" not in str(caught.value)
