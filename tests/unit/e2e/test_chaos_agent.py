"""The agent: the strikes of a seed in their order, what they ask of the cluster, and all of it given back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, cast

import pytest

from e2e.chaos import agent as agents
from e2e.chaos.agent import Agent, Target
from e2e.chaos.plan import Blow, Strike, strikes
from e2e.chaos.records import PodSighting, Records
from e2e.chaos.storm import Storm
from e2e.cluster.api import Api, Response
from e2e.cluster.layout import build_layout
from e2e.faulty_proxy import Call, FaultyProxy
from fray.vocabulary import Role

LAYOUT = build_layout(gpu_hosts=2)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now


@dataclass
class FakeApi:
    """An API server that agrees to everything and has two replicas of the operator."""

    asked: list[str] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=lambda: {"running": {}})
    restarts: int = 0

    def request(self, method: str, path: str, _: Any = None) -> Response:
        self.asked.append(f"{method} {path.rpartition('/namespaces/')[2]}")
        return Response(200, {})

    def post(self, path: str, body: Any) -> Response:
        return self.request("POST", path, body)

    def delete(self, path: str) -> Response:
        return self.request("DELETE", path)

    def get(self, path: str, **_: str) -> Response:
        del path
        status = {"containerStatuses": [{"state": self.state, "restartCount": self.restarts}]}
        pods = [
            {"metadata": {"name": f"op-{i}", "uid": f"{i}"}, "spec": {"nodeName": "cp"}, "status": status}
            for i in range(2)
        ]
        return Response(200, {"items": pods})


@dataclass
class FakeRecorder:
    records: Records = field(default_factory=Records)
    living: list[PodSighting] = field(default_factory=list)

    def living_pods(self) -> list[PodSighting]:
        return self.living


class FakeProxy:
    def cut_all_watches(self) -> int:
        return 3

    def expire_all_watches(self) -> int:
        return 0


@dataclass
class World:
    """What the agent works on; `done` is what was done to kubelets."""

    clock: Clock
    done: list[str]
    api: FakeApi = field(default_factory=FakeApi)
    recorder: FakeRecorder = field(default_factory=FakeRecorder)
    storm: Storm = field(default_factory=lambda: Storm(1))

    def agent(self, planned: Iterator[Strike]) -> Agent:
        return Agent(
            Target(cast("Api", self.api), LAYOUT, "ns"),
            cast("Any", self.recorder),
            cast("FaultyProxy", FakeProxy()),
            self.storm,
            planned,
        )

    def strike(self, agent: Agent, *, times: int = 1) -> None:
        for _ in range(times):
            self.clock.now += 1.0
            agent.tick(strike=True)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    clock, done = Clock(), list[str]()
    monkeypatch.setattr(agents, "time", clock)

    def note(what: str) -> Callable[..., bool]:
        return lambda host, *_: bool(done.append(f"{what} {host.name}")) or True

    for name in ("freeze_kubelet", "thaw_kubelet", "kill_kubelet", "start_kubelet", "kill_in_pod"):
        monkeypatch.setattr(agents.kubelets, name, note(name))
    monkeypatch.setattr(agents.node_status, "is_ready", lambda *_: True)
    return World(clock, done)


def each(*blows: Blow, victim: float = 0.0, seconds: float = 5.0) -> Iterator[Strike]:
    yield from (Strike(1.0, blow, victim, seconds) for blow in blows)
    yield Strike(1e9, Blow.EVICT_POD, 0.0, 0.0)


def test_strikes_are_done_in_the_order_of_the_seed_whatever_there_is_to_hit(world: World) -> None:
    planned = list(islice(strikes(5, every=1.0), 50))
    agent = world.agent(strikes(5, every=1.0))
    for _ in range(400):
        world.clock.now += 1.0
        agent.tick(strike=True)
        if len(agent.log) >= 50:
            break
    assert [blowed.strike for blowed in agent.log][:50] == planned
    # There was no pod to evict: left out, and told.
    assert all(blowed.target is None for blowed in agent.log if blowed.strike.blow is Blow.EVICT_POD)
    agent_without = world.agent(strikes(5, every=1.0))
    world.clock.now += 100.0
    agent_without.tick(strike=False)
    assert agent_without.log == []


def test_pods_are_hit_by_their_uid_and_it_is_recorded(world: World) -> None:
    world.recorder.living = [PodSighting(0.0, f"u{i}", f"p{i}", "job", 2, "cp") for i in range(4)]
    agent = world.agent(each(Blow.EVICT_POD, Blow.DELETE_POD, victim=0.6))
    world.strike(agent, times=2)
    assert world.api.asked == ["POST ns/pods/p2/eviction", "DELETE ns/pods/p2"]
    hits = [(hit.job, hit.attempt, hit.uid, hit.node, hit.how) for hit in world.recorder.records.hits]
    assert hits == [("job", 2, "u2", "cp", "evicted"), ("job", 2, "u2", "cp", "deleted")]


def test_workers_alone_are_killed_where_they_run(world: World) -> None:
    host = PodSighting(0.0, "u", "p", "job", 1, "cp")
    waiting = replace(host, uid="v", name="q", role=Role.WORKER, node=None)
    world.recorder.living = [host, waiting]
    agent = world.agent(each(Blow.KILL_WORKER, Blow.KILL_WORKER))
    world.strike(agent)
    world.recorder.living.append(replace(waiting, uid="w", name="r", node="tpu-a-0"))
    world.strike(agent)
    assert [blowed.target for blowed in agent.log] == [None, "r"]
    assert world.done == ["kill_in_pod tpu-a-0"]
    assert [(hit.uid, hit.how) for hit in world.recorder.records.hits] == [("w", "killed")]


def test_operators_are_killed_where_they_run_or_deleted_without_grace(world: World) -> None:
    agent = world.agent(each(Blow.KILL_OPERATOR, Blow.DELETE_OPERATOR, victim=0.9))
    world.strike(agent, times=2)
    assert world.done == ["kill_in_pod cp"]
    assert world.api.asked == ["DELETE fray-system/pods/op-1"]
    assert agent.counts == {"kill_operator": 1, "delete_operator": 1}


def test_replicas_that_would_wait_for_long_are_replaced(world: World) -> None:
    agent = world.agent(each())
    world.api.state = {"waiting": {"reason": "CrashLoopBackOff"}}
    world.strike(agent)
    assert agent.nursed == 0  # its first restart is at once
    world.api.restarts = 1
    world.strike(agent, times=3)
    assert agent.nursed == 2
    assert world.api.asked == ["DELETE fray-system/pods/op-0", "DELETE fray-system/pods/op-1"]


@pytest.mark.parametrize(
    ("blow", "done", "asked", "how"),
    [
        (Blow.FREEZE_KUBELET, "freeze_kubelet cp", [], "kubelet frozen"),
        (Blow.KILL_KUBELET, "kill_kubelet cp", [], "kubelet killed"),
        (Blow.DELETE_NODE, "kill_kubelet tpu-a-0", ["DELETE /api/v1/nodes/tpu-a-0"], "node deleted"),
    ],
)
def test_kubelets_come_back_in_time_and_the_outage_is_recorded(
    world: World, blow: Blow, done: str, asked: list[str], how: str
) -> None:
    host = done.split()[1]
    agent = world.agent(each(blow))
    world.strike(agent)
    assert world.done == [done]
    assert world.api.asked == asked
    world.strike(agent, times=4)
    assert world.done == [done]
    world.strike(agent)
    assert world.done[1:] == [f"thaw_kubelet {host}", f"start_kubelet {host}"]
    assert world.recorder.records.outages == []  # its node may not know yet that it was away
    world.strike(agent, times=7)
    (outage,) = world.recorder.records.outages
    assert (outage.host, outage.begin, outage.how) == (host, 1001.0, how)
    assert outage.end >= 1006.0 + agents.RETURN_SECONDS


def test_two_hosts_at_most_are_away(world: World) -> None:
    agent = world.agent(each(*[Blow.KILL_KUBELET] * 3, seconds=60.0))
    world.strike(agent, times=3)
    assert world.done == ["kill_kubelet cp", "kill_kubelet tpu-a-0"]
    assert [blowed.target is None for blowed in agent.log] == [False, False, True]


def test_all_is_given_back_at_once_in_the_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = world.agent(each(Blow.FREEZE_KUBELET, Blow.API_STORM, seconds=1e6))
    world.strike(agent, times=2)
    assert world.storm.rages

    def passing(_: str, probe: Callable[[], bool], *, timeout: float) -> None:
        del timeout
        while not probe():
            world.clock.now += 1.0

    monkeypatch.setattr(agents, "await_condition", passing)
    agent.give_back()
    assert not world.storm.rages
    assert world.done[1:] == ["thaw_kubelet cp", "start_kubelet cp"]
    assert [outage.host for outage in world.recorder.records.outages] == ["cp"]
    agent.give_back()
    assert len(world.done) == 3


def test_watches_and_requests_are_harmed_through_the_proxy(world: World) -> None:
    agent = world.agent(each(Blow.CUT_WATCHES, Blow.EXPIRE_WATCHES, Blow.API_STORM))
    world.strike(agent, times=3)
    assert [blowed.target for blowed in agent.log] == ["3 watches", None, "requests for 5 s"]
    world.strike(agent, times=5)
    assert not world.storm.rages


def call(method: str = "PUT") -> Call:
    return Call(method, "/apis/fray.dev/v1alpha1/namespaces/ns/frayjobs/job/status", {}, {})


def test_a_storm_harms_the_same_requests_of_a_seed_and_spares_all_others() -> None:
    def faults(seed: int, *, calm: int) -> list[str]:
        storm = Storm(seed)
        assert [storm(call()) for _ in range(calm)] == [None] * calm
        storm.rages = True
        return [str(storm(call())) for _ in range(200 - calm)]

    assert faults(3, calm=0) == faults(3, calm=0)
    assert faults(3, calm=0)[50:] == faults(3, calm=50)
    assert faults(3, calm=0) != faults(4, calm=0)
    assert 40 < sum(fault != "None" for fault in faults(3, calm=0)) < 80


def test_only_writes_of_what_is_there_conflict() -> None:
    storm = Storm(3)
    storm.rages = True
    for method in ("GET", "POST", "DELETE"):
        found = [storm(call(method)) for _ in range(300)]
        assert not [fault for fault in found if fault is not None and fault.status == 409]
    found = [storm(call()) for _ in range(300)]
    assert [fault for fault in found if fault is not None and fault.status == 409]
    assert sum(storm.done.values()) > 100
