"""A payload in parts that fit into Secrets, and put together again from where they are mounted.

Names and contents only: Secrets are made by the client of the API server. A payload of several Secrets is
mounted into one directory, so the keys differ. Whether the parts are the right ones is seen by their digest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fray.errors import PayloadMissingError

__all__ = ["CHUNK_SIZE", "KEY_PREFIX", "SecretPart", "join_parts", "split_payload"]

CHUNK_SIZE = 1_000_000
"""Bytes in a Secret, which may hold a MiB, keys included:
https://kubernetes.io/docs/concepts/configuration/secret/#restriction-data-size
"""
KEY_PREFIX = "payload-"


@dataclass(frozen=True)
class SecretPart:
    """One Secret of a payload: its name, and the one key in it with the bytes."""

    secret_name: str
    key: str
    data: bytes = field(repr=False)


def split_payload(data: bytes, *, secret_name: str, size: int = CHUNK_SIZE) -> tuple[SecretPart, ...]:
    """Return a payload as the Secrets that hold it, in parts of at most `size` bytes.

    The first one's name is `secret_name`, which goes into `entrypoint.callable.secretName`; those of the
    others go into `moreSecrets`.
    """
    pieces = [data[begin : begin + size] for begin in range(0, len(data), size)]
    names = (secret_name, *(f"{secret_name}-{index}" for index in range(1, len(pieces))))
    return tuple(
        SecretPart(name, _key(index), piece)
        for index, (name, piece) in enumerate(zip(names, pieces, strict=True))
    )


def join_parts(directory: Path) -> bytes:
    """Return the payload whose Secrets are mounted at `directory`.

    Raises:
        PayloadMissingError: there is none, one of its parts is missing, or the directory can't be read.
    """
    try:
        names = {path.name for path in directory.iterdir()}
        count = sum(name.startswith(KEY_PREFIX) for name in names)
        if not count:
            raise PayloadMissingError(str(directory), "no payload is mounted there")
        keys = [_key(index) for index in range(count)]
        for key in keys:
            if key not in names:
                raise PayloadMissingError(str(directory), f"{key} of the payload isn't there")
        return b"".join((directory / key).read_bytes() for key in keys)
    except OSError as error:
        raise PayloadMissingError(str(directory), f"{error.strerror or error}") from error


def _key(index: int) -> str:
    return f"{KEY_PREFIX}{index:03}"
