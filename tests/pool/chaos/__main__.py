"""The long form of the chaos: seed after seed until the time is over, or until one fails.

python -m tests.pool.chaos --seconds 1200 --seed 1
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path

from tests.pool.chaos.campaign import Campaign, run_campaign
from tests.pool.chaos.leaks import belongings


def main() -> int:
    """Run seeds one after the other; return 1 when one fails, with the command that repeats it."""
    parser = argparse.ArgumentParser(prog="python -m tests.pool.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first campaign; the next has the next")
    parser.add_argument("--seconds", type=float, default=1200.0, help="for all campaigns together")
    parser.add_argument("--tasks", type=int, default=50_000, help="units of one campaign")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--fault-every", type=int, default=120, help="units between two faults, on average")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    before = belongings()
    for seed in itertools.count(arguments.seed):
        left = end - time.monotonic()
        if left <= 0:
            return 0
        campaign = Campaign(seed, arguments.tasks, left, arguments.workers, arguments.fault_every)
        print(f"seed {seed}: {campaign.command}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            outcome = run_campaign(campaign, Path(folder))
        wrong = [*outcome.wrong, *(f"left behind: {each}" for each in belongings().left_since(before))]
        print(f"seed {seed}: {outcome}", flush=True)
        if wrong:
            print("\n".join([f"seed {seed} FAILED", *wrong[:20], f"repeat it with: {campaign.command}"]))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
