"""Whether an actor's pod is ready: its server says so at each probe, and not what was once so."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fray.job import JobContext
from tests.actors import programs
from tests.actors.cluster import Cluster, Pod
from tests.pool.driver.processes import descendants
from tests.pool.hosts.pools import PATIENCE, wait_until

HEAD, MEMBER = b"pool.head.__main__", b"fray.job.actor_member"


@contextmanager
def stopped(pod: Pod, program: bytes) -> Iterator[None]:
    """Let the process of a pod that runs this program stand still."""
    (pid,) = [
        pid
        for pid in descendants(pod.process.pid)
        if program in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[2]
    ]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_an_actor_whose_server_stands_still_is_not_ready(cluster: Cluster, context: JobContext) -> None:
    counter = context.create_actor(programs.Counter, name="counter")
    pod = cluster.start_pod("counter")
    first = context.get(counter.pid.remote(), timeout=PATIENCE)
    pod.await_ready()
    with stopped(pod, HEAD):
        assert not pod.is_ready
    wait_until(lambda: pod.is_ready)
    assert context.get(counter.pid.remote(), timeout=PATIENCE) == first


def test_an_actor_is_ready_while_its_code_stands_still(cluster: Cluster, context: JobContext) -> None:
    counter = context.create_actor(programs.Counter, name="counter")
    pod = cluster.start_pod("counter")
    actor = context.get(counter.pid.remote(), timeout=PATIENCE)
    pod.await_ready()
    os.kill(actor, signal.SIGSTOP)
    assert pod.is_ready
    os.kill(actor, signal.SIGCONT)


def test_an_actor_whose_process_is_lost_is_not_ready_whoever_has_noticed(
    cluster: Cluster, context: JobContext
) -> None:
    counter = context.create_actor(programs.Counter, name="counter")
    pod = cluster.start_pod("counter")
    first = context.get(counter.pid.remote(), timeout=PATIENCE)
    pod.await_ready()
    with stopped(pod, MEMBER):  # which looks whether the actor lives
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: not pod.is_ready)
        assert cluster.record("counter")["startNumber"] == "1"
    wait_until(lambda: cluster.record("counter")["startNumber"] == "2")
    pod.await_ready()
