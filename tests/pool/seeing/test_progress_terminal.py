"""Progress on a real terminal, and where there is none."""

from __future__ import annotations

import contextlib
import errno
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from fray.job import get_job_context
from fray.job.pool import start_pool
from fray.job.progress import Progress
from fray.job.progress_bar import ERASE_LINE
from fray.job.progress_display import LazyBar, watching
from tests.behaviour.gates import Gate
from tests.pool.seeing.watched_program import LINES

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "tests.pool.seeing.watched_program"]
GIVE_UP_SECONDS = 60.0
"""Before pytest's own time-out, which shows no screen."""
SPOKEN = [f"<task {number}>" for number in range(1, LINES)]


class Screen:
    """The terminal's end of a pty; `text` is all that was written to it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.text = ""

    def read_until(self, pattern: str) -> None:
        """Read until the text matches; fail if it ends before, or doesn't come to it."""
        give_up_at = time.monotonic() + GIVE_UP_SECONDS
        while not re.search(pattern, self.text):
            # Checked here, since the bar is drawn anew for ever: what the screen shows is the evidence.
            shown = f"no {pattern} in {self.text!r}"
            assert time.monotonic() < give_up_at, shown
            assert self._read(), shown

    def read_all(self) -> None:
        while self._read():
            pass

    def _read(self) -> bool:
        try:
            part = os.read(self._descriptor, 65536)
        except OSError as error:
            # Linux says so when the last process has closed the other end.
            if error.errno != errno.EIO:
                raise
            part = b""
        self.text += part.decode(errors="replace")
        return bool(part)


@contextlib.contextmanager
def on_terminal(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[bytes], Screen]]:
    ours, theirs = pty.openpty()
    try:
        env = {**os.environ, "TERM": "xterm", "COLUMNS": "120", **environment}
        process = subprocess.Popen(
            [*COMMAND, *arguments], cwd=ROOT, env=env, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        with process:
            yield process, Screen(ours)
    finally:
        os.close(ours)


@pytest.mark.parametrize("kind", ["threadpool", "pool"])
@pytest.mark.parametrize("call", ["get", "wait", "map"])
def test_a_bar_shows_and_every_line_of_the_tasks_stays(kind: str, call: str, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with on_terminal(kind, call, str(gate.path)) as (process, screen):
        # Within one drawing, which begins with a carriage return: there are as many as the tasks take long.
        screen.read_until(rf"{call} [^\r]* {LINES - 1}/{LINES}  [^\r]*1 running  [^\r]*\d:\d\d")
        gate.open()
        screen.read_until("<end>")
        screen.read_all()
        assert process.wait() == 0
    assert sorted(re.findall(r"<task \d+>", screen.text)) == sorted(SPOKEN)
    # Nothing goes up to a line above, and the last thing that is done to the bar's line is to erase it.
    assert "\x1b[1A" not in screen.text
    before_end = screen.text[: screen.text.index("<end>")]
    assert before_end.endswith(ERASE_LINE)


def test_an_interrupt_finds_no_bar_on_its_line(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with on_terminal("threadpool", "get", str(gate.path)) as (process, screen):
        screen.read_until(f"{LINES - 1}/{LINES}")
        process.send_signal(signal.SIGINT)
        screen.read_until("KeyboardInterrupt")
        gate.open()
        screen.read_all()
    assert screen.text[: screen.text.index("Traceback")].endswith(ERASE_LINE)


def test_without_a_wish_for_it_there_is_none(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with on_terminal("threadpool", "get", str(gate.path), FRAY_PROGRESS="0") as (_, screen):
        screen.read_until(rf"<task {LINES - 1}>")
        gate.open()
        screen.read_all()
    assert screen.text.split() == [word for line in (*SPOKEN, "<end>") for word in line.split()]


def test_where_no_terminal_is_nothing_is_written(tmp_path: Path) -> None:
    Gate(tmp_path / "gate").open()
    arguments = [*COMMAND, "threadpool", "get", str(tmp_path / "gate")]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert sorted(done.stdout.splitlines()) == sorted((*SPOKEN, "<end>"))


def test_without_rich_there_is_no_bar_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "fray.job.progress_bar", raising=False)
    monkeypatch.delattr("fray.job.progress_bar", raising=False)
    bar = LazyBar()
    for _ in range(2):
        bar.paint(Progress("get", 1, 2, 0, 0, 1.0, None))
    bar.clear()
    assert "fray.job.progress_bar" not in sys.modules


def test_a_worker_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAY_PROGRESS", "1")
    with start_pool(1) as ctx:
        assert ctx.get(ctx.run(shows_nothing))


def shows_nothing() -> bool:
    assert os.environ["FRAY_PROGRESS"] == "1"
    return isinstance(watching("get", get_job_context(), []), nullcontext)
