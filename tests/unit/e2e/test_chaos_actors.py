"""What may never be seen of actors under chaos is seen, and a seed says which actors there are."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any, cast
from unittest.mock import Mock

import pytest

from e2e.chaos.actors import Calls, call_by_one_handle
from e2e.chaos.invariants import find_leaks
from e2e.chaos.judgement import judge_actors
from e2e.chaos.plan import MOST_MEMBERS, Act, ActorPlan, Deed, actors
from e2e.chaos.records import ActorSighting, Hit, Records, read_actor, read_pod
from fray.cluster.kubernetes import KubernetesCluster
from fray.errors import ActorDiedError

STOPPED = ActorPlan("a", 1, (Deed(Act.STOP, 1.0),))
DELETED = ActorPlan("a", 1, (Deed(Act.DELETE, 1.0),))
ENDED = {
    "Accepted": ("True", "Valid"),
    "Ready": ("False", "StopRequested"),
    "Finished": ("True", "StopRequested"),
}
RUNS = {
    "Accepted": ("True", "Valid"),
    "Ready": ("True", "AllMembersReady"),
    "Finished": ("False", "InProgress"),
}


def see(conditions: dict[str, tuple[str, str]], *, gone: bool = False) -> ActorSighting:
    told = [{"type": kind, "status": told, "reason": why} for kind, (told, why) in conditions.items()]
    return read_actor(1.0, {"metadata": {"name": "a"}, "status": {"conditions": told}}, gone=gone)


def build_pod(uid: str, index: str = "0", **metadata: Any) -> dict[str, Any]:
    labels = {"fray.dev/actor": "a", "apps.kubernetes.io/pod-index": index}
    return {"metadata": {"name": f"a-{index}", "uid": uid, "labels": labels, **metadata}, "status": {}}


def test_an_actor_that_ends_as_its_user_has_said_is_right() -> None:
    first, second = (read_pod(1.0, build_pod(uid), gone=False) for uid in "xy")
    assert first is not None
    assert second is not None
    records = Records(pods=[first, replace(first, gone=True), second], actors=[see(RUNS), see(ENDED)])
    assert judge_actors([STOPPED], records) == []
    assert judge_actors([DELETED], replace(records, actors=[see(RUNS), see(RUNS, gone=True)])) == []


def test_two_pods_of_a_member_at_once_are_told_once_with_the_story() -> None:
    first, second, other = (
        read_pod(1.0, build_pod(uid, index), gone=False) for uid, index in ("x0", "y0", "z1")
    )
    assert first is not None
    assert second is not None
    assert other is not None
    records = Records(pods=[first, other, replace(second, ending=True), second], actors=[see(ENDED)])
    records.hits.append(Hit(1.0, "a", 0, "x", None, "deleted"))
    (told,) = judge_actors([STOPPED], records)
    assert told.startswith("a: member 0 has 2 pods at once: a-0 (x) on None, a-0 (y) on None")
    assert "pod deleted (x)" in told


@pytest.mark.parametrize(
    ("plan", "sightings", "problem"),
    [
        (STOPPED, [], "its FrayActor was never seen"),
        (STOPPED, [see(RUNS, gone=True)], "its FrayActor is gone"),
        (DELETED, [see(RUNS)], "its FrayActor is still there"),
        (STOPPED, [see(RUNS)], "it was stopped, and its conditions are"),
        (STOPPED, [see(RUNS | {"MultiplePods": ("True", "MoreThanOnePod")}), see(ENDED)], "several pods"),
        (
            STOPPED,
            [see(ENDED | {"Ready": ("False", "Idle")}), see(ENDED)],
            "its conditions change after its end",
        ),
    ],
)
def test_what_is_wrong_with_an_actor_is_told(
    plan: ActorPlan, sightings: list[ActorSighting], problem: str
) -> None:
    (told,) = judge_actors([plan], Records(actors=sightings))
    assert problem in told


def test_what_is_left_of_an_actor_is_told() -> None:
    labels = {"fray.dev/actor": "a"}
    report = {"metadata": {"name": "a-0", "labels": labels}}
    own = {"metadata": {"name": "kube-root-ca.crt"}}
    assert list(find_leaks({"configmaps": [report, own]}, finished=[])) == ["configmaps a-0 is left of a"]
    members = {"statefulsets": [{"metadata": {"name": "a", "labels": labels}}]}
    assert list(find_leaks(members, finished=["a"])) == ["StatefulSet a is there, and its actor has ended"]


def test_a_seed_repeats_its_actors_and_ends_them_in_both_ways() -> None:
    found = list(islice(actors(1), 4))
    assert found == list(islice(actors(1), 4))
    assert found != list(islice(actors(2), 4))
    assert [sum(plan.leaves for plan in found[at : at + 2]) for at in (0, 2)] == [1, 1]
    assert all(1 <= plan.members <= MOST_MEMBERS for plan in found)


@pytest.mark.parametrize(
    ("first", "later", "met", "problem"),
    [
        (None, [1, 1, ActorDiedError("a", "it ended")], {"answers": 2, "ActorDiedError": 1}, None),
        (None, [1, None], {"answers": 1}, "a handle reached another incarnation, which said None"),
        (None, [1, TimeoutError()], {"answers": 1}, "s with TimeoutError()"),
        (None, [ValueError("no")], {}, "s with ValueError('no')"),
        (TimeoutError(), [], {"waited for a start": 1}, None),
    ],
)
def test_a_caller_tells_what_no_caller_may_meet(
    first: BaseException | None, later: list[Any], met: dict[str, int], problem: str | None
) -> None:
    cluster, calls = Mock(), Calls()
    handle = cluster.get_actor.return_value
    handle.update.remote.return_value.result.side_effect = [first]
    handle.get.remote.return_value.result.side_effect = later
    call_by_one_handle(cast("KubernetesCluster", cluster), "a-0", calls, is_over=lambda: False)
    assert calls.met == met
    assert len(calls.wrong) == (problem is not None)
    assert problem is None or problem in calls.wrong[0]
