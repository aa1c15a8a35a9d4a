"""Actors that jobs share, on a cluster: one job creates one, another calls it, and its end is told."""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.command import await_condition
from e2e.cluster.kubeconfig import CONTEXT
from e2e.job_namespace import JobNamespace, build_job
from fray.cluster import Entrypoint, JobRequest, ResourceConfig, create_environment
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes import KubernetesCluster
from fray.errors import ActorDiedError, ActorUnavailableError
from fray.job import get_default_job_ctx

ACTOR_SECONDS = 240.0
WORKERS = {"minReplicas": 0, "maxReplicas": 1}
"""So that the pods of a job have the keys to call actors with."""
RACERS = 20
SMALL = ResourceConfig(cpu=0.05, ram="256Mi", disk="100Mi")
_PRELUDE = """
from fray.errors import ActorDiedError, ActorExistsError, ActorUnavailableError
from fray.job import get_default_job_ctx
ctx = get_default_job_ctx()
class Counter:
    def __init__(self, start):
        self.value = start
    def add(self, amount):
        self.value += amount
        return self.value
def counter():
    return ctx.create_actor(
        Counter, 40, name="lab/counter", get_if_exists=True, lifetime="detached", num_cpus=0.05
    )
"""
_HOLD = """
import time
handle = counter()
print("value", ctx.get(handle.add.remote(1)), flush=True)
while True:
    try:
        ctx.get(handle.add.remote(0))
    except (ActorDiedError, ActorUnavailableError) as error:
        print("lost", type(error).__name__, flush=True)
        break
    time.sleep(0.1)
while True:
    try:
        print("fresh", ctx.get(ctx.get_actor("lab/counter").add.remote(0)), flush=True)
        break
    except (ActorDiedError, ActorUnavailableError):
        time.sleep(0.5)
try:
    ctx.get(handle.add.remote(1))
except ActorDiedError:
    print("pinned", flush=True)
ctx.kill(handle)
"""


WORDS = ("value ", "lost Actor", "fresh ", "pinned")
"""How the lines begin that this program prints."""


def submit(jobs: JobNamespace, name: str, program: str) -> None:
    """Submit a job that runs a program with the actor at hand."""
    jobs.submit(build_job(name, ["python3", "-c", _PRELUDE + program], workers=WORKERS))


def logs(jobs: JobNamespace, name: str) -> str:
    """What the only host of a job has printed."""
    (text,) = jobs.logs(name)
    return text


def actors(jobs: JobNamespace) -> list[dict[str, Any]]:
    """The FrayActors of the namespace."""
    found: list[dict[str, Any]] = jobs.kubectl.items("frayactors")
    return found


def connect(jobs: JobNamespace) -> KubernetesCluster:
    """The client of a program outside of the cluster."""
    spec = KubernetesSpec(namespace=jobs.name, context=CONTEXT)
    return KubernetesCluster(spec, environ={"KUBECONFIG": str(jobs.kubectl.kubeconfig)})


def test_jobs_share_an_actor_and_learn_of_its_end(jobs: JobNamespace, tmp_path: Path) -> None:
    submit(jobs, "holder", _HOLD)
    jobs.await_job("holder", "condition=Running")
    await_condition(
        "the first job has called it",
        lambda: "value 41" in logs(jobs, "holder"),
        timeout=ACTOR_SECONDS,
        details=lambda: str(actors(jobs)),
    )

    def add() -> int:  # in a job without workers
        ctx = get_default_job_ctx()
        return int(ctx.get(ctx.get_actor("lab/counter").add.remote(1)))

    with connect(jobs) as cluster:
        entrypoint = Entrypoint.from_callable(add)
        other = cluster.launch(JobRequest("other", entrypoint, SMALL, create_environment(tmp_path)))
        cluster.wait(other, raise_on_failure=True)
        assert cluster.outcome(other).result() == 42

    (actor,) = actors(jobs)
    name = actor["metadata"]["name"]
    jobs.kubectl("delete", "pod", f"{name}-0", "--wait=false")
    assert jobs.await_end("holder")["phase"] == "Succeeded"
    # Between them may stand what Fray's own processes say about the lost connection.
    said = [line for line in logs(jobs, "holder").splitlines() if line.startswith(WORDS)]
    assert [line.partition("Actor")[0] for line in said] == ["value 41", "lost ", "fresh 40", "pinned"]
    await_condition("it was deleted", lambda: actors(jobs) == [], timeout=ACTOR_SECONDS)


def test_of_twenty_pods_that_create_an_actor_at_once_one_does(jobs: JobNamespace, tmp_path: Path) -> None:
    class Single:  # pickled by value, as what a test defines within itself is
        def __init__(self) -> None:
            self.life = uuid.uuid4().hex

        def tell(self) -> str:
            return self.life

    def race() -> None:
        host, _, port = os.environ["FRAY_COORDINATOR_ADDRESS"].rpartition(":")
        if os.environ["FRAY_RANK"] == "0":
            with socket.create_server(("", int(port)), backlog=RACERS) as server:
                others = [server.accept()[0] for _ in range(RACERS - 1)]
            for other in others:
                other.close()
        else:
            # Until all are there. The name is not known before rank 0 is.
            connect_again(host, int(port)).recv(1)
        ctx = get_default_job_ctx()
        handle = ctx.create_actor(Single, name="lab/single", get_if_exists=True, num_cpus=0.05)
        print("life", ctx.get(handle.tell.remote()), flush=True)

    def connect_again(host: str, port: int) -> socket.socket:
        while True:
            with contextlib.suppress(OSError):
                return socket.create_connection((host, port))
            time.sleep(0.1)

    hosts = ResourceConfig(cpu=0.02, ram="128Mi", disk="100Mi", replicas=RACERS)
    with connect(jobs) as cluster:
        entrypoint = Entrypoint.from_callable(race)
        job = cluster.launch(JobRequest("race", entrypoint, hosts, create_environment(tmp_path)))
        cluster.wait(job, raise_on_failure=True)
    said = [line for text in jobs.logs("race") for line in text.splitlines() if line.startswith("life ")]
    assert len(said) == RACERS
    assert len(set(said)) == 1


def test_a_program_outside_of_the_cluster_creates_and_calls_an_actor(
    jobs: JobNamespace, tmp_path: Path
) -> None:
    class Tally:  # pickled by value, as what a test defines within itself is
        def __init__(self, start: int) -> None:
            self.value = start

        def add(self, amount: int) -> int:
            self.value += amount
            return self.value

        def turn(self, data: bytes) -> bytes:
            return data[::-1]

    with connect(jobs) as cluster:
        tally = cluster.create_actor(
            Tally, 40, name="lab/tally", resources=SMALL, environment=create_environment(tmp_path)
        )
        assert tally.add.remote(2).result(ACTOR_SECONDS) == 42
        data = bytes(range(256)) * 10_000
        assert tally.turn.remote(data).result(ACTOR_SECONDS) == data[::-1]

        actor = cluster.find_actor("lab/tally").metadata.name
        jobs.kubectl("delete", "pod", f"{actor}-0", "--wait=false")

        def call_on() -> None:
            while True:
                tally.add.remote(0).result(ACTOR_SECONDS)

        with pytest.raises((ActorDiedError, ActorUnavailableError)):
            call_on()
        found: list[int] = []

        def comes_back() -> bool:
            with contextlib.suppress(ActorDiedError, ActorUnavailableError):
                found.append(cluster.get_actor("lab/tally").add.remote(1).result(ACTOR_SECONDS))
            return bool(found)

        await_condition("another incarnation answers", comes_back, timeout=ACTOR_SECONDS)
        assert found == [41]
