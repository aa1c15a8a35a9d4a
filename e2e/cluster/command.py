"""Run a program to completion, or wait for something to become true."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from e2e.cluster.errors import CommandError, NotReadyError

__all__ = ["await_condition", "run"]

_OUTPUT_LINES = 20
_POLL_SECONDS = 0.1
_LONGEST_PAUSE = 0.5


def run(
    command: Sequence[str],
    *,
    stdin: str | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = 300.0,
) -> str:
    """Standard output of `command`, run to its end; what isn't UTF-8 in it, as logs may be, is replaced.

    Raises CommandError when it fails, is missing or takes longer than `timeout` seconds.
    """
    try:
        done = subprocess.run(
            command,
            input=stdin,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=timeout,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(tuple(command), -1, str(error)) from error
    if done.returncode != 0:
        tail = (done.stdout + done.stderr).strip().splitlines()[-_OUTPUT_LINES:]
        raise CommandError(tuple(command), done.returncode, "\n".join(tail))
    return done.stdout


def await_condition(
    what: str, probe: Callable[[], bool], *, timeout: float, details: Callable[[], str] = lambda: ""
) -> None:
    """Return once `probe` is true; asked ten times a second at most, and once more at the end.

    One that takes long, as a kubectl does, pauses longer: it takes processors from what it asks about.

    `what` names the condition and `details` explains its absence in the NotReadyError that ends the wait.
    """
    deadline = time.monotonic() + timeout
    while True:
        began = time.monotonic()
        if probe():
            return
        now = time.monotonic()
        if now > deadline:
            if probe():
                return
            raise NotReadyError(what, details())
        time.sleep(min(max(_POLL_SECONDS, 3 * (now - began)), _LONGEST_PAUSE))
