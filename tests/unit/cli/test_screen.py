"""The live line, and what a terminal is shown above it."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime

import pytest

from fray.cli.screen import LiveScreen, PlainScreen, build_status_line, open_screen
from fray.cli.story import Line, Tone
from fray.cli.streams import OutputStream
from fray.plan.lifecycle import decide
from fray.plan.settings import RetryPolicy
from fray.wire.frayjob import FrayJob
from fray.wire.status import ReplicaCounts
from tests.unit.cluster.local_jobs import frayjob

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
LATER = datetime(2026, 1, 31, 12, 0, 42, tzinfo=UTC)


class Recorder(OutputStream):
    """A stream that keeps what is written to it."""

    def __init__(self, *, terminal: bool, color: bool = True, encoding: str = "utf-8") -> None:
        self.encoding = encoding
        self.is_terminal = terminal
        self.has_color = terminal and color
        self.written = io.StringIO()

    def write(self, text: str) -> int:
        return self.written.write(text)

    def fileno(self) -> int:
        raise io.UnsupportedOperation


def started(**counts: int) -> FrayJob:
    job = frayjob(tpu="v5p-16", replicas=2)
    status = decide(job, None, now=START, policy=RetryPolicy()).status
    if counts:
        status = status.model_copy(update={"replicas": ReplicaCounts(**counts)})
    return job.model_copy(update={"status": status})


def test_the_live_line_tells_attempt_time_and_hosts() -> None:
    job = started(total=4, running=1, succeeded=1, failed=1, pending=1)
    line = build_status_line(job, now=LATER, unicode=True)
    assert line.plain.startswith("job  Pending  attempt 1  42 s  1/4 hosts running  ✓●✗○")


def test_it_needs_no_unicode_and_no_status() -> None:
    line = build_status_line(started(total=2, running=1, failed=1), now=LATER, unicode=False)
    assert "  ox" in line.plain
    assert line.plain.isascii()
    assert build_status_line(frayjob(), now=LATER, unicode=True).plain == "job  Pending  0.0 s"


def test_a_large_gang_is_a_number() -> None:
    line = build_status_line(started(total=65, running=65), now=LATER, unicode=True)
    assert "65/65 hosts running" in line.plain
    assert "●" not in line.plain


def test_a_live_screen_needs_a_terminal_for_both_streams() -> None:
    assert isinstance(open_screen(Recorder(terminal=True), Recorder(terminal=True)), LiveScreen)
    assert isinstance(open_screen(Recorder(terminal=False), Recorder(terminal=True)), PlainScreen)
    assert isinstance(open_screen(Recorder(terminal=True), Recorder(terminal=False)), PlainScreen)


def test_a_plain_screen_keeps_output_and_notes_apart() -> None:
    output, notes = Recorder(terminal=False), Recorder(terminal=False)
    screen = PlainScreen(output, notes)
    screen.print_output("[0/0] a\n")
    screen.show_progress(started())
    screen.print_lines([Line("job: said", Tone.BAD)])
    screen.close()
    assert (output.written.getvalue(), notes.written.getvalue()) == ("[0/0] a\n", "job: said\n")


@pytest.mark.parametrize("color", [True, False])
def test_a_live_screen_prints_above_its_line_and_takes_it_away(
    color: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Recorder(terminal=True, color=color)
    screen = LiveScreen(terminal)
    screen.show_progress(started())
    long = "[0/0] [bold]not markup[/] " + "x" * 300 + " \x1b[31mtheirs\x1b[0m\n"
    screen.print_output(long)
    screen.print_lines([Line("job: said [1/2]", Tone.BAD)])
    screen.close()
    text = terminal.written.getvalue()
    assert long in text, "neither wrapped nor parsed"
    assert "job: said [1/2]" in text
    assert bool(re.search(r"\x1b\[1;31mjob: said", text)) is color
    assert text.endswith("\x1b[2K") or "\x1b[?25h" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
