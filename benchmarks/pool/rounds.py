"""Runs the peers, in turns: engine after engine for each group of measurements, each in a fresh process.

What else happens on the machine then falls on all engines alike. No figure is judged here.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["EARLIER", "PeerFailedError", "Record", "Run", "plan_runs", "run_peer"]

ROOT = Path(__file__).resolve().parents[2]
GROUPS = (
    (2, ("start", "tasks", "round_trips", "actor_calls", "tiny_items", "objects", "readers", "work")),
    (1, ("work",)),
    (2, ("generators", "shuffle", "headed_shuffle")),
    (2, ("many_refs",)),
    (2, ("broadcast",)),
    (2, ("ended_tasks",)),
    (2, ("queue",)),
    (2, ("actors",)),
)
"""Workers, and what is measured in one process: what fills memory or leaves workers busy has its own."""
EARLIER = "earlier"
"""The engine `fray` of another checkout."""
LOG_LINES = 15
END_SECONDS = 15.0


@dataclass(frozen=True)
class Run:
    """One process to come."""

    engine: str
    workers: int
    measurements: tuple[str, ...]
    quick: bool = False
    checkout: Path = ROOT
    """Whose code is measured: one with a virtual environment in `.venv`, as `make setup` leaves it."""


@dataclass(frozen=True)
class Record:
    """The figures of one measurement, and how busy the machine was as its process started (load average)."""

    round: int
    engine: str
    workers: int
    measurement: str
    load: float
    figures: Mapping[str, float | None]


@dataclass
class PeerFailedError(Exception):
    """A peer ended early or took too long; `log` is the end of what it printed."""

    run: Run
    reason: str
    log: str

    def __str__(self) -> str:
        """All of it."""
        names = ", ".join(self.run.measurements)
        return f"{self.run.engine} ({names}; {self.run.workers} workers): {self.reason}\n{self.log}"


def plan_runs(
    engines: Sequence[str], number: int, *, quick: bool, earlier: Path | None = None
) -> Iterator[Run]:
    """The runs of round `number`; each round begins with another engine. `earlier`: the checkout of it."""
    if earlier is not None:
        engines = (*engines, EARLIER)
    first = number % len(engines)
    order = [*engines[first:], *engines[:first]]
    for workers, measurements in GROUPS:
        for engine in order:
            checkout = earlier if engine == EARLIER and earlier is not None else ROOT
            yield Run(engine, workers, measurements, quick=quick, checkout=checkout)


def run_peer(run: Run, number: int, timeout: float) -> tuple[list[Record], dict[str, str]]:
    """Run one peer and return its records and versions.

    Raises:
        PeerFailedError: it failed, or took longer than `timeout` seconds.
    """
    load = os.getloadavg()[0]
    # Short, since sockets are made in it, whose paths are limited to 107 bytes.
    home = Path(tempfile.mkdtemp(prefix="fb", dir="/tmp"))
    try:
        with (home / "log").open("w+") as log:
            lines = _collect(run, home, log, timeout)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    records = [
        Record(number, run.engine, run.workers, line["measurement"], load, line["figures"])
        for line in lines
        if "figures" in line
    ]
    return records, lines[-1]["versions"]


def _collect(run: Run, home: Path, log: Any, timeout: float) -> list[dict[str, Any]]:
    command = [
        *(str(run.checkout / ".venv/bin/python") if run.engine == EARLIER else sys.executable, "-m"),
        *("benchmarks.pool.peer", "fray" if run.engine == EARLIER else run.engine),
        *(*run.measurements, "--workers", str(run.workers), *(["--quick"] if run.quick else [])),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(run.checkout),
        "HOME": str(home),
        "TMPDIR": str(home),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    expired = threading.Event()
    with subprocess.Popen(
        command,
        cwd=run.checkout,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        start_new_session=True,
    ) as process:

        def expire() -> None:
            expired.set()
            _end_group(process)

        timer = threading.Timer(timeout, expire)
        timer.start()
        try:
            lines = _read_lines(process)
        finally:
            timer.cancel()
            timer.join()
            _end_group(process)
    if not lines or "versions" not in lines[-1]:
        reason = f"took longer than {timeout:g} s" if expired.is_set() else "ended early"
        log.seek(0)
        raise PeerFailedError(run, reason, "".join(log.readlines()[-LOG_LINES:]))
    return lines


def _end_group(process: subprocess.Popen[str]) -> None:
    """End a peer and all that it started.

    SIGTERM first: Ray then takes its processes along, and Python's resource tracker, which ignores that
    signal, gets to remove the named semaphores of those that died.
    """
    # The group's id stays taken until its last process is gone, even when the first has been reaped.
    group, until = process.pid, time.monotonic() + END_SECONDS
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)
        while time.monotonic() < until:
            process.poll()
            os.killpg(group, 0)
            time.sleep(0.05)
        os.killpg(group, signal.SIGKILL)


def _read_lines(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    assert process.stdout is not None
    for text in process.stdout:
        lines.append(json.loads(text))
        if "versions" in lines[-1]:
            break
    return lines
