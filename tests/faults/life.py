"""One seed: some jobs in a cluster of their own, done harm to in virtual time, and judged at the end."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from e2e.chaos.oracle import find_mismatch
from fray.kube.resources import EVENTS, FRAYJOBS, JOBS, JOBSETS, LEASES, PODS
from fray.testing.memory import MemoryServer
from fray_operator.settings import OperatorSettings
from tests.faults.chaos import Chaos, Intensity
from tests.faults.controllers import Controllers, now
from tests.faults.invariants import EVENTS_OF_AN_ATTEMPT, Invariants
from tests.faults.prediction import predict
from tests.faults.replicas import Replica
from tests.faults.scenario import Plan, draw_plans
from tests.faults.world import World
from tests.unit.controller.virtual_time import run

__all__ = ["Outcome", "command", "live"]

JOBS_OF_A_LIFE = 5
FAULTY_SECONDS = 4 * 3600.0
"""How long faults go on at most: where they are so many that nobody leads for long, jobs may not end."""
CALM_SECONDS = 3600.0
"""How long jobs may go on once there are none any more: a few attempts, each with its time limit."""
QUIET_SECONDS = 900.0
"""How long nothing happens at the end: what is to be cleaned up is, and nothing is written any more."""
CLEANUP_SECONDS = 400.0


@dataclass(frozen=True)
class Outcome:
    """What was done in a life, and what is wrong."""

    seed: int
    faults: Counter[str]
    kills: Counter[str]
    endings: Counter[str]
    jobs: int
    seconds: float
    wrong: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    obsolete: list[float] = field(default_factory=list)
    """How many seconds each JobSet went on that was made after its attempt's end."""
    fingerprint: str = ""
    """Of all requests in their order: a life that is lived again has the same."""

    @property
    def faults_met(self) -> int:
        """The number of faults, but for those of the Lease: a standby asks for it all the time."""
        return sum(count for what, count in self.faults.items() if " leases" not in what)

    def report(self) -> str:
        """Return all of it for somebody who has to find out why."""
        return "\n".join([*self.story, *(f"WRONG {each}" for each in self.wrong), command(self.seed)])


def command(seed: int) -> str:
    """Return the command that lives a life again."""
    return f"repeat it with: .venv/bin/python -m tests.faults --seed {seed} --count 1 --story"


def live(seed: int) -> Outcome:
    """Live the life of a seed."""
    with _seeded(seed), _quiet():
        return run(_live(seed))


async def _live(seed: int) -> Outcome:
    rng = random.Random(seed)
    loop = asyncio.get_running_loop()
    controllers_rng, world_rng, chaos_rng, replica_rng = (random.Random(rng.random()) for _ in range(4))
    plans = draw_plans(rng, JOBS_OF_A_LIFE)
    server = MemoryServer(clock=now)
    invariants = Invariants(server, clock=loop.time)
    controllers = Controllers(server, controllers_rng)
    world = World(server, controllers, plans, world_rng)
    chaos = Chaos(chaos_rng, Intensity.choose(rng))
    settings = OperatorSettings(
        lease_namespace="default",
        lease_seconds=rng.choice([6.0, 15.0, 30.0]),
        backoff_seconds=rng.choice([5.0, 10.0]),
        backoff_cap_seconds=20.0,
        workers=rng.choice([1, 4, 8]),
    )
    replicas = [
        Replica(server, chaos, invariants, rng=replica_rng, settings=settings, clock=now) for _ in range(2)
    ]
    tasks = [asyncio.create_task(replica.run()) for replica in replicas]
    stopping = asyncio.create_task(_stop_now_and_then(replicas, replica_rng))
    wrong: list[str] = []
    await _until_over(world, tasks, until=FAULTY_SECONDS)
    chaos.enabled = False
    stopping.cancel()
    await _until_over(world, tasks, until=loop.time() + CALM_SECONDS)
    seconds = loop.time()
    if not world.over:
        wrong.append("not all jobs have ended")
    await asyncio.sleep(CLEANUP_SECONDS)
    written = len(server.calls)
    await asyncio.sleep(QUIET_SECONDS - CLEANUP_SECONDS)
    needless = [f"written for nothing: {call}" for call in server.calls[written:] if _is_needless(call)]
    for task in (*tasks, stopping):
        if task.done() and not task.cancelled() and task.exception() is not None:
            wrong.append(f"a process ended by {task.exception()!r}")
        task.cancel()
    await asyncio.gather(*tasks, stopping, return_exceptions=True)
    await world.end()
    wrong += [*invariants.broken, *needless, *_judge(server, plans, world)]
    endings = sum((replica.endings for replica in replicas), Counter[str]())
    told = hashlib.sha256(repr(server.calls).encode()).hexdigest()[:12]
    return Outcome(
        seed,
        chaos.faults,
        chaos.kills,
        endings,
        len(plans),
        seconds,
        wrong,
        world.story,
        invariants.obsolete,
        told,
    )


async def _until_over(world: World, tasks: Sequence[asyncio.Task[None]], *, until: float) -> None:
    loop = asyncio.get_running_loop()
    while not world.over and loop.time() < until:
        if any(task.done() for task in tasks):
            return
        await asyncio.sleep(1.0)


async def _stop_now_and_then(replicas: Sequence[Replica], rng: random.Random) -> None:
    """Have replicas told to stop, as an upgrade does."""
    while True:
        await asyncio.sleep(rng.expovariate(1 / 200.0))
        rng.choice(replicas).stop()


def _is_needless(call: object) -> bool:
    method, resource = getattr(call, "method", ""), getattr(call, "resource", None)
    return method in ("POST", "PUT", "DELETE") and resource != LEASES


def _judge(server: MemoryServer, plans: Sequence[Plan], world: World) -> Iterator[str]:
    """Yield what isn't as predicted, and what is left that nobody should have left."""
    jobs = {job["metadata"]["name"]: job for job in server.all(FRAYJOBS)}
    for plan in plans:
        job = jobs.get(plan.name)
        interrupted, outlasted = (
            {attempt for name, attempt in attempts if name == plan.name}
            for attempts in (world.interrupted, world.outlasted)
        )
        ends = predict(plan, interrupted=interrupted, outlasted=outlasted)
        status = None if job is None else job.get("status", {})
        wrong = find_mismatch(ends, status)
        if wrong is not None:
            yield f"{plan.name}: {wrong}: {status}"
    uids = {job["metadata"]["uid"] for job in jobs.values()}
    for jobset in server.all(JOBSETS):
        owners = {owner["uid"] for owner in jobset["metadata"].get("ownerReferences", [])}
        if not owners & uids or not jobset.get("status", {}).get("conditions"):
            yield f"JobSet {jobset['metadata']['name']} is left"
    jobsets = {jobset["metadata"]["uid"] for jobset in server.all(JOBSETS)}
    for body in (*server.all(JOBS), *server.all(PODS)):
        left = body["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-uid"] not in jobsets
        if left or body.get("status", {}).get("phase") in ("Pending", "Running"):
            yield f"{body['metadata']['name']} is left"
    for name, job in jobs.items():
        sent = sum(event["involvedObject"]["uid"] == job["metadata"]["uid"] for event in server.all(EVENTS))
        if sent > EVENTS_OF_AN_ATTEMPT * len(job["status"].get("attempts", [])) + 2:
            yield f"{sent} events tell of {name}"


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Have the operator's own chance, which spreads its retries, be the seed's."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the operator logs about harm that was done to it away from the test's output."""
    logger = logging.getLogger("fray_operator")
    before, logger.disabled = logger.level, False
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
