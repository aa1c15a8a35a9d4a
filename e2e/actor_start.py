"""`python -m e2e.actor_start`: how soon actors give results and their ends are known, as JSON.

`named`: seconds from the call that creates a FrayActor, in a job's program, until its first result.
`bare`: from the creation of one bare pod of the same image until it has run a line of Python.
`known`: from the end of the actor's process until a program that waits for a call has its error.
`again`: from there until the next incarnation has answered the same program.
`unnamed`: from the first of 1,000 actors of a job with three workers until each has given a result.
All processes are on this machine and share its clock. Brings up the cluster and installs the chart when they
are not there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from e2e.installation import install_release, print_measured, say
from e2e.job_namespace import JobNamespace, open_job_namespace
from e2e.worker_start import WORKERS, find_image, measure_bare, run_program

__all__ = ["main", "measure_named", "measure_unnamed"]

GOALS = {"named_more_than_bare_seconds": 1.5, "known_seconds": 5.0, "unnamed_seconds": 5.0}
_PRELUDE = """
import json, os, signal, socket, threading, time
from fray.errors import ActorDiedError, ActorUnavailableError
from fray.job import ActorOptions, get_default_job_ctx

class Counter:
    def __init__(self):
        self.value = 0
    def add(self):
        self.value += 1
        return self.value
    def wait(self):
        time.sleep(600)
    def end_soon(self):
        at = time.time() + 0.5
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return at

ctx = get_default_job_ctx()
"""
NAMED = f"""{_PRELUDE}
options = ActorOptions(max_concurrency=2)
created = time.time()
counter = ctx.create_actor(Counter, name="counter", num_cpus=0.1, options=options)
assert ctx.get(counter.add.remote()) == 1
first = time.time()
waiting = counter.wait.remote()
ended = ctx.get(counter.end_soon.remote())
try:
    ctx.get(waiting)
except (ActorDiedError, ActorUnavailableError):
    known = time.time()
while True:
    try:
        assert ctx.get(ctx.get_actor("counter").add.remote()) == 1
        break
    except (ActorDiedError, ActorUnavailableError):
        pass
print(json.dumps({{"named": first - created, "known": known - ended, "again": time.time() - known}}))
"""
UNNAMED = f"""{_PRELUDE}
def place():
    time.sleep(0.05)
    return socket.gethostname()

while len(set(ctx.get([ctx.run(place) for _ in range(2 * {WORKERS})]))) < {WORKERS}:
    pass
created = time.time()
actors = [ctx.create_actor(Counter) for _ in range(1000)]
assert ctx.get([actor.add.remote() for actor in actors]) == [1] * 1000
print(json.dumps(time.time() - created))
"""


def measure_named(space: JobNamespace, name: str) -> Mapping[str, float]:
    """Return the seconds of one named actor: `named`, `known` and `again`."""
    # Workers, so that its pod has the keys.
    found: Mapping[str, float] = run_program(space, name, NAMED, maxReplicas=1)
    return found


def measure_unnamed(space: JobNamespace, name: str) -> float:
    """Return the seconds of 1,000 actors in a job's workers."""
    found: float = run_program(space, name, UNNAMED, replicas=WORKERS)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code. Faults of the cluster are printed, without a traceback."""
    parser = argparse.ArgumentParser(prog="python -m e2e.actor_start", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    options = parser.parse_args(arguments)
    return print_measured(lambda folder: json.dumps(_run(options.rounds, folder), indent=2))


def _run(rounds: int, folder: Path) -> Mapping[str, Any]:
    release = install_release(folder, say)
    named, bare, unnamed = list[Mapping[str, float]](), list[float](), list[float]()
    with open_job_namespace(release.kubectl, release) as space:
        measure_named(space, "first")  # nodes have the images now, and the namespace its keys
        image = find_image(space, "first")
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            named.append(measure_named(space, f"named-{number}"))
            bare.append(measure_bare(space, f"bare-{number}", image, count=1))
            unnamed.append(measure_unnamed(space, f"unnamed-{number}"))
    more = [each["named"] - pod for each, pod in zip(named, bare, strict=True)]
    return {
        "goals": GOALS,
        "processors": os.cpu_count(),
        "rounds": rounds,
        "named_seconds": round(statistics.median(each["named"] for each in named), 2),
        "bare_seconds": round(statistics.median(bare), 2),
        "named_more_than_bare_seconds": round(statistics.median(more), 2),
        "known_seconds": [round(each["known"], 2) for each in named],
        "again_seconds": [round(each["again"], 2) for each in named],
        "unnamed_seconds": [round(each, 2) for each in unnamed],
    }


if __name__ == "__main__":
    sys.exit(main())
