"""Lives of one seed after the other, until one is wrong: `python -m tests.faults --seed 1 --count 100`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.faults.life import live
from tests.faults.tally import describe_obsolete


def main() -> int:
    """Live lives; return 1 when one is wrong, with its story and the command that repeats it."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first life; the next has the next")
    parser.add_argument("--count", type=int, default=100, help="how many")
    parser.add_argument("--story", action="store_true", help="print what was done")
    parser.add_argument("--keep-going", action="store_true", help="don't end at the first that is wrong")
    arguments = parser.parse_args()
    faults, kills, endings = Counter[str](), Counter[str](), Counter[str]()
    obsolete: list[float] = []
    wrong, begun = 0, time.process_time()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        outcome = live(seed)
        obsolete += outcome.obsolete
        faults, kills, endings = faults + outcome.faults, kills + outcome.kills, endings + outcome.endings
        if outcome.wrong or arguments.story:
            print(
                f"seed {seed}, {outcome.seconds:.0f} s, {outcome.fingerprint}\n{outcome.report()}", flush=True
            )
        wrong += bool(outcome.wrong)
        if outcome.wrong and not arguments.keep_going:
            break
    for title, counts in (("faults", faults), ("kills", kills), ("endings of processes", endings)):
        print(f"{counts.total()} {title}: {dict(counts.most_common())}")
    print(describe_obsolete(obsolete))
    print(f"{wrong} wrong ends, {time.process_time() - begun:.1f} s of processor time")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
