"""How errors tell sizes: of a whole, and of the parts that take the room. Not for other output."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["format_parts", "format_size"]


def format_size(size: int) -> str:
    """Return a number of bytes in megabytes: `8.5 MB`."""
    return f"{size / 1e6:.1f} MB"


def format_parts(parts: Iterable[tuple[str, int]]) -> str:
    """Return names with their bytes: `data.bin (8.5 MB), model.py (0.1 MB)`."""
    return ", ".join(f"{name} ({format_size(size)})" for name, size in parts)
