"""The operator, a real API server and a GKE that refuses: jobs get their pools all the same, and none stays.

Time at GKE passes only when the test says so; the operator looks all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fray.nodepools.bodies import GkeCluster
from fray.nodepools.decisions import Decision, Limits, PendingGang
from fray.nodepools.existing import Operation
from fray.nodepools.gke import Gke
from fray.nodepools.provider import GkeNodePools
from fray.nodepools.usage import ClusterObjects
from fray_operator import node_pools
from fray_operator.lease import LeaseLostError
from tests.gke.server import FakeGke
from tests.integration.controller.conftest import NodeMaker, SettingsFor
from tests.integration.controller.hands import Hands, condition, eventually
from tests.integration.controller.operator_thread import OperatorThread

LABELS = {
    "cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice",
    "cloud.google.com/gke-tpu-topology": "2x2x2",
}
UNPLACED = "0/0 nodes are available: 4 node(s) didn't match Pod's node affinity/selector."
MINUTE = 60.0


class DeadlyGke(Gke):
    """Ends the process when GKE has accepted a pool, before anybody hears of it."""

    def create(self, body: Mapping[str, Any]) -> Operation:
        super().create(body)
        raise LeaseLostError("the process ends here")


class Provider:
    """What an operator would have on GKE, by the clock of the fake; it asks to be called again at once."""

    def __init__(self, fake: FakeGke, gke: type[Gke] = Gke) -> None:
        self._fake = fake
        limits = Limits(max_pools=4, max_chips={"tpu-v5p-slice": 24}, idle_seconds=10 * MINUTE)
        place = GkeCluster.parse(fake.path)
        self._inner = GkeNodePools(lambda: gke(place, fake.client()), limits, "operator.test")

    def provide(
        self,
        gangs: Sequence[PendingGang],
        objects: ClusterObjects,
        *,
        now: float,  # noqa: ARG002 - the fake's time is another one
        require: Callable[[], None] = lambda: None,
    ) -> Decision:
        decision = self._inner.provide(gangs, objects, now=self._fake.clock(), require=require)
        return replace(decision, again=0.0)


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the operator look all the time, and at what is there now."""
    monkeypatch.setattr(node_pools, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(node_pools, "PODS_SECONDS", 0.0)


@pytest.fixture
def fake() -> Iterator[FakeGke]:
    with FakeGke() as running:
        running.clock.now = 1_800_000_000.0
        yield running


def running_pools(fake: FakeGke) -> list[str]:
    fake.settle()
    return sorted(name for name, pool in fake.pools.items() if pool.status.name == "RUNNING")


def await_reason(hands: Hands, reason: str, *, told: str = "") -> str:
    """Wait until the job isn't scheduled for this reason, told so; return the sentence."""

    def check(job: dict[str, Any]) -> bool:
        found = condition(job, "Scheduled")
        return found.get("reason") == reason and str(found["message"]).startswith(told)

    return str(condition(hands.await_job("train", check), "Scheduled")["message"])


def run_to_the_end(hands: Hands, fake: FakeGke, make_node: NodeMaker) -> None:
    """Let the job run on nodes of the pools, longer than idle ones stay, and succeed."""
    pools, jobset = running_pools(fake), hands.await_jobset("train-a1")
    nodes = [(pool, f"{hands.namespace}-{pool}-{host}") for pool in pools for host in range(2)]
    for (pool, node), pod in zip(nodes, hands.pods_of(jobset), strict=True):
        make_node(node, pool=pool, labels=LABELS)
        hands.bind(pod, node)
        hands.run(pod)
    hands.await_phase("train", "Running")
    fake.clock.sleep(60 * MINUTE)
    passes = fake.calls.count("ListNodePools")
    eventually(lambda: fake.calls.count("ListNodePools") > passes + 2)
    assert running_pools(fake) == pools
    for pod in hands.pods_of(jobset):
        hands.exit(pod, 0)
    hands.complete(jobset)
    hands.await_phase("train", "Succeeded")


def await_no_pools(fake: FakeGke) -> None:
    """Let time pass at GKE until there are no pools."""

    def is_empty() -> bool:
        fake.clock.sleep(MINUTE)
        return not fake.pools

    eventually(is_empty, told=lambda: (fake.pools, fake.calls[-10:]))


def test_a_job_gets_its_pools_through_a_stock_out_a_quota_and_a_death_and_leaves_none(
    kubeconfig: Path, hands: Hands, settings_for: SettingsFor, make_node: NodeMaker, fake: FakeGke
) -> None:
    settings = settings_for(hands.namespace)
    hands.submit("train", replicas=2, resources={"tpu": {"type": "v5p-16"}})
    fake.refuse("stock-out")  # what the first pool will end with
    first = OperatorThread(kubeconfig, settings, node_pools=Provider(fake, DeadlyGke)).start()
    hands.refuse_pod(hands.create_pods(hands.await_jobset("train-a1"))[0], UNPLACED)
    first.join()
    assert isinstance(first.failure, LeaseLostError), first.failure
    assert len(fake.creates) == 1

    second = OperatorThread(kubeconfig, settings, node_pools=Provider(fake)).start()
    try:
        # The pool that was asked for before the death is found; only the other one is asked for.
        told = await_reason(hands, "CreatingNodePools", told="GKE makes 2")
        assert told == "GKE makes 2 node pools of ct5p-hightpu-4t, which takes minutes"
        broken, good = fake.creates
        fake.clock.sleep(MINUTE)
        told = await_reason(hands, "NodePoolsRefused", told="StockOut: ")
        assert "Google Cloud has no such machines free in the zone now" in told
        assert "It is tried again at 2027-01-15T08:02:00.000Z." in told
        eventually(lambda: fake.deletes == [broken])
        assert running_pools(fake) == [good]

        fake.refuse("regional quota")
        fake.clock.sleep(MINUTE)
        told = await_reason(hands, "NodePoolsRefused", told="QuotaExceeded: ")
        assert "the project's quota TPUV5P is short of 8.0: 16.0 are needed" in told
        fake.clock.sleep(2 * MINUTE)
        await_reason(hands, "CreatingNodePools", told="GKE makes 1 node pool of")
        fake.clock.sleep(MINUTE)
        assert len(running_pools(fake)) == 2
        assert fake.calls.count("CreateNodePool") == 4

        run_to_the_end(hands, fake, make_node)
        await_no_pools(fake)
        assert sorted(fake.deletes) == sorted(fake.creates)
        assert {"CreatingNodePools", "AttemptRunning"} <= {
            event["reason"] for event in hands.events_of("train")
        }
    finally:
        second.stop()
    assert second.failure is None, second.failure
