"""The operator in virtual time: jobs get pools through stock-outs, quota and deaths, and leave none."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from fray.errors import GkeCredentialsError
from fray.nodepools.decisions import Limits
from fray.nodepools.gke import Gke
from fray.vocabulary import Reason
from tests.gke.refusals import BY_NAME
from tests.gke.server import FakeGke
from tests.unit.nodepools.world import SimulatedJob, World

HOUR = 3600.0


@pytest.fixture
def world() -> Iterator[World]:
    with FakeGke() as fake:
        yield World(fake)


def test_a_job_of_two_slices_runs_through_a_stock_out_a_quota_and_a_death_and_leaves_no_pool(
    world: World,
) -> None:
    fake = world.fake
    world.jobs = [SimulatedJob("train", slices=2, seconds=900)]
    fake.refuse("stock-out")
    world.deaths = [1]  # right after GKE has accepted the first pool, which will be the one that fails
    world.step()
    assert (world.died, len(fake.creates)) == (1, 1)
    while not any("StockOut: " in wait.message for wait in world.decision.waits.values()):
        world.step()
    assert "Google Cloud has no such machines free" in world.decision.waits["ml/train"].message
    assert "It is tried again at 2027-01-15T" in world.decision.waits["ml/train"].message
    fake.refuse("regional quota")
    while not any("QuotaExceeded: " in wait.message for wait in world.decision.waits.values()):
        world.step()
    while not world.job("train").pools:
        world.step()
    assert len(world.job("train").pools) == 2
    good = [pool for pool in fake.pools.values() if pool.status.name == "RUNNING"]
    assert len(good) == 2
    world.run_out(seconds=2 * HOUR)
    assert world.job("train").is_done
    assert fake.pools == {}
    assert fake.calls.count("CreateNodePool") <= 5


@pytest.mark.parametrize("death", [1, 2, 3, 4])
def test_a_death_after_any_call_doubles_nothing(world: World, death: int) -> None:
    world.jobs = [SimulatedJob("train", slices=2, seconds=60)]
    world.deaths = [death]
    world.run_out(seconds=HOUR)
    assert world.died == 1
    assert len(world.fake.creates) == 2
    assert sorted(world.fake.deletes) == sorted(world.fake.creates)
    assert world.fake.pools == {}


def test_a_stock_out_of_one_zone_sends_the_gang_to_another() -> None:
    stockouts = {("us-east5-a", "ct5p-hightpu-4t")}
    with FakeGke(zones=("us-east5-a", "us-east5-b"), stockouts=stockouts) as fake:
        world = World(fake)
        world.jobs = [SimulatedJob("train", slices=2, seconds=60)]
        world.run_out(seconds=HOUR)
        assert world.job("train").is_done
        assert len(fake.creates) == 4
        assert fake.pools == {}


def test_jobs_that_follow_each_other_use_the_same_pools(world: World) -> None:
    world.jobs = [SimulatedJob("first", slices=2, seconds=60)]
    world.run(seconds=300)
    world.jobs.append(SimulatedJob("second", slices=1, seconds=60))
    world.run(seconds=120)
    assert len(world.fake.creates) == 2
    assert world.job("second").until is not None or world.job("second").is_done


def test_limits_keep_a_gang_waiting_as_a_whole_and_say_why() -> None:
    for limits, told in (
        (Limits(1, {"tpu-v5p-slice": 64}, 60.0), "Raise nodePools.maxPools"),
        (Limits(8, {"tpu-v5p-slice": 15}, 60.0), "Raise nodePools.maxChips"),
        (Limits(8, {}, 60.0), "Raise nodePools.maxChips"),
    ):
        with FakeGke() as fake:
            world = World(fake, limits)
            world.jobs = [SimulatedJob("wide", slices=2, seconds=60)]
            world.run(seconds=600)
            assert fake.creates == []
            wait = world.decision.waits["ml/wide"]
            assert wait.reason is Reason.NODE_POOL_LIMIT
            assert told in wait.message


def test_a_gang_too_wide_for_the_limits_is_no_hindrance_for_the_next(world: World) -> None:
    world.limits = world.provider.limits = Limits(2, {"tpu-v5p-slice": 64}, 60.0)
    world.jobs = [SimulatedJob("wide", slices=3, seconds=60), SimulatedJob("small", slices=1, seconds=60)]
    world.run(seconds=300)
    assert world.job("small").is_done
    assert world.decision.waits["ml/wide"].reason is Reason.NODE_POOL_LIMIT


def test_pools_of_others_are_used_and_never_deleted(world: World) -> None:
    world.jobs = [SimulatedJob("train", slices=1, seconds=60)]
    world.run(seconds=30)
    (name,) = world.fake.creates
    world.fake.pools[name].config.labels["fray.dev/pool-made-by"] = "cli"
    world.run(seconds=HOUR)
    assert world.job("train").is_done
    assert world.fake.deletes == []


@pytest.mark.parametrize(
    ("refusal", "most"), [("regional quota", 10), ("permission", 6), ("server busy", 20)]
)
def test_refusals_that_stay_are_no_hot_loop(world: World, refusal: str, most: int) -> None:
    world.jobs = [SimulatedJob("train", slices=1, seconds=60)]
    for _ in range(1000):
        world.fake.refuse(refusal)
    world.run(seconds=2 * HOUR)
    assert 2 <= world.fake.calls.count("CreateNodePool") <= most
    assert world.decision.waits["ml/train"].message


def test_deletions_that_gke_refuses_are_no_hot_loop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    denied = BY_NAME["permission"]
    monkeypatch.setattr(world.fake, "_DeleteNodePool", lambda _: (denied.code, denied.text))
    world.jobs = [SimulatedJob("train", slices=1, seconds=60)]
    world.fake.refuse("stock-out")
    world.run(seconds=HOUR)
    assert len(world.fake.creates) == 2
    assert 3 <= world.fake.calls.count("DeleteNodePool") <= 8
    monkeypatch.undo()
    world.run_out(seconds=HOUR)
    assert world.fake.pools == {}


def test_an_operation_of_the_cluster_is_waited_for(world: World) -> None:
    world.jobs = [SimulatedJob("train", slices=1, seconds=60)]
    operation = world.fake.begin_upgrade(seconds=1200)
    world.step()
    assert operation in world.decision.waits["ml/train"].message
    assert world.decision.waits["ml/train"].reason is Reason.CREATING_NODE_POOLS
    world.run(seconds=1000)
    assert world.fake.calls.count("CreateNodePool") == 0
    world.run(seconds=600)
    assert world.job("train").is_done


def test_autopilot_needs_no_pools(world: World) -> None:
    world.fake.autopilot = True
    world.jobs = [SimulatedJob("train", slices=1, seconds=60)]
    world.step()
    assert (world.decision.waits, world.fake.calls.count("CreateNodePool")) == ({}, 0)


def test_a_silent_gke_is_asked_seldom_and_the_jobs_say_so(world: World) -> None:
    asked = []

    def refuse() -> Gke:
        asked.append(world.fake.clock())
        raise GkeCredentialsError("expired")

    world.jobs = [SimulatedJob("train", slices=1, seconds=60)]
    world.provider.connect = refuse
    world.run(seconds=2 * HOUR)
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert pauses == [60.0, 120.0, 240.0, 480.0, 960.0, 1800.0, 1800.0]
    assert world.decision.waits["ml/train"].reason is Reason.NODE_POOLS_REFUSED
    assert world.decision.waits["ml/train"].message.startswith("NoCredentials: no credentials")


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_every_job_ends_and_no_pool_is_left(world: World, seed: int) -> None:
    chance = random.Random(seed)
    fake = world.fake
    names = [
        "stock-out",
        "stock-out with other zones",
        "regional quota",
        "server busy",
        "internal error",
        "quota while nodes are made",
    ]
    for number in range(chance.randint(1, 4)):
        world.jobs.append(SimulatedJob(f"job{number}", chance.randint(1, 3), chance.uniform(10, 1500)))
        for _ in range(chance.randint(0, 2)):
            fake.refuse(chance.choice(names))
        if chance.random() < 0.5:
            world.deaths.append(chance.randint(1, 4))
        if chance.random() < 0.3:
            fake.begin_upgrade(seconds=chance.uniform(1, 900))
        world.run(seconds=chance.uniform(0, 600))
        good = [pool for pool in fake.pools.values() if pool.status.name in ("RUNNING", "PROVISIONING")]
        assert len(good) <= min(8, sum(job.slices for job in world.jobs))
    world.run_out(seconds=6 * HOUR)
    assert all(job.is_done for job in world.jobs)
    assert fake.pools == {}
    assert fake.calls.count("CreateNodePool") <= 40
