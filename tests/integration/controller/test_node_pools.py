"""The operator as a process, a real API server and scheduler, and a GKE that refuses.

Jobs get their pools all the same, run on the nodes that these bring, and leave none. Time at GKE passes only
when the test says so; the operator looks all the time.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.controlplane import ControlPlane
from fray.vocabulary import LABEL_JOB, LABEL_JOB_INDEX
from tests.gke.server import FakeGke
from tests.integration.controller.fake_pools import SCHEDULER, run_nodes
from tests.integration.controller.gke_operator import ADDRESS, CLOCK, DEADLY, SharedClock
from tests.integration.controller.hands import Hands, condition, eventually
from tests.integration.controller.operator_subprocess import OperatorSubprocess

MINUTE = 60.0
OF_SLICE = {
    "labelSelector": {"matchExpressions": [{"key": LABEL_JOB, "operator": "Exists"}]},
    "topologyKey": "cloud.google.com/gke-nodepool",
}
POD = {
    "metadata": {"annotations": {"pod-complete.stage.kwok.x-k8s.io/delay": "24h"}},
    "spec": {
        "schedulerName": SCHEDULER,
        # What JobSet's webhook adds for exclusive placement: each slice has a node pool of its own.
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {**OF_SLICE, "matchLabelKeys": [LABEL_JOB_INDEX]}
                ]
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {**OF_SLICE, "mismatchLabelKeys": [LABEL_JOB_INDEX]}
                ]
            },
        },
    },
}


class GkeOperator(OperatorSubprocess):
    """The operator, whose GKE is the fake."""

    module = "tests.integration.controller.gke_operator"


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeGke]:
    clock = SharedClock(tmp_path / "clock")
    clock.set(1_800_000_000.0)
    with FakeGke(clock=clock) as running:
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


def run_to_the_end(hands: Hands, fake: FakeGke) -> None:
    """Let the job run on the nodes of its pools for longer than idle ones stay, and succeed."""
    pools = running_pools(fake)
    hands.await_phase("train", "Running")
    pods = hands.pods_of(hands.await_jobset("train-a1"))
    nodes = [pod["spec"]["nodeName"].rpartition("-")[0] for pod in pods]
    assert sorted(nodes) == sorted([*pools, *pools])
    assert (nodes[0], nodes[2]) == (nodes[1], nodes[3])
    fake.clock.sleep(60 * MINUTE)
    passes = fake.calls.count("ListNodePools")
    eventually(lambda: fake.calls.count("ListNodePools") > passes + 2)
    assert running_pools(fake) == pools
    for pod in pods:
        hands.exit(pod, 0)
    hands.complete(hands.await_jobset("train-a1"))
    hands.await_phase("train", "Succeeded")


def await_no_pools(fake: FakeGke) -> None:
    """Let time pass at GKE until there are no pools."""

    def is_empty() -> bool:
        fake.clock.sleep(MINUTE)
        return not fake.pools

    eventually(is_empty, told=lambda: (fake.pools, fake.calls[-10:]))


def test_a_job_gets_its_pools_through_a_stock_out_a_quota_and_a_death_and_leaves_none(
    control_plane: ControlPlane,
    hands: Hands,
    fake: FakeGke,
    new_port: Callable[[], int],
    tmp_path: Path,
) -> None:
    def build_operator(name: str, **more: str) -> GkeOperator:
        settings = {
            "FRAY_NAMESPACES": hands.namespace,
            "FRAY_LEASE_NAMESPACE": hands.namespace,
            "FRAY_LEASE_SECONDS": "60",
            "FRAY_BACKOFF_SECONDS": "0.05",
            "FRAY_NODE_POOLS": "gke",
            "FRAY_READ_NODES": "true",
            "FRAY_GKE_CLUSTER": fake.path,
            "FRAY_MAX_POOLS": "4",
            "FRAY_MAX_CHIPS": "tpu-v5p-slice=24",
            ADDRESS: fake.address,
            CLOCK: str(tmp_path / "clock"),
        }
        return GkeOperator(control_plane.kubeconfig, tmp_path, name=name, port=new_port(), **settings, **more)

    with run_nodes(hands.api, fake, control_plane.kubeconfig, tmp_path):
        fake.refuse("stock-out")  # what the first pool will end with
        resources = {"tpu": {"type": "v5p-16"}}
        with build_operator("first", **{DEADLY: "1"}) as first:
            hands.submit("train", replicas=2, resources=resources, podTemplate=POD)
            hands.create_pods(hands.await_jobset("train-a1"))
            assert first.wait() == -signal.SIGKILL, first.log
        assert len(fake.creates) == 1
        # Nobody has given the lease back; a successor would wait for a minute.
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{hands.namespace}/leases"
        assert hands.api.delete(f"{leases}/fray-operator").ok

        with build_operator("second") as second:
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

            run_to_the_end(hands, fake)
            await_no_pools(fake)
            assert sorted(fake.deletes) == sorted(fake.creates)
            assert {"CreatingNodePools", "AttemptRunning"} <= {
                event["reason"] for event in hands.events_of("train")
            }
            second.signal(signal.SIGTERM)
            assert second.wait() == 0, second.log
            assert "Traceback" not in second.log
