"""Aligned columns of text, as `kubectl get` prints them, and durations in few characters."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["format_age", "format_columns", "format_duration"]

GAP = 3
NARROW = 8
"""No column gets narrower than that."""


def format_columns(rows: Sequence[Sequence[str]], *, width: int | None = None) -> list[str]:
    """Return one line for each row, with each column as wide as its widest cell.

    Where that is more than `width`, the widest columns are cut.
    """
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    while width is not None and sum(widths) + GAP * (len(widths) - 1) > width and max(widths) > NARROW:
        widths[widths.index(max(widths))] -= 1
    return [
        "".join(_cut(cell, most).ljust(most + GAP) for cell, most in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _cut(cell: str, most: int) -> str:
    return cell if len(cell) <= most else f"{cell[: most - 2]}.."


def format_duration(seconds: float) -> str:
    """Return a length of time as one reads it: `0.8 s`, `42 s`, `3 min 5 s`, `2 h 10 min`."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours == 0:
        return f"{minutes} min {rest} s"
    return f"{hours} h {minutes} min"


def format_age(seconds: float) -> str:
    """Return an age as `kubectl get` does: `42s`, `5m`, `3h`, `2d`."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(int(seconds), 0)}s"
