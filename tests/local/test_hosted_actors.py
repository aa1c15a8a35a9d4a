"""Actors that a process of this machine hosts: found by the jobs of its root, and by other programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fray.client import Client, current_client
from fray.cluster import Entrypoint, JobRequest, LocalCluster
from fray.errors import ActorDiedError, ActorExistsError, ActorNotFoundError, ActorUnavailableError
from fray.job import get_default_job_ctx
from fray.kube.resources import FRAYACTORS
from tests.actors import programs
from tests.actors.cluster import await_no_connection
from tests.local.harness import run_root
from tests.pool.hosts.pools import PATIENCE

_HOST = """
import sys
from fray.cluster import LocalCluster
from tests.actors.programs import Counter
LocalCluster().host_actor(Counter, 5, name="counter")
print("served", flush=True)
sys.stdin.read()
"""


class Scores:
    """What a coordinator keeps."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def note(self, number: int) -> int:
        self.seen.append(number)
        return os.getpid()


def report(number: int) -> int:
    """A job that finds what its coordinator hosts."""
    return get_default_job_ctx().get_actor("lab/scores").note.remote(number).result()  # type: ignore[no-any-return]


def coordinate() -> tuple[list[int], bool]:
    """The root job: it hosts an actor, by which the jobs that it launches report."""
    scores = Scores()
    client = current_client()
    hosted = client.host_actor(scores, name="lab/scores")
    jobs = [client.submit(JobRequest(f"report-{n}", Entrypoint.from_callable(report, [n]))) for n in (1, 2)]
    for job in jobs:
        job.wait()
    pids = {client.cluster.outcome(job.job_id).result() for job in jobs}  # type: ignore[union-attr]
    hosted.shutdown()
    return sorted(scores.seen), pids == {os.getpid()}


def test_jobs_report_to_an_object_of_the_job_that_launched_them(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    assert run_root(cluster, coordinate, tmp_path) == ([1, 2], True)
    assert cluster.get_actors() == []


def test_a_program_calls_what_another_one_hosts_as_long_as_that_lives(cluster: LocalCluster) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", _HOST]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == b"served\n"
        handle = cluster.get_actor("counter")
        assert handle.add.remote().result(timeout=PATIENCE) == 6
        assert handle.pid.remote().result(timeout=PATIENCE) == host.pid
        (shown,) = cluster.get_actors()
        assert (shown.status.ready, shown.spec.lifetime) == ("1/1", "detached")
        with pytest.raises(ActorExistsError):
            cluster.create_actor(programs.Counter, name="counter")
        running = handle.block.remote()
        host.kill()
        with pytest.raises((ActorDiedError, ActorUnavailableError)):
            running.result(timeout=PATIENCE)
    await_no_connection()
    with pytest.raises(ActorDiedError, match=r"deleted, or its host .+ has ended"):
        handle.add.remote()
    with pytest.raises(ActorNotFoundError):
        cluster.get_actor("counter")
    hosted = Client(cluster).host_actor(programs.Counter, 1, name="counter")
    assert cluster.get_actor("counter").add.remote().result(timeout=PATIENCE) == 2
    hosted.shutdown()
    assert list((cluster._state.root / "actors" / FRAYACTORS.plural).glob("*")) == []
    assert list((cluster._state.root / "actors" / "hosts").glob("*")) == []
