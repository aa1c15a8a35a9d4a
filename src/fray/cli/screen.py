"""Where the output and the progress of a running job go: a terminal with a live line, or plain streams.

A screen is used by one thread. What is shown, and when, is `follow`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from fray.cli.columns import format_duration
from fray.cli.story import Line
from fray.cli.streams import OutputStream
from fray.cluster.progress import find_waiting
from fray.plan.texts import format_count
from fray.plan.timestamps import parse_time
from fray.wire.frayjob import FrayJob

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment
    from rich.text import Text

__all__ = ["LiveScreen", "PlainScreen", "Screen", "build_status_line", "open_screen"]

MAX_MARKS = 64
"""More hosts than that are shown as numbers."""
MARKS = (("succeeded", "✓", "+", "green"), ("running", "●", "o", "green"), ("failed", "✗", "x", "bold red"))
"""A mark for each host that has begun, with its form in ASCII, by the counts of the status."""
PENDING_MARKS = ("○", ".")


class Screen(Protocol):
    """Shows output and progress. Any method may raise OSError when nobody reads."""

    def print_output(self, text: str) -> None:
        """Show output of hosts; whole lines."""

    def print_lines(self, lines: Iterable[Line]) -> None:
        """Show what Fray itself says."""

    def show_progress(self, job: FrayJob) -> None:
        """Show how the job stands now; called several times a second."""

    def close(self) -> None:
        """Take the progress away; what was printed stays."""


class PlainScreen:
    """Output goes to one stream, what Fray says to the other; no progress between state changes."""

    def __init__(self, output: OutputStream, notes: OutputStream) -> None:
        self._output = output
        self._notes = notes

    def print_output(self, text: str) -> None:
        """Write to standard output."""
        self._output.write(text)

    def print_lines(self, lines: Iterable[Line]) -> None:
        """Write to standard error."""
        self._notes.write("".join(f"{line.text}\n" for line in lines))

    def show_progress(self, job: FrayJob) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class LiveScreen:
    """Everything goes to one terminal, with a line at its bottom that tells how the job stands."""

    def __init__(self, terminal: OutputStream) -> None:
        from rich.console import Console  # noqa: PLC0415 - slow to import, and only needed on terminals
        from rich.live import Live  # noqa: PLC0415

        self._terminal = terminal
        self._console = Console(file=terminal, no_color=not terminal.has_color, highlight=False)  # type: ignore[arg-type]
        self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._open = False

    def print_output(self, text: str) -> None:
        """Print above the live line, in one piece however many lines there are."""
        self._console.print(_Raw(text), end="", soft_wrap=True)

    def print_lines(self, lines: Iterable[Line]) -> None:
        """Print above the live line."""
        from rich.text import Text  # noqa: PLC0415

        for line in lines:
            self._console.print(Text(line.text, style=line.tone.value), soft_wrap=True)

    def show_progress(self, job: FrayJob) -> None:
        """Redraw the live line."""
        if not self._open:
            self._live.start()
            self._open = True
        unicode = self._terminal.encoding.lower().replace("-", "") == "utf8"
        line = build_status_line(job, now=datetime.now(UTC), unicode=unicode)
        self._live.update(line, refresh=True)

    def close(self) -> None:
        """Remove the live line."""
        if self._open:
            self._open = False
            self._live.stop()


class _Raw:
    """Text that rich passes on as it is, neither wrapped nor parsed: the hosts' own colours are in it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment  # noqa: PLC0415

        yield Segment(self._text)


def open_screen(output: OutputStream, notes: OutputStream) -> Screen:
    """Return the screen for this process's streams: a live one only where a terminal shows both."""
    if output.is_terminal and notes.is_terminal:
        return LiveScreen(output)
    return PlainScreen(output, notes)


def build_status_line(job: FrayJob, *, now: datetime, unicode: bool) -> Text:
    """Return the live line: job, attempt, time, hosts with a mark for each, and what it waits for."""
    from rich.text import Text  # noqa: PLC0415

    status = job.status
    started = parse_time(status.start_time) if status.start_time else now
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(job.metadata.name, style="bold")
    text.append(f"  {status.phase or 'Pending'}")
    if status.attempt is not None:
        text.append(f"  attempt {status.attempt}")
    text.append(f"  {format_duration((now - started).total_seconds())}", style="dim")
    if (counts := status.replicas) is not None:
        text.append(f"  {counts.running}/{format_count(counts.total, 'host')} running")
        if 0 < counts.total <= MAX_MARKS:
            text.append("  ")
            for what, mark, ascii_mark, style in MARKS:
                text.append((mark if unicode else ascii_mark) * getattr(counts, what), style=style)
            text.append(PENDING_MARKS[not unicode] * counts.pending, style="dim")
    if (waiting := find_waiting(job)) is not None:
        text.append(f"  {waiting.reason}", style="yellow")
    return text
