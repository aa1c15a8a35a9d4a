"""A payload is put together from its Secrets as it was split, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fray.errors import PayloadMissingError
from fray.payload.chunks import CHUNK_SIZE, join_parts, split_payload


def mount(directory: Path, data: bytes, size: int = CHUNK_SIZE) -> None:
    for part in split_payload(data, secret_name="train-payload", size=size):
        (directory / part.key).write_bytes(part.data)


@given(data=st.binary(min_size=1, max_size=500), size=st.integers(1, 60))
def test_no_part_is_too_large_and_none_is_lost(data: bytes, size: int) -> None:
    parts = split_payload(data, secret_name="a", size=size)
    assert b"".join(part.data for part in parts) == data
    assert all(0 < len(part.data) <= size for part in parts)
    assert len({part.key for part in parts}) == len({part.secret_name for part in parts}) == len(parts)


def test_a_secret_stays_below_a_mebibyte_with_its_key() -> None:
    parts = split_payload(bytes(5_000_000), secret_name="train-payload")
    assert [part.secret_name for part in parts][:2] == ["train-payload", "train-payload-1"]
    assert all(len(part.data) + len(part.key) <= 1 << 20 for part in parts)


def test_parts_are_joined_in_their_order_whatever_else_is_mounted(tmp_path: Path) -> None:
    data = bytes(range(256)) * 5
    mount(tmp_path, data, size=1)
    (tmp_path / "..data").mkdir()
    assert join_parts(tmp_path) == data


def test_a_part_that_is_missing_is_named(tmp_path: Path) -> None:
    mount(tmp_path, b"abcdef", size=2)
    (tmp_path / "payload-001").unlink()
    with pytest.raises(PayloadMissingError, match="payload-001"):
        join_parts(tmp_path)


@pytest.mark.parametrize("made", [True, False])
def test_a_directory_without_a_payload_is_named(tmp_path: Path, made: bool) -> None:
    place = tmp_path if made else tmp_path / "nowhere"
    with pytest.raises(PayloadMissingError, match="no payload" if made else "No such file") as caught:
        join_parts(place)
    assert str(place) in str(caught.value)
