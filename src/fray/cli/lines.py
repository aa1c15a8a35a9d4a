"""Output of hosts as lines on a screen: `[slice/host]` before each, and nothing that harms a terminal.

Bytes become text here and only here; what isn't UTF-8 shows as a replacement character.
"""

from __future__ import annotations

import codecs
import re
from datetime import datetime

from fray.cluster.local.logs import LogPiece, Place
from fray.types import LogLine

__all__ = ["LineFormatter", "clean_for_terminal", "format_log_line"]

COLORS = (36, 33, 35, 32, 34, 31)
"""Cyan, yellow, magenta, green, blue, red (SGR parameters)."""
RESET = "\x1b[0m"
LINE = re.compile(r"[^\n]*\n|[^\n]+")
"""A line with its newline, or the rest. Not `splitlines`, which splits at other characters, too."""
STYLE = re.compile(r"\x1b\[[0-9;:]*m")
ESCAPE = re.compile(
    r"\x1b\[(?![0-9;:]*m)[0-?]*[ -/]*[@-~]?"  # control sequences, but for colours
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # strings: window titles, links, device control
    r"|\x1b(?!\[[0-9;:]*m)[@-Z\\-_a-z0-9=>]?"
    r"|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]"
)


class LineFormatter:
    """Turns pieces of output into text, one formatter for each stream of pieces.

    `terminal` makes the text safe to show; `color` paints the prefixes, a colour for each rank;
    `timestamps` puts the time at which a line was read before it.
    """

    def __init__(
        self, *, hosts_per_slice: int, terminal: bool, color: bool, timestamps: bool = False
    ) -> None:
        self._hosts_per_slice = hosts_per_slice
        self._terminal = terminal
        self._color = color
        self._timestamps = timestamps
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._within_line = False

    def format(self, piece: LogPiece) -> str:
        """Return the text to print for a piece; it ends with a newline unless the line goes on."""
        text = self._decoder.decode(piece.data, final=piece.ends)
        if piece.ends and not text.endswith("\n"):
            text += "\n"
        prefix = self._prefix(piece.place, piece.at)
        parts = []
        for line in LINE.findall(text):
            if not self._within_line:
                parts.append(prefix)
            parts.append(clean_for_terminal(line) if self._terminal else line)
            self._within_line = not line.endswith("\n")
        return "".join(parts)

    def _prefix(self, place: Place, at: datetime) -> str:
        rank = place[0] * self._hosts_per_slice + place[1]
        return _format_prefix(place, rank, at if self._timestamps else None, color=self._color)


def format_log_line(line: LogLine, *, terminal: bool, color: bool, timestamps: bool = False) -> str:
    """Return a line as `LineFormatter` does, with its newline."""
    place = line.slice_index, line.host
    prefix = _format_prefix(place, line.rank, line.at if timestamps else None, color=color)
    return f"{prefix}{clean_for_terminal(line.text) if terminal else line.text}\n"


def _format_prefix(place: Place, rank: int, at: datetime | None, *, color: bool) -> str:
    label = f"[{place[0]}/{place[1]}]"
    if color:
        label = f"\x1b[{COLORS[rank % len(COLORS)]}m{label}{RESET}"
    return f"{label} " if at is None else f"{_format_time(at)} {label} "


def clean_for_terminal(line: str) -> str:
    """Return a line without what would move the cursor or change the terminal; colours stay."""
    body, newline = (line[:-1], "\n") if line.endswith("\n") else (line, "")
    # A progress bar returns to the start of its line: only its last state counts.
    body = body.rstrip("\r").rpartition("\r")[2]
    body = ESCAPE.sub("", body)
    if STYLE.search(body):
        body += RESET
    return body + newline


def _format_time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
