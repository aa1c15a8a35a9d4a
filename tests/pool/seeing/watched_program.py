"""A program for terminals: its tasks print lines, and wait until somebody has seen the bar."""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path

from fray.job import create_job_ctx

LINES = 40


def speak(number: int) -> int:
    # In one piece: `print` writes a text and its end apart, and other threads print too.
    sys.stdout.write(f"<task {number}>\n")
    sys.stdout.flush()
    return number


def hold(shut: str) -> None:
    """Wait until the test unlocks the file, as `Gate.pass_through`."""
    with Path(shut).open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)


def main(kind: str, call: str, gate: str) -> None:
    with create_job_ctx(kind, max_workers=2) as ctx:
        if call == "map":
            for _ in ctx.map(
                lambda number: speak(number) if number < LINES else hold(gate), range(1, LINES + 1)
            ):
                pass
        else:
            refs = [ctx.run(hold, gate), *(ctx.run(speak, number) for number in range(1, LINES))]
            if call == "get":
                ctx.get(refs)
            else:
                ctx.wait(refs, num_returns=LINES)
        print("<end>", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
