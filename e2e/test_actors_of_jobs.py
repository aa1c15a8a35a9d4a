"""Actors that jobs share, on a cluster: one job creates one, another calls it, and its end is told."""

from __future__ import annotations

from typing import Any

from e2e.cluster.command import await_condition
from e2e.job_namespace import JobNamespace, build_job

ACTOR_SECONDS = 240.0
WORKERS = {"minReplicas": 0, "maxReplicas": 1}
"""So that the pods of a job have the keys to call actors with."""
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
_ADD = "print('value', ctx.get(counter().add.remote(1)), flush=True)"
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


def test_jobs_share_an_actor_and_learn_of_its_end(jobs: JobNamespace) -> None:
    submit(jobs, "holder", _HOLD)
    jobs.await_job("holder", "condition=Running")
    await_condition(
        "the first job has called it",
        lambda: "value 41" in logs(jobs, "holder"),
        timeout=ACTOR_SECONDS,
        details=lambda: str(actors(jobs)),
    )
    submit(jobs, "other", _ADD)
    assert jobs.await_end("other")["phase"] == "Succeeded"
    assert "value 42" in logs(jobs, "other")

    (actor,) = actors(jobs)
    name = actor["metadata"]["name"]
    jobs.kubectl("delete", "pod", f"{name}-0", "--wait=false")
    assert jobs.await_end("holder")["phase"] == "Succeeded"
    _, lost, *rest = logs(jobs, "holder").splitlines()
    assert lost.startswith("lost Actor")
    assert rest == ["fresh 40", "pinned"]
    await_condition("it was deleted", lambda: actors(jobs) == [], timeout=ACTOR_SECONDS)
