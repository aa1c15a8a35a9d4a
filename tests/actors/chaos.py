"""Ends an actor's process or its whole pod under callers, again and again, and measures when they know.

`python -m tests.actors.chaos --kills 1000`. Both get SIGKILL and SIGTERM by turns. A handle is for one
incarnation, so all answers that one handle gets come from one process. Each call ends: with an answer,
`ActorDiedError` or `ActorUnavailableError`. Callers know of a kill within 10 s, 99 in 100 within 5 s. A pod
that gets SIGTERM lets its actor end: that one leaves a mark, as no other does; the pod exits with 0, and
nothing of it is left.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter as Tally
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from fray.errors import ActorDiedError, ActorUnavailableError
from fray.job import JobContext, create_job_ctx
from tests.actors import programs
from tests.actors.cluster import Cluster, Pod, running_cluster
from tests.pool.driver.processes import await_end, descendants
from tests.pool.hosts.pools import PATIENCE, wait_until
from tests.pool.transport.certificates import write_key

__all__ = ["Outcome", "run_chaos"]

NAME = "counter"
CALLERS = 3
LONGEST_LIFE = 0.2
"""Seconds at most between the constructor's return and the kill."""
PAUSE = 0.05
"""Seconds before a caller looks the actor up again."""
KNOWN_SECONDS = 10.0
"""After which every caller of a member that has ended knows of it; a call that takes longer hangs."""
KNOWN_P99_SECONDS = 5.0
"""After which 99 in 100 callers know."""


@dataclass
class Outcome:
    """What callers met: answers and errors by their type, what must not be, and when they knew."""

    met: Tally[str] = field(default_factory=Tally)
    wrong: list[str] = field(default_factory=list)
    known: list[float] = field(default_factory=list)
    """Seconds from a kill to the error of a caller that had called this incarnation; not of pods that were
    asked to end, which take their time."""

    def known_by(self, share: int) -> float:
        """Return after how many seconds so many in 100 callers knew."""
        known = sorted(self.known) or [0.0]
        return known[min(len(known) - 1, len(known) * share // 100)]

    def judge_known(self) -> None:
        """Note as wrong what callers knew too late."""
        for share, most in ((99, KNOWN_P99_SECONDS), (100, KNOWN_SECONDS)):
            if (seconds := self.known_by(share)) > most:
                self.wrong.append(f"{share} in 100 callers knew only after {seconds:.2f} s, not {most:g} s")

    def __str__(self) -> str:
        p50, p99, most = map(self.known_by, (50, 99, 100))
        story = ", ".join(f"{count} {name}" for name, count in sorted(self.met.items()))
        return f"{story}; known after {p50:.2f} s (p50), {p99:.2f} s (p99), {most:.2f} s (most)"


class _Campaign:
    def __init__(self, cluster: Cluster, context: JobContext, outcome: Outcome) -> None:
        self._cluster, self._context, self._outcome = cluster, context, outcome
        self._over = threading.Event()
        self._killed: dict[int, float] = {}
        """When each process of the actor was killed."""
        self._marks = cluster.folder / "marks"
        self._marks.mkdir()
        self._answered: set[int] = set()
        """Processes of the actor that a caller had an answer from."""

    def kill(self, kills: int, chance: random.Random) -> None:
        """End the actor so often, its process and its pod by turns, under callers."""
        self._context.create_actor(programs.Mortal, self._marks, name=NAME)
        pod = self._cluster.start_pod(NAME)
        with ThreadPoolExecutor(CALLERS) as pool:
            callers = [pool.submit(self._call) for _ in range(CALLERS)]
            try:
                for number in range(kills):
                    pod.await_ready()
                    pid = self._context.get(self._context.get_actor(NAME).pid.remote(), timeout=PATIENCE)
                    # The number may have been another process's, some thousands earlier.
                    self._killed.pop(pid, None)
                    self._answered.discard(pid)
                    if number % 8 < 4:  # the others are ended while callers still join
                        wait_until(functools.partial(self._answered.__contains__, pid))
                    time.sleep(chance.random() * LONGEST_LIFE)
                    ends_by = signal.SIGTERM if number % 4 > 1 else signal.SIGKILL
                    if number % 2:
                        self._end_pod(pod, pid, ends_by)
                        # A new one each time: in one pod the pause before a start grows.
                        pod = self._cluster.start_pod(NAME)
                    else:
                        self._killed[pid] = time.monotonic()
                        os.kill(pid, ends_by)
                        wait_until(lambda: self._cluster.record(NAME)["startNumber"] == "2")
                        self._check_mark(pid, asked=False)
            finally:
                self._over.set()
            for caller in callers:
                caller.result(PATIENCE)

    def _end_pod(self, pod: Pod, pid: int, number: signal.Signals) -> None:
        """End a pod with the actor's process; what must not be left of it is noted."""
        below = descendants(pod.process.pid)
        if number == signal.SIGKILL:
            self._killed[pid] = time.monotonic()
            pod.kill()
        else:
            if (code := pod.terminate()) != 0:
                self._outcome.wrong.append(f"a pod that was asked to end has exited with {code}")
            await_end(below)
        self._check_mark(pid, asked=number == signal.SIGTERM)
        self._outcome.met[f"pods ended by {number.name}"] += 1

    def _check_mark(self, pid: int, *, asked: bool) -> None:
        mark = self._marks / str(pid)
        if mark.exists() != asked:
            what = "has left no mark of its end" if asked else "has left a mark, and nobody asked it to end"
            self._outcome.wrong.append(f"the actor's process {pid} {what}")
        mark.unlink(missing_ok=True)  # the number may be another one's later

    def _call(self) -> None:
        """Call one incarnation after the other, each by a handle of its own, until all is over."""
        outcome = self._outcome
        while not self._over.is_set():
            pids: set[int] = set()
            try:
                handle = self._context.get_actor(NAME)
                while not self._over.is_set():
                    # The first call of a handle waits for the next start, later ones wait for nothing.
                    limit = KNOWN_SECONDS if pids else PATIENCE
                    pid = self._context.get(handle.pid.remote(), timeout=limit)
                    pids.add(pid)
                    self._answered.add(pid)
                    outcome.met["answers"] += 1
            except (ActorDiedError, ActorUnavailableError) as error:
                outcome.met[type(error).__name__] += 1
                now = time.monotonic()
                outcome.known += [now - self._killed[pid] for pid in pids if pid in self._killed]
            except BaseException as error:  # noqa: BLE001 - a hang, an error of another type, anything
                outcome.wrong.append(f"a call ended with {error!r}")
            self._over.wait(PAUSE)
            if len(pids) > 1:
                outcome.wrong.append(f"one handle reached the processes {pids}")


def run_chaos(cluster: Cluster, context: JobContext, *, kills: int, seed: int) -> Outcome:
    """Kill an actor so often under callers; return what those met."""
    outcome = Outcome()
    _Campaign(cluster, context, outcome).kill(kills, random.Random(seed))
    outcome.judge_known()
    return outcome


def main() -> int:
    """Run one campaign; return 1 if a call went wrong or was known of too late."""
    parser = argparse.ArgumentParser(prog="python -m tests.actors.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        create_job_ctx("threadpool", max_workers=4) as context,
        running_cluster(write_key(Path(folder)), Path(folder)) as cluster,
    ):
        outcome = run_chaos(cluster, context, kills=arguments.kills, seed=arguments.seed)
    print(f"{arguments.kills} kills, seed {arguments.seed}: {outcome}")
    print("\n".join(outcome.wrong[:20] or ["nothing went wrong"]))
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
