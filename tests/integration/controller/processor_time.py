"""What a FrayJob costs the operator: `python -m ... processor_time [JOBS [HOSTS]]`, 500 and 1 by default.

A real API server holds the jobs, their controllers are played by hand, and the operator is started as the
process that it is in a pod. Printed are its processor time for each job and how often a status is written.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.cluster.keep_alive import KeepAliveApi
from e2e.scale.counters import parse_requests
from tests.integration.controller.hands import Hands, condition
from tests.integration.controller.memory import OURS, run_operator, start_server
from tests.integration.controller.operator_subprocess import OperatorSubprocess

CLIENTS = 4
DEFAULTS = (500, 1)
LIMIT_SECONDS = 1800.0
SETTLE_SECONDS = 3.0
"""After the last end: what is left to be written is written."""


def main() -> None:
    """Print what the jobs cost."""
    count, hosts = [*map(int, sys.argv[1:]), *DEFAULTS[len(sys.argv) - 1 :]]
    with start_server() as plane, tempfile.TemporaryDirectory() as folder:
        api = KeepAliveApi(plane.api())
        hands = Hands(api, OURS)
        with run_operator(plane, Path(folder), "operator") as operator:
            play(hands, 20, hosts=1, name="before")
            time.sleep(SETTLE_SECONDS)
            seconds, written = read_seconds(operator.process.pid), count_status_writes(operator)
            play(hands, count, hosts=hosts, name="job")
            time.sleep(SETTLE_SECONDS)
            spent = (read_seconds(operator.process.pid) - seconds) / count * 1000
            writes = (count_status_writes(operator) - written) / count
    cost = f"{spent:.1f} ms of processor time, {writes:.1f} status writes"
    print(f"{count} jobs of {hosts} {'host' if hosts == 1 else 'hosts'}, each: {cost}")


def play(hands: Hands, count: int, *, hosts: int, name: str) -> None:
    """Submit jobs, several at once, and do for each what its controllers would, until all have succeeded."""

    def play_one(number: int) -> None:
        job = f"{name}-{number:04}"
        hands.submit(job, replicas=hosts)
        jobset = hands.await_jobset(f"{job}-a1")
        pods = hands.create_pods(jobset)
        for step in (hands.bind, hands.run, lambda pod: hands.exit(pod, 0)):
            for pod in pods:
                step(pod)
        hands.complete(jobset)

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(play_one, range(count)))
    deadline = time.monotonic() + LIMIT_SECONDS
    while not all(condition(job, "Succeeded") for job in hands.list(hands.jobs, cached=True)):
        assert time.monotonic() < deadline, "the jobs don't end"
        time.sleep(1.0)


def read_seconds(pid: int) -> float:
    """Return the processor time that a process has used; proc_pid_stat(5): utime and stime."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def count_status_writes(operator: OperatorSubprocess) -> int:
    """Return how often an operator has written the status of a FrayJob: it replaces nothing else of them."""
    requests = parse_requests(operator.fetch("/metrics")[1])
    return sum(count for what, count in requests.items() if what.startswith("PUT frayjobs"))


if __name__ == "__main__":
    main()
