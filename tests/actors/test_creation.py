"""Creating by name: of all that do it at once, one creates, and the others get its actor."""

from __future__ import annotations

import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

from fray.job import JobContext
from fray.kube.resources import FRAYACTORS, SECRETS
from tests.actors import programs
from tests.actors.cluster import Cluster
from tests.pool.hosts.pools import PATIENCE, wait_until

PROCESSES = 4
THREADS = 16
_CREATOR = """
from fray.job import create_job_ctx
from tests.actors.programs import Counter
with create_job_ctx("threadpool", max_workers=1) as context:
    print("here", flush=True)
    sys.stdin.readline()
    counter = context.create_actor(Counter, name="counter", get_if_exists=True)
    print(context.get(counter.add.remote()))
"""


def test_of_racing_creators_one_creates_and_all_call_its_one_instance(
    cluster: Cluster, context: JobContext
) -> None:
    begin = threading.Barrier(THREADS + 1)

    def create_and_add() -> int:
        begin.wait(PATIENCE)
        counter = context.create_actor(programs.Counter, name="counter", get_if_exists=True)
        return context.get(counter.add.remote(), timeout=PATIENCE)

    pipe = subprocess.PIPE
    others = [
        cluster.start_program(_CREATOR, cluster.environ(), stdin=pipe, stdout=pipe) for _ in range(PROCESSES)
    ]
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            counts = [pool.submit(create_and_add) for _ in range(THREADS)]
            for each in others:
                assert each.stdout is not None
                assert each.stdout.readline() == b"here\n"
            begin.wait(PATIENCE)
            for each in others:
                assert each.stdin is not None
                each.stdin.write(b"go\n")
                each.stdin.flush()
            wait_until(lambda: cluster.api.all(SECRETS))
            cluster.start_pod("counter")
            told = [each.communicate(timeout=PATIENCE)[0] for each in others]
            seen = [count.result(PATIENCE) for count in counts] + [int(count) for count in told]
    finally:
        for each in others:
            each.kill()
            each.communicate()
    # Each number once: they were counted by one instance.
    assert sorted(seen) == list(range(1, THREADS + PROCESSES + 1))
    assert (len(cluster.api.all(FRAYACTORS)), len(cluster.api.all(SECRETS))) == (1, 1)
