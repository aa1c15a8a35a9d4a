"""Creating by name: of all that do it at once, one creates, and the others get its actor."""

from __future__ import annotations

import base64
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fray import __version__
from fray.errors import ActorDiedError, ActorExistsError
from fray.job import ActorHandle, HostedActor, JobContext, host_actor
from fray.kube.resources import FRAYACTORS, SECRETS
from tests.actors import programs
from tests.actors.cluster import Cluster, await_no_connection
from tests.pool.hosts.pools import PATIENCE, wait_until
from tests.unit.runtime.started import bare_paths

RACERS = 10
"""Of each process: threads that create at once."""
PODS, LAPTOPS, HOSTS = 2, 2, 3
_IN_JOB = """
from fray.job import create_job_ctx
context = create_job_ctx("threadpool", max_workers=1)
def create():
    return context.create_actor(Counter, name="counter", get_if_exists=True, lifetime="detached")
"""
_OUTSIDE = """
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes import KubernetesCluster
from fray.cluster.kubernetes.access import Access
from fray.job import ActorOptions
from fray.kube.client import KubernetesApi
from fray.kube.configuration import Configuration
from fray.types import create_environment
async def open_access():
    kube = KubernetesApi(Configuration(host=os.environ["TEST_API"]))
    return Access(kube, os.environ["TEST_API"], "ml", kube.close)
context = KubernetesCluster(KubernetesSpec(namespace="ml"), open_access=open_access)
image, shared = create_environment(docker_image="train:1"), ActorOptions(get_if_exists=True)
def create():
    return context.create_actor(Counter, name="counter", options=shared, environment=image)
"""
_RACE = f"""
from concurrent.futures import ThreadPoolExecutor
from tests.actors.programs import Counter
with context, ThreadPoolExecutor({RACERS}) as threads:
    print("here", flush=True)
    sys.stdin.readline()
    first, *others = threads.map(lambda _: create(), range({RACERS}))
    assert others == [first] * {RACERS - 1}
    print(*(first.add.remote().result() for _ in range({RACERS})))
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
    keys = {path.name: base64.b64encode(path.read_bytes()).decode() for path in cluster.key.iterdir()}
    cluster.api.store(SECRETS, {"kind": "Secret", "metadata": {"name": "fray-auth"}, "data": keys})
    begin = threading.Barrier(RACERS + 1)

    def create() -> ActorHandle[programs.Counter]:
        begin.wait(PATIENCE)
        return context.create_actor(programs.Counter, name="counter", get_if_exists=True, lifetime="detached")

    pipe = subprocess.PIPE
    programs_of_others = [(_IN_JOB, cluster.environ())] * PODS + [(_OUTSIDE, {})] * LAPTOPS
    others = [
        cluster.start_program(program + _RACE, variables, stdin=pipe, stdout=pipe)
        for program, variables in programs_of_others
    ]
    try:
        with ThreadPoolExecutor(RACERS) as pool:
            creating = [pool.submit(create) for _ in range(RACERS)]
            for each in others:
                assert each.stdout is not None
                assert each.stdout.readline() == b"here\n"
            begin.wait(PATIENCE)
            for each in others:
                assert each.stdin is not None
                each.stdin.write(b"go\n")
                each.stdin.flush()
            wait_until(lambda: len(cluster.api.all(SECRETS)) > 1)
            cluster.start_pod("counter")
            told = [each.communicate(timeout=PATIENCE)[0] for each in others]
            first, *rest = [each.result(PATIENCE) for each in creating]
            assert rest == [first] * (RACERS - 1)
            counts = context.get([first.add.remote() for _ in range(RACERS)], timeout=PATIENCE)
    finally:
        for each in others:
            each.kill()
            each.communicate()
    # Each number once: they were counted by one instance.
    counts += [int(count) for count in b" ".join(told).split()]
    assert sorted(counts) == list(range(1, 51))
    payload = cluster.actor("counter")["spec"]["entrypoint"]["callable"]["secretName"]
    assert {secret["metadata"]["name"] for secret in cluster.api.all(SECRETS)} == {"fray-auth", payload}
    assert cluster.api.forwarded, "laptops have called it, too"


def test_of_creators_and_hosts_that_race_one_has_the_name(cluster: Cluster, context: JobContext) -> None:
    begin = threading.Barrier(RACERS + HOSTS)

    def create() -> ActorHandle[programs.Counter]:
        begin.wait(PATIENCE)
        return context.create_actor(programs.Counter, name="counter", get_if_exists=True)

    def host() -> HostedActor[programs.Counter] | None:
        begin.wait(PATIENCE)
        try:
            return host_actor(programs.Counter, name="counter")
        except ActorExistsError:
            return None

    with ThreadPoolExecutor(RACERS + HOSTS) as pool:
        hosting = [pool.submit(host) for _ in range(HOSTS)]
        creating = [pool.submit(create) for _ in range(RACERS)]
        hosts = [each.result(PATIENCE) for each in hosting]
        first, *rest = [each.result(PATIENCE) for each in creating]
    assert rest == [first] * (RACERS - 1)
    winners = [each for each in hosts if each is not None]
    if not winners:
        cluster.start_pod("counter")
    assert context.get(first.add.remote(), timeout=PATIENCE) == 1
    assert all(winner.handle == first for winner in winners)
    assert len(cluster.api.all(FRAYACTORS)) == 1
    assert len(cluster.api.all(SECRETS)) + len(winners) == 1
    for winner in winners:
        winner.shutdown()


def test_a_creator_of_another_class_gets_the_living_actor_with_its_own_methods(
    cluster: Cluster, context: JobContext
) -> None:
    counter = context.create_actor(programs.Counter, 5, name="shared")
    pod = cluster.start_pod("shared")
    before = cluster.actor("shared")
    found: Any = context.create_actor(programs.Seat, name="shared", get_if_exists=True)
    assert found == counter
    with pytest.raises(AttributeError, match="no method 'where'"):
        found.where.remote()  # waits until it is ready, and knows its methods
    with pytest.raises(AttributeError, match="no method 'where'"):
        found.where  # noqa: B018
    assert context.get(found.add.remote(), timeout=PATIENCE) == 6
    assert pod.is_ready
    assert cluster.actor("shared") == before
    assert {call.method for call in cluster.api.calls if call.resource == FRAYACTORS} == {
        "POST",
        "GET",
        "LIST",
    }


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
