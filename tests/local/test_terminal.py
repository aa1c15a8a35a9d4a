"""On a terminal, a live line tells how the job stands, in colour; Ctrl-C reaches the job once, in order."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.local.harness import Fray, job_manifest, wait_for

OWN_TERMINAL = (
    "import fcntl, os, signal, sys, termios\n"
    "os.setsid()\n"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
    "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
    "os.execv(sys.executable, [sys.executable, '-m', 'fray.cli', *sys.argv[1:]])\n"
)


class Terminal:
    """A terminal with the command in it, and all that it has shown."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._shown = b""

    def text(self) -> str:
        while select.select([self._descriptor], [], [], 0)[0]:
            try:
                part = os.read(self._descriptor, 65536)
            except OSError:
                break  # the last process has closed it
            if not part:
                break
            self._shown += part
        return self._shown.decode(errors="replace")

    def wait_for(self, pattern: str) -> None:
        wait_for(
            lambda: re.search(pattern, self.text()), f"{pattern!r} on the terminal; shown: {self.text()!r}"
        )

    def type(self, keys: bytes) -> None:
        os.write(self._descriptor, keys)

    def end(self) -> int:
        wait_for(lambda: [self.text(), self.process.poll()][1] is not None, "the end of the command")
        return self.process.wait()


@contextmanager
def terminal(fray: Fray, *arguments: str, env: dict[str, str] | None = None) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    environ = fray.environ({"TERM": "xterm-256color", "COLUMNS": "120", "LANG": "C.UTF-8", **(env or {})})
    environ.pop("NO_COLOR", None)
    environ.update(env or {})
    process = subprocess.Popen(
        [sys.executable, "-c", OWN_TERMINAL, *arguments],
        env=environ,
        cwd=fray.folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    fray.started.append(process)
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
        os.close(ours)


def test_a_live_line_shows_attempt_hosts_and_a_mark_for_each(fray: Fray) -> None:
    gate = fray.folder / "gate"
    script = f"echo hello; until [ -e {gate} ]; do sleep 0.02; done"
    job = job_manifest(script, replicas=2, tpu="v5p-16")
    with terminal(fray, "run", "-f", fray.write_job(job)) as screen:
        screen.wait_for("4/4 hosts running")
        screen.wait_for("●●●●")
        gate.touch()
        assert screen.end() == 0
        text = screen.text()
    assert re.search(r"\x1b\[\d+m\[1/1\]\x1b\[0m hello", text), "prefixes are coloured"
    assert "job: Succeeded in" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h"), "the cursor is visible again"


def test_ctrl_c_on_the_terminal_ends_the_job_in_order(fray: Fray) -> None:
    traps = 'trap "echo got INT; exit 1" INT; trap "echo got TERM; exit 0" TERM'
    script = f"{traps}; echo ready; while :; do sleep 0.02; done"
    with terminal(fray, "run", "-f", fray.write_job(job_manifest(script))) as screen:
        screen.wait_for("ready")
        screen.type(b"\x03")
        screen.wait_for("Ctrl-C again kills them")
        assert screen.end() == 130
        text = screen.text()
    assert "got TERM" in text
    assert "got INT" not in text, "the terminal's signal must not reach the processes"
    assert not fray.processes()


def test_ctrl_c_twice_kills(fray: Fray) -> None:
    script = 'trap "" TERM INT; echo ready; while :; do sleep 0.02; done'
    with terminal(fray, "run", "-f", fray.write_job(job_manifest(script))) as screen:
        screen.wait_for("ready")
        screen.type(b"\x03")
        screen.wait_for("Ctrl-C again kills them")
        screen.type(b"\x03")
        assert screen.end() == 130
    assert not fray.processes()


def test_a_terminal_that_is_closed_ends_the_job(fray: Fray) -> None:
    with terminal(fray, "run", "-f", fray.write_job(job_manifest("echo ready; sleep 300"))) as screen:
        screen.wait_for("ready")
        os.close(screen._descriptor)
        screen._descriptor = os.open(os.devnull, os.O_RDWR)
        assert screen.process.wait(timeout=60) in (129, 141)
    fray.wait_gone()


def test_no_color_means_none_but_the_live_line_stays(fray: Fray) -> None:
    job = job_manifest("echo hello; sleep 0.6")
    with terminal(fray, "run", "-f", fray.write_job(job), env={"NO_COLOR": "1"}) as screen:
        assert screen.end() == 0
        text = screen.text()
    assert "[0/0] hello" in text
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", text)


def test_a_dumb_terminal_gets_plain_lines(fray: Fray) -> None:
    with terminal(
        fray, "run", "-f", fray.write_job(job_manifest("echo hello")), env={"TERM": "dumb"}
    ) as screen:
        assert screen.end() == 0
        text = screen.text()
    assert "[0/0] hello" in text
    assert "\x1b" not in text


def test_output_that_would_change_the_terminal_is_made_harmless(fray: Fray) -> None:
    script = r"printf '\033[2J\033]0;title\007\033[31mred\033[0m 10%%\r20%%\r100%%\n'; sleep 0.3"
    with terminal(fray, "run", "-f", fray.write_job(job_manifest(script))) as screen:
        assert screen.end() == 0
        text = screen.text()
    assert "\x1b[2J" not in text
    assert "title" not in text
    assert "] \x1b[0m100%" in text or "\x1b[0m 100%" in text


def test_list_and_status_are_coloured_on_a_terminal_only(fray: Fray) -> None:
    fray.run_job(job_manifest("exit 1"))
    with terminal(fray, "status", "job") as screen:
        assert screen.end() == 0
        assert re.search(r"\x1b\[1;31mjob   Failed", screen.text())
    assert "\x1b" not in fray.run("status", "job").out


def test_a_progress_bar_is_shown_while_it_runs_and_kept_as_it_ended(fray: Fray, tmp_path: Path) -> None:
    over = tmp_path / "over"
    script = f"n=0; until [ -e {over} ]; do n=$((n+1)); printf '\\r%d so far' $n; sleep 0.05; done; echo"
    with terminal(fray, "run", "-f", fray.write_job(job_manifest(script))) as screen:
        screen.wait_for("so far")
        over.touch()
        assert screen.end() == 0
    assert re.fullmatch(r"\[0/0\] \d+ so far\n", fray.run("logs", "job").out)
