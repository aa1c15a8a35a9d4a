"""Output of hosts as lines on a screen: `[slice/host]` before each, and nothing that harms a terminal.

Colours of the hosts' own stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from fray.cli.streams import OutputStream
from fray.cluster.long_lines import last_state
from fray.types import LogLine

__all__ = ["LineFormatter", "clean_for_terminal", "print_log"]

COLORS = (36, 33, 35, 32, 34, 31)
"""Cyan, yellow, magenta, green, blue, red (SGR parameters)."""
RESET = "\x1b[0m"
ERASE_BELOW = "\x1b[J"
"""ECMA-48: ED (erase in page) from the cursor to the end."""
NO_WRAP, WRAP = "\x1b[?7l", "\x1b[?7h"
"""DECAWM: a line that is too long for the terminal is cut, so that it takes one row."""
MOST_STATES = 8
"""Unfinished lines that a terminal shows: those of the hosts that have written last."""
STYLE = re.compile(r"\x1b\[[0-9;:]*m")
ESCAPE = re.compile(
    r"\x1b\[(?![0-9;:]*m)[0-?]*[ -/]*[@-~]?"  # control sequences, but for colours
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # strings: window titles, links, device control
    r"|\x1b(?!\[[0-9;:]*m)[@-Z\\-_a-z0-9=>]?"
    r"|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]"
)


class LineFormatter:
    """Turns lines into text, one formatter for each stream of lines.

    `terminal` makes the text safe to show; `color` paints the prefixes, a colour for each rank;
    `timestamps` puts the time of a line before it.
    """

    def __init__(self, *, terminal: bool, color: bool, timestamps: bool = False) -> None:
        self._terminal, self._color, self._timestamps = terminal, color, timestamps
        self._within: tuple[int, int] | None = None
        """Attempt and rank of the line that isn't at its end."""
        self._states: dict[tuple[int, int], str] = {}
        """By attempt and rank, unfinished lines as they were shown last, the newest at the end."""
        self._rows = 0
        """How many of them stand below all other lines of the terminal."""

    def format(self, line: LogLine) -> str:
        """Return the text to print for a line; parts of a very long one are joined, but on terminals.

        Unfinished lines stand below the others on a terminal, where each state takes the place of the one
        before it. Elsewhere each state is a line.
        """
        place = line.attempt, line.rank
        if self._terminal:
            text = f"{self._prefix(line)}{clean_for_terminal(line.text)}\n"
            self._states.pop(place, None)
            if line.unfinished:
                self._states[place], text = text, ""
            return f"{self.lift_states()}{text}{self.draw_states()}"
        if line.unfinished or place in self._states:
            text, shown = last_state(line.text), self._states.pop(place, None)
            if line.unfinished:
                self._states[place] = text
            if text == shown:
                return ""
        begun = self._within == place
        before = "" if begun else self.end() + self._prefix(line)
        self._within = place if line.goes_on else None
        text = line.text if begun or line.goes_on else last_state(line.text)
        return f"{before}{text}" if line.goes_on else f"{before}{text}\n"

    def lift_states(self) -> str:
        """Return what takes unfinished lines off the terminal, before others write to it."""
        rows, self._rows = self._rows, 0
        return f"\x1b[{rows}A{ERASE_BELOW}" if rows else ""

    def draw_states(self) -> str:
        """Return what puts unfinished lines below what was written."""
        shown = list(self._states.values())[-MOST_STATES:] if self._terminal else []
        self._rows = len(shown)
        return f"{NO_WRAP}{''.join(shown)}{WRAP}" if shown else ""

    def end(self) -> str:
        """Return what ends a line whose rest never came."""
        return "" if self._within is None else "\n"

    def _prefix(self, line: LogLine) -> str:
        label = f"[{line.slice_index}/{line.host}]"
        if self._color:
            label = f"\x1b[{COLORS[line.rank % len(COLORS)]}m{label}{RESET}"
        at = line.at if self._timestamps else None
        return f"{label} " if at is None else f"{_format_time(at)} {label} "


def print_log(lines: Iterable[LogLine], output: OutputStream, *, timestamps: bool) -> None:
    """Print lines of hosts as they come, each behind `[slice/host]`."""
    formatter = LineFormatter(terminal=output.is_terminal, color=output.has_color, timestamps=timestamps)
    for line in lines:
        output.write(formatter.format(line))
    output.write(formatter.end())


def clean_for_terminal(line: str) -> str:
    """Return a line without what would move the cursor or change the terminal; colours stay."""
    body, newline = (line[:-1], "\n") if line.endswith("\n") else (line, "")
    body = ESCAPE.sub("", last_state(body))
    if STYLE.search(body):
        body += RESET
    return body + newline


def _format_time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
