"""Where the output and the progress of a running job go: a terminal with a live line, or plain streams.

A screen is used by one thread. What is told, and when, is `display`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from fray.cli.columns import format_duration
from fray.cli.story import Line, format_hosts
from fray.cli.streams import Stream
from fray.cluster.progress import find_waiting
from fray.plan.observation import GangObservation, HostPhase
from fray.plan.timestamps import parse_time
from fray.wire.frayjob import FrayJob

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment
    from rich.text import Text

__all__ = ["LiveScreen", "PlainScreen", "Screen", "build_status_line", "open_screen"]

MAX_MARKS = 64
"""More hosts than that are shown as numbers."""
MARKS = {
    HostPhase.PENDING: ("○", "dim"),
    HostPhase.RUNNING: ("●", "green"),
    HostPhase.SUCCEEDED: ("✓", "green"),
    HostPhase.FAILED: ("✗", "bold red"),
}
ASCII_MARKS = {
    HostPhase.PENDING: ".",
    HostPhase.RUNNING: "o",
    HostPhase.SUCCEEDED: "+",
    HostPhase.FAILED: "x",
}


class Screen(Protocol):
    """Shows output and progress. Any method may raise OSError when nobody reads."""

    def print_output(self, text: str) -> None:
        """Show output of hosts; whole lines."""

    def print_lines(self, lines: Iterable[Line]) -> None:
        """Show what Fray itself says."""

    def show_progress(self, job: FrayJob, observed: GangObservation | None) -> None:
        """Show how the job stands now; called several times a second."""

    def close(self) -> None:
        """Take the progress away; what was printed stays."""


class PlainScreen:
    """Output goes to one stream, what Fray says to the other; no progress between state changes."""

    def __init__(self, output: Stream, notes: Stream) -> None:
        self._output = output
        self._notes = notes

    def print_output(self, text: str) -> None:
        """Write to standard output."""
        self._output.write(text)

    def print_lines(self, lines: Iterable[Line]) -> None:
        """Write to standard error."""
        self._notes.write("".join(f"{line.text}\n" for line in lines))

    def show_progress(self, job: FrayJob, observed: GangObservation | None) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class LiveScreen:
    """Everything goes to one terminal, with a line at its bottom that tells how the job stands."""

    def __init__(self, terminal: Stream) -> None:
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

    def show_progress(self, job: FrayJob, observed: GangObservation | None) -> None:
        """Redraw the live line."""
        if not self._open:
            self._live.start()
            self._open = True
        unicode = self._terminal.encoding.lower().replace("-", "") == "utf8"
        line = build_status_line(job, observed, now=datetime.now(UTC), unicode=unicode)
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


def open_screen(output: Stream, notes: Stream) -> Screen:
    """Return the screen for this process's streams: a live one only where a terminal shows both."""
    if output.is_terminal and notes.is_terminal:
        return LiveScreen(output)
    return PlainScreen(output, notes)


def build_status_line(
    job: FrayJob, observed: GangObservation | None, *, now: datetime, unicode: bool
) -> Text:
    """Return the live line: job, attempt, hosts, time, and a mark for each host, slice by slice."""
    from rich.text import Text  # noqa: PLC0415

    status = job.status
    started = parse_time(status.start_time) if status.start_time else now
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(job.metadata.name, style="bold")
    text.append(f"  {status.phase or 'Pending'}")
    if status.attempt is not None:
        text.append(f"  attempt {status.attempt}")
    text.append(f"  {format_duration((now - started).total_seconds())}", style="dim")
    if observed is None:
        _append_counts(text, job)
        return text
    running = observed.count(HostPhase.RUNNING)
    text.append(f"  {running}/{format_hosts(len(observed.hosts))} running ")
    if len(observed.hosts) > MAX_MARKS:
        return text
    previous = None
    for host in observed.hosts:
        if host.slice_index != previous:
            text.append(f" slice {host.slice_index} ", style="dim")
            previous = host.slice_index
        mark, style = MARKS[host.phase]
        text.append(mark if unicode else ASCII_MARKS[host.phase], style=style)
    return text


def _append_counts(text: Text, job: FrayJob) -> None:
    """Append what the status alone tells of a job's hosts."""
    if job.status.replicas is not None:
        counts = job.status.replicas
        text.append(f"  {counts.running}/{format_hosts(counts.total)} running")
    waiting = find_waiting(job)
    if waiting is not None:
        text.append(f"  {waiting.reason}", style="yellow")
