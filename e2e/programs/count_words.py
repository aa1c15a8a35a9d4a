"""Counts words on the workers of its job, round after round, until it is told to end; every rank may run it.

Run in job pods as `python3 -c SOURCE [SECONDS]`: each task takes so much longer than it needs. Prints a line
of JSON: how many rounds there were, whether each had the right answer, and the hosts that ran tasks. Before,
the file `/tmp/rounds` has a line for each round that is done: the hosts that ran its tasks.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import sysconfig
import time
from pathlib import Path

from fray.job import get_default_job_ctx

SHARDS = 12
GO = Path("/tmp/go")
ROUNDS = Path("/tmp/rounds")


def is_told() -> bool:
    """Return whether the process has ended whose pid is in `/tmp/go`; our end would end it too."""
    pid = GO.read_text().strip() if GO.exists() else ""
    return bool(pid) and not Path("/proc", pid).exists()


def count(paths: list[Path], seconds: float) -> tuple[int, str]:
    """Return how many words the files have, and the host that counted them."""
    time.sleep(seconds)
    return sum(
        len(re.findall(r"\w+", path.read_text(errors="replace"))) for path in paths
    ), socket.gethostname()


def main(seconds: float) -> None:
    """Count until told to end, at least once."""
    paths = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    right = count(paths, 0)[0]
    context, rounds, wrong, hosts = get_default_job_ctx(), 0, 0, set()
    while not rounds or not is_told():
        found = context.get([context.run(count, paths[shard::SHARDS], seconds) for shard in range(SHARDS)])
        rounds += 1
        ran = {host for _, host in found}
        hosts |= ran
        with ROUNDS.open("a") as done:
            done.write(f"{' '.join(sorted(ran))}\n")
        wrong += sum(words for words, _ in found) != right
    print(json.dumps({"rounds": rounds, "wrong": wrong, "hosts": sorted(hosts)}), flush=True)


if __name__ == "__main__":
    main(*map(float, sys.argv[1:] or ["0"]))
