"""Very long lines: how they are cut, and which part of a progress bar's line is shown.

A progress bar prints carriage returns and no newlines, so its line grows for days. Lines are cut so that no
program's output fills the memory of its reader. Where a line is cut depends on its bytes alone: a second
reader, which receives other pieces, finds the same parts.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LONGEST_LINE", "STATE_SECONDS", "last_state", "split_long_line"]

LONGEST_LINE: Final = 1 << 20
"""Bytes of a line that are handed out as one."""
STATE_SECONDS: Final = 0.5
"""How often the state of a line that is written over and over is handed out at most."""

CONTINUATION_MASK: Final = 0b1100_0000
CONTINUATION: Final = 0b1000_0000
"""The upper bits of all bytes of a character in UTF-8 but its first."""
LONGEST_CHARACTER: Final = 4


def split_long_line(line: bytes, *, longest: int = LONGEST_LINE) -> list[bytes]:
    """Return a line in parts of at most `longest` bytes, at least one; no character of UTF-8 is cut."""
    parts: list[bytes] = []
    begin = 0
    while len(line) - begin > longest:
        end = begin + longest
        for _ in range(LONGEST_CHARACTER - 1):
            if line[end] & CONTINUATION_MASK != CONTINUATION:
                break
            end -= 1
        parts.append(line[begin:end])
        begin = end
    parts.append(line[begin:])
    return parts


def last_state(line: str) -> str:
    """Return what a terminal shows of a line in the end: the text after its last carriage return."""
    return line.rstrip("\r").rpartition("\r")[2]
