"""What one pass of the operator decides, from observations alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fray.nodepools.answers import derive_error
from fray.nodepools.decisions import Decision, Failure, Limits, Observation, PendingGang, decide
from fray.nodepools.existing import Cluster, Operation, Pool
from fray.nodepools.requests import PoolChoices, name_pool
from fray.nodepools.usage import PoolUse
from fray.plan.placement import derive_demand
from fray.vocabulary import Reason
from tests.gke.refusals import BY_NAME
from tests.unit.nodepools.golden import build_job, build_request

ME = "operator.fray-system"
NOW = 1_800_000_000.0
ZONE = ("us-east5-a",)
SLICE = {"resources": {"tpu": {"type": "v5p-16"}}}
REQUEST = build_request(SLICE, PoolChoices(zones=ZONE))
LIMITS = Limits(8, {"tpu-v5p-slice": 64, "nvidia-l4": 8}, 600.0)


def build_gang(job: str = "ml/train", *, slices: int = 1, spec: dict[str, Any] = SLICE) -> PendingGang:
    return PendingGang(job, derive_demand(build_job({**spec, "replicas": slices})), PoolChoices(zones=ZONE))


def build_pool(number: int = 0, **more: Any) -> Pool:
    given = {
        "machine_type": "ct5p-hightpu-4t",
        "status": "RUNNING",
        "nodes": 2,
        "most_nodes": 2,
        "topology": "2x2x2",
    }
    ours = {"accelerator": "tpu-v5p-slice", "chips": 4, "zones": ZONE, "made_by": ME}
    return Pool(name_pool(REQUEST, number).name, **{**given, **ours, **more})


def observe(*gangs: PendingGang, pools: list[Pool] | None = None, **more: Any) -> Observation:
    pools = pools or []
    uses = {pool.name: PoolUse() for pool in pools}
    seen = Observation(NOW, Cluster(ZONE), pools, (), uses, gangs)
    return replace(seen, **more)


def look(seen: Observation, limits: Limits = LIMITS) -> Decision:
    return decide(seen, limits, made_by=ME)


def names(decision: Decision) -> list[str]:
    return [creation.pool.name for creation in decision.create]


def test_gangs_of_one_pass_get_pools_of_their_own() -> None:
    decision = look(observe(build_gang("ml/a", slices=2), build_gang("ml/b"), pools=[build_pool(1)]))
    assert names(decision) == [name_pool(REQUEST, number).name for number in (0, 2)]
    assert [creation.job for creation in decision.create] == ["ml/a", "ml/b"]
    assert {wait.reason for wait in decision.waits.values()} == {"CreatingNodePools"}


def test_a_pool_that_is_begun_and_not_listed_yet_is_counted() -> None:
    begun = Operation("operation-1", "CREATE_NODE_POOL", name_pool(REQUEST, 0).name, is_done=False)
    assert names(look(observe(build_gang(), operations=[begun]))) == []
    assert names(look(observe(build_gang(slices=2), operations=[begun]))) == [name_pool(REQUEST, 1).name]
    other = replace(begun, pool="fray-v6e-16-00000-0")
    assert len(names(look(observe(build_gang(), operations=[other])))) == 1


def test_two_gangs_of_single_hosts_share_what_a_pool_has_room_for() -> None:
    spec = {"resources": {"gpu": {"type": "nvidia-l4", "count": 1}}}
    request = build_request({**spec, "replicas": 3}, PoolChoices(zones=ZONE))
    pool = Pool(
        request.name, request.machine_type, "RUNNING", 0, 3, accelerator="nvidia-l4", chips=1, zones=ZONE
    )
    first, second = (build_gang(job, slices=2, spec=spec) for job in ("ml/a", "ml/b"))
    decision = look(observe(first, second, pools=[pool]))
    assert [(creation.job, creation.pool.most_nodes) for creation in decision.create] == [("ml/b", 1)]


@pytest.mark.parametrize(("failures", "wait"), [(1, 60.0), (2, 120.0), (4, 480.0), (9, 1800.0)])
def test_each_failure_of_a_shape_doubles_the_wait(failures: int, wait: float) -> None:
    text = BY_NAME["stock-out"].text
    failed = [
        Operation(
            f"o{number}", "CREATE_NODE_POOL", name_pool(REQUEST, number).name, True, text, NOW - 10 * number
        )
        for number in range(failures)
    ]
    early = look(replace(observe(build_gang(), operations=failed), now=NOW + wait - 1))
    assert (names(early), early.waits["ml/train"].reason, early.again) == ([], Reason.NODE_POOLS_REFUSED, 1.0)
    assert len(names(look(replace(observe(build_gang(), operations=failed), now=NOW + wait)))) == 1


def test_a_failure_of_another_shape_or_of_long_ago_counts_for_nothing() -> None:
    error = derive_error("node pool x", BY_NAME["permission"].text)
    recent = observe(build_gang(), failures=[Failure(REQUEST.shape, NOW, error)])
    assert names(look(recent)) == []
    assert len(names(look(observe(build_gang(), failures=[Failure("fray-v6e-16-00000", NOW, error)])))) == 1
    assert len(names(look(observe(build_gang(), failures=[Failure(REQUEST.shape, NOW - 7201, error)])))) == 1


def test_ours_go_when_idle_for_long_enough_or_broken_and_others_never() -> None:
    idle, fresh, broken = build_pool(0), build_pool(1), build_pool(2, status="ERROR")
    foreign, going = build_pool(3, made_by="cli"), build_pool(4, status="STOPPING")
    used, kept = build_pool(5), build_pool(6)
    pools = [idle, fresh, broken, foreign, going, used, kept]
    uses = {pool.name: PoolUse() for pool in pools}
    uses[used.name].jobs.add("ml/train")
    uses[kept.name].kept_for = "ml/train"
    since = {pool.name: NOW - 600 for pool in pools} | {fresh.name: NOW - 599}
    decision = look(observe(pools=pools, uses=uses, idle_since=since))
    assert decision.delete == (idle.name, broken.name)
    assert look(observe(pools=[fresh], idle_since=since)).again == 1.0


def test_a_pool_on_which_an_operation_runs_is_left_alone() -> None:
    broken = build_pool(0, status="ERROR")
    running = Operation("o", "DELETE_NODE_POOL", broken.name, is_done=False)
    assert look(observe(pools=[broken], operations=[running])).delete == ()


def test_a_broken_pool_on_which_something_runs_stays() -> None:
    broken = build_pool(0, status="ERROR")
    assert look(observe(pools=[broken], uses={broken.name: PoolUse(jobs={"ml/train"})})).delete == ()


def test_a_gangs_own_pools_count_while_a_part_of_it_runs() -> None:
    pools = [build_pool(0), build_pool(1)]
    uses = {pool.name: PoolUse(jobs={"ml/train"}, used_nodes=1) for pool in pools}
    assert names(look(observe(build_gang(slices=2), pools=pools, uses=uses))) == []
    assert len(names(look(observe(build_gang("ml/other", slices=2), pools=pools, uses=uses)))) == 2


def test_chips_of_pools_that_are_there_count_against_the_limit() -> None:
    pools = [build_pool(number) for number in range(7)]
    uses = {pool.name: PoolUse(jobs={"ml/x"}, used_nodes=2) for pool in pools}
    limits = replace(LIMITS, max_chips={"tpu-v5p-slice": 63})
    decision = look(observe(build_gang(), pools=pools, uses=uses), limits)
    assert decision.waits["ml/train"].message.startswith(
        "8 more chips of tpu-v5p-slice are needed, and 56 of at most 63"
    )


def test_another_operation_on_the_pools_is_waited_for_like_their_creation() -> None:
    busy = next(each for each in BY_NAME.values() if each.reason == "OperationInProgress")
    failed = [Failure(REQUEST.shape, NOW, derive_error("node pool x", busy.text))]
    assert look(observe(build_gang(), failures=failed)).waits["ml/train"].reason is Reason.CREATING_NODE_POOLS


def test_what_cannot_be_derived_is_told_with_the_next_step() -> None:
    elsewhere = replace(build_gang(), demand=replace(build_gang().demand, regions=("us-west4",)))
    wait = look(observe(elsewhere)).waits["ml/train"]
    assert wait.reason is Reason.NODE_POOLS_REFUSED
    assert wait.message.startswith("PoolNotDerived: ")
    assert "the job may run in us-west4 only" in wait.message


def test_nothing_is_derived_where_gke_makes_the_nodes() -> None:
    t4 = build_gang(spec={"resources": {"gpu": {"type": "nvidia-tesla-t4", "count": 2}}})
    assert look(observe(t4)).waits["ml/train"].message.startswith("PoolNotDerived: --machine-type")
    decision = look(observe(t4, cluster=Cluster(ZONE, autopilot=True)))
    assert (decision.create, decision.waits) == ((), {})


def test_after_a_failure_the_gang_gets_all_its_pools_in_another_zone() -> None:
    gang = replace(build_gang(slices=2), choices=PoolChoices(zones=("us-east5-a", "us-east5-b")))
    first = look(observe(gang))
    assert [creation.pool.zones for creation in first.create] == [ZONE, ZONE]
    error = derive_error("node pool x", BY_NAME["stock-out"].text)
    failed = [Failure(REQUEST.shape, NOW, error)]
    second = look(observe(gang, failures=failed))
    assert [creation.pool.zones for creation in second.create] == [("us-east5-b",)] * 2
    other = [Failure(second.create[0].pool.shape, NOW, error)]
    third = look(observe(gang, failures=[*failed, *other])).waits["ml/train"]
    assert (third.reason, third.message.split(":")[0]) == (Reason.NODE_POOLS_REFUSED, "StockOut")


def test_free_pools_of_all_zones_that_will_do_are_used_first() -> None:
    gang = replace(build_gang(slices=2), choices=PoolChoices(zones=("us-east5-a", "us-east5-b")))
    pools = [build_pool(0), build_pool(1, zones=("us-east5-b",))]
    assert look(observe(gang, pools=pools)).create == ()
    assert len(look(observe(gang, pools=[build_pool(0, zones=("us-east5-c",)), pools[1]])).create) == 1
