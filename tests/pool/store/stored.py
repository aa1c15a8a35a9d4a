"""What tests put into a store, and what they find in its directories."""

from __future__ import annotations

from pathlib import Path

from fray.runtime.pool.objects.files import HELD
from fray.runtime.pool.objects.flat_format import Encoded
from fray.runtime.pool.objects.store import HostStore
from fray.runtime.pool.objects.values import encode


def value(size: int) -> Encoded:
    """A value whose file has exactly `size` bytes."""
    return encode(b"\x07" * (size - encode(b"\x07" * size).size + size))


def files(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if path.suffix != HELD} - {"usage"}


def real_memory(store: HostStore) -> int:
    found = [path.stat() for path in store.directory.iterdir() if path.name != "usage"]
    return sum({status.st_ino: status.st_size for status in found}.values())
