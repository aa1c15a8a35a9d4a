"""Creating by name: of all that do it at once, one creates, and the others get its actor."""

from __future__ import annotations

import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fray import __version__
from fray.errors import ActorDiedError
from fray.job import JobContext
from fray.kube.resources import FRAYACTORS, SECRETS
from tests.actors import programs
from tests.actors.cluster import Cluster, await_no_connection
from tests.pool.hosts.pools import PATIENCE, wait_until
from tests.unit.runtime.started import bare_paths

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
_BARE = """
from fray.job import create_job_ctx
class Greeter:
    def greet(self):
        return "hello"
with create_job_ctx("threadpool", max_workers=1) as context:
    made = context.create_actor(Greeter, name="greeter")
    found = context.get_actor("greeter")
    print(found == made, flush=True)
    print(context.get(found.greet.remote()))
    context.kill(found)
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


def test_a_creator_of_another_class_gets_the_living_actor_with_its_own_methods(
    cluster: Cluster, context: JobContext
) -> None:
    counter = context.create_actor(programs.Counter, 5, name="shared")
    pod = cluster.start_pod("shared")
    before = cluster.actor("shared")
    found: Any = context.create_actor(programs.Seat, name="shared", get_if_exists=True)
    assert found == counter
    with pytest.raises(AttributeError, match="no method 'where'"):
        found.where  # noqa: B018
    assert context.get(found.add.remote(), timeout=PATIENCE) == 6
    assert pod.is_ready
    assert cluster.actor("shared") == before
    assert {call.method for call in cluster.api.calls if call.resource == FRAYACTORS} == {"POST", "GET"}


def test_an_actor_of_a_job_lives_on_in_its_next_attempt_until_that_creates_it_anew(
    cluster: Cluster, context: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAY_ATTEMPT", "1")
    made = context.create_actor(programs.Counter, name="counter")
    pod = cluster.start_pod("counter")
    assert context.get(made.add.remote(), timeout=PATIENCE) == 1
    assert cluster.actor("counter")["spec"]["lifetime"] == "job"

    monkeypatch.setenv("FRAY_ATTEMPT", "2")
    found = context.create_actor(programs.Counter, name="counter", get_if_exists=True)
    assert found == made
    assert context.get(found.add.remote(), timeout=PATIENCE) == 2
    running = found.block.remote()
    fresh = context.create_actor(programs.Counter, name="counter")
    pod.process.terminate()  # as the operator does: its actor is gone
    with pytest.raises(ActorDiedError, match="deleted"):
        context.get(running, timeout=PATIENCE)
    assert pod.process.wait(PATIENCE) == 0
    await_no_connection()
    cluster.start_pod("counter").await_ready()
    for old in (made, found):
        with pytest.raises(ActorDiedError, match="deleted"):
            old.add.remote()
    assert context.get(fresh.add.remote(), timeout=PATIENCE) == 1


def test_the_standard_library_and_cloudpickle_are_all_that_a_creator_needs(
    cluster: Cluster, tmp_path: Path
) -> None:
    packages = bare_paths(tmp_path / "packages")
    # As pip leaves it: the creator's Fray has to be of the version of the actor's.
    (tmp_path / "packages" / "fray.dist-info").mkdir()
    (tmp_path / "packages" / "fray.dist-info" / "METADATA").write_text(
        f"Name: fray\nVersion: {__version__}\n"
    )
    with cluster.start_program(
        _BARE, cluster.environ(), packages=packages, stdout=subprocess.PIPE
    ) as creator:
        assert creator.stdout is not None
        assert creator.stdout.readline() == b"True\n"
        cluster.start_pod("greeter")
        told, _ = creator.communicate(timeout=PATIENCE)
    assert (told, creator.returncode) == (b"hello\n", 0)
    assert cluster.api.all(FRAYACTORS) == []
