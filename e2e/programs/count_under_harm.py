"""Counts on the workers of its job for its time, while they are taken away, for the chaos.

Run in job pods as `python3 -c SOURCE SECONDS FAILING EXIT_CODE`. Works for at least so many seconds, until a
round is over, and exits with EXIT_CODE in the first FAILING attempts of the job, with 0 in later ones. With
`WRONG` it exits where a result is missing, wrong, or there twice. TERM ends it with 143.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter

from fray.job import get_default_job_ctx

TASKS = 24
TASK_SECONDS = 0.1
SIZE = 100_000
"""Bytes of a result: so many lie on the worker that made them, and are lost with it."""
WRONG = 99


def make_block(number: int) -> bytes:
    """Return a value that tells what made it."""
    time.sleep(TASK_SECONDS)
    return bytes([number]) * SIZE


def add_up(*blocks: bytes) -> int:
    """Return what the values add up to."""
    return sum(map(sum, blocks))


def main(seconds: float, failing: int, exit_code: int) -> int:
    """Count; returns the exit code."""
    end = time.monotonic() + seconds
    context = get_default_job_ctx()
    wanted = Counter(bytes([number]) * SIZE for number in range(TASKS))
    total = sum(range(TASKS)) * SIZE
    while True:
        refs = [context.run(make_block, number) for number in range(TASKS)]
        found = Counter(context.get(ref) for ref in context.as_completed(refs))
        added = context.get(context.run(add_up, *refs))
        if found != wanted or added != total:
            told = {block[:1]: count for block, count in found.items()}
            print(f"wrong: {told}, and in all {added} instead of {total}", flush=True)
            return WRONG
        if time.monotonic() >= end:
            return exit_code if int(os.environ["FRAY_ATTEMPT"]) <= failing else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
