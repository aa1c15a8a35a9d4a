"""Engine ray in pods: how a node is started, who may connect, and how many workers there is work for."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import stat
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from ray.core.generated import autoscaler_pb2
from ray.exceptions import RpcError

from fray.job import ray_demand, ray_pods
from fray.job.engine_pods import Unheld, WorkerPod
from fray.job.ray_demand import RayNode, RayWorkload, await_head
from fray.job.ray_node import PORTS, build_start, build_token, write_token
from fray.runtime.pool.machine.resources import UNBOUNDED
from fray.runtime.pool.messages.specs import Shape
from fray.runtime.pool.transport.addresses import Address
from fray.vocabulary import POOL_PORTS, POOL_READY_PORT

HEAD = Address(host="10.0.0.1", port=7077)


def test_rank_0_starts_the_head_and_other_ranks_a_raylet_without_resources() -> None:
    nothing = {"CPU": 0, "TPU": 0}
    head = build_start("10.0.0.1", "a", nothing, head=HEAD, role="host")
    other = build_start("10.0.0.2", "b", nothing, head=HEAD, role="host")
    assert {"--head", "--port=7077", "--no-monitor", "--node-ip-address=10.0.0.1"} <= set(head)
    assert "--address=10.0.0.1:7077" in other
    assert "--head" not in other
    for arguments in (head, other):
        told = {"--num-cpus=0", "--num-gpus=0", '--resources={"TPU": 0}', "--labels=fray.dev/role=host"}
        assert told <= set(arguments)


def test_a_worker_offers_what_its_pod_has() -> None:
    has = {"CPU": 4.0, "GPU": 2.0, "memory": 1e9, "license": 1.0}
    arguments = build_start("10.0.0.3", "w", has, head=HEAD, role="worker")
    told = {"--num-cpus=4", "--num-gpus=2", '--resources={"license": 1.0}', "--memory=1000000000"}
    assert told <= set(arguments)
    assert "--object-store-memory=300000000" in arguments


def test_rays_ports_are_the_pools_and_no_two_are_the_same() -> None:
    used = (POOL_PORTS[0], *PORTS, POOL_READY_PORT)
    assert len(set(used)) == len(used)
    assert all(POOL_PORTS[0] <= port <= POOL_PORTS[1] for port in used)
    arguments = build_start("10.0.0.3", "w", {"CPU": 1}, head=HEAD, role="worker")
    assert all(any(argument.endswith(f"port={port}") for argument in arguments) for port in PORTS)


def test_each_job_and_each_key_has_a_token_of_its_own() -> None:
    tokens = [build_token(*each) for each in itertools.product((b"key", b"rotated"), ("job", "other"))]
    assert len(set(tokens)) == 4
    assert build_token(b"key", "job") == tokens[0]


def test_a_container_that_is_started_again_keeps_the_token_that_the_head_knows(tmp_path: Path) -> None:
    file = tmp_path / "token"
    write_token("of the keys that the head began with", file)
    write_token("of keys that have replaced them", file)
    assert file.read_text() == "of the keys that the head began with"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("waiting", "busy", "offered", "wanted"),
    [
        ([], 0, (), 0),
        ([((("CPU", 1.0),), 9)], 0, (("CPU", 4.0),), 3),
        ([((("CPU", 1.0),), 9)], 2, (("CPU", 4.0),), 5),
        ([((("CPU", 2.0), ("memory", 4e9)), 3)], 0, (("CPU", 8.0), ("memory", 8e9)), 2),
        # What no worker can ever hold asks for none.
        ([((("GPU", 1.0),), 3)], 1, (("CPU", 4.0),), 1),
        ([((("CPU", 1.0),), 3)], 0, (), 3),
    ],
)
def test_the_demand_is_what_runs_and_what_waits(
    waiting: list[tuple[tuple[tuple[str, float], ...], int]],
    busy: int,
    offered: tuple[tuple[str, float], ...],
    wanted: int,
) -> None:
    nodes = [RayNode(str(number), {"CPU": 1.0}, idle=False) for number in range(busy)]
    assert RayWorkload(None, nodes, waiting).count_wanted(offered) == wanted


CPUS = (("CPU", 4.0), ("memory", 8e9))
LARGE, GPU, TYPE = (("CPU", 8.0),), (("GPU", 1.0),), (("CPU", 1.0), ("accelerator_type:A100", 0.001))


@pytest.mark.parametrize(
    ("waiting", "workers", "others", "offered", "unheld"),
    [
        ([((("CPU", 4.0),), 9), (LARGE, 2), (GPU, 1), (LARGE, 1)], [], [], CPUS, {LARGE: 3, GPU: 1}),
        # Ranks hold what asks for no CPU.
        ([((("memory", 9e9),), 1)], [], [{"CPU": 0.0, "memory": 1e10}], CPUS, {}),
        # Only a worker shows what Ray itself says of its node.
        ([(TYPE, 1)], [], [], CPUS, {}),
        ([(TYPE, 1)], [{"CPU": 4.0, "accelerator_type:A100": 1.0}], [], CPUS, {}),
        ([(TYPE, 1)], [{"CPU": 4.0}], [], CPUS, {TYPE: 1}),
        ([((("CPU_group_0_ab12", 1.0),), 1)], [{"CPU": 4.0}], [], CPUS, {}),
        # Without `cpu` in the job's spec the next worker may be larger than all before.
        ([(LARGE, 1)], [{"CPU": 4.0}], [], (), {}),
    ],
)
def test_what_no_worker_can_ever_hold_is_found(
    waiting: list[tuple[Shape, int]],
    workers: list[dict[str, float]],
    others: list[dict[str, float]],
    offered: Shape,
    unheld: dict[Shape, int],
) -> None:
    nodes = [RayNode(str(number), total, idle=False) for number, total in enumerate(workers)]
    assert RayWorkload(None, nodes, waiting, others).find_unheld(offered) == unheld


def test_each_shape_that_no_worker_can_hold_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    unheld = Unheld()
    for waiting in ({LARGE: 3}, {LARGE: 4}, {LARGE: 4, GPU: 1}):
        unheld.tell(waiting, (("CPU", 4.0), ("memory", float(UNBOUNDED))))
    large, gpu = caplog.messages
    assert "No worker can ever hold CPU: 8 (each has CPU: 4), for which 3 tasks" in large
    assert "spec.workers.resources" in large
    assert "GPU: 1" in gpu


IDLE = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_IDLE_TERMINATION")


class Gcs:
    """A head that refuses to drain nodes that have work by now."""

    def __init__(self, *busy: str) -> None:
        self.busy = busy
        self.asked: list[str] = []

    def drain_node(self, node: str, reason: int, *_: object) -> tuple[bool, str]:
        self.asked.append(node)
        # Ray takes other reasons than that it idles for any node.
        return reason != IDLE or node not in self.busy, ""


def test_idle_workers_go_and_none_that_has_got_work() -> None:
    gcs = Gcs("b")
    nodes = [RayNode(name, {"CPU": 1.0}, idle=name != "c") for name in "abcd"]
    workload = RayWorkload(gcs, nodes)
    assert workload.release(1) == 1
    assert gcs.asked == ["a"]
    assert workload.release(2) == 1
    assert gcs.asked == ["a", "b", "d"]
    assert workload.count_workers() == 2
    # Who has got work goes after it, as all that is at work and has no actor, where users want fewer.
    workload.nodes = [replace(node, idle=False) for node in nodes]
    workload.keeping = {"b"}
    workload.retire(3)
    assert gcs.asked == ["a", "b", "d", "c"]
    assert workload.count_workers() == 1


def test_only_workers_that_ray_calls_idle_may_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with a task, an actor, or an object in use is RUNNING."""
    nodes = [("IDLE", "worker"), ("RUNNING", "worker"), ("DRAINING", "worker"), ("IDLE", "host")]
    state = autoscaler_pb2.ClusterResourceState()
    for number, (status, role) in enumerate(nodes):
        state.node_states.add(
            node_id=bytes([number]),
            status=autoscaler_pb2.NodeStatus.Value(status),
            total_resources={"CPU": float(number)},
            labels={"fray.dev/role": role},
        )
    state.pending_resource_requests.add(count=2).request.resources_bundle["CPU"] = 7.0
    gang = state.pending_gang_resource_requests.add()
    gang.requests.add().resources_bundle["GPU"] = 1.0
    monkeypatch.setattr("ray.autoscaler.v2.sdk.get_cluster_resource_state", lambda _: state)
    gcs = Gcs()
    workload = RayWorkload(gcs)
    workload.look()
    assert workload.count_workers() == 2
    assert workload.others == [{"CPU": 3.0}]
    assert workload.waiting == [((("CPU", 7.0),), 2), ((("GPU", 1.0),), 1)]
    workload.release(4)
    assert gcs.asked == ["00"]
    assert workload.count_workers() == 1


@pytest.mark.parametrize(
    ("leaves", "released", "comes_back"), [(False, False, True), (True, False, False), (False, True, False)]
)
def test_a_worker_whose_node_ends_comes_back_unless_it_was_asked_to_go(
    leaves: bool, released: bool, comes_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it returns decides whether the pod ends with 0."""
    told: list[bytes] = []

    class Node:
        """A node that has ended by the first look, or runs on."""

        runs = leaves

        def __init__(self, *_: object, **__: object) -> None: ...

        def wait(self, _: threading.Event) -> object:
            return SimpleNamespace(internal_kv_put=lambda *written: told.append(written[1]))

        def find(self, _: str) -> None: ...

        def end(self) -> None: ...

    monkeypatch.setattr(ray_pods, "NodeProcess", Node)
    monkeypatch.setattr(ray_pods, "connect", lambda _: None)
    monkeypatch.setattr(ray_pods, "read_head_versions", lambda _: ray_pods.read_versions())
    monkeypatch.setattr(ray_pods, "was_released", lambda _: released)
    leaving = threading.Event()
    if leaves:
        leaving.set()
    pool = SimpleNamespace(objects=HEAD, environ={"FRAY_WORKERS_SHAPE": "CPU=2,memory=1e9"})
    pod = SimpleNamespace(pool=pool, resources={}, leaving=leaving, joined=contextlib.nullcontext)
    assert ray_pods.join(cast("WorkerPod", pod), HEAD) is comes_back
    assert told == [b'{"CPU": 2.0, "memory": 1000000000.0}']


def test_who_asks_for_workers_takes_no_head_that_may_be_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise RpcError("WrongClusterID")

    begun = SimpleNamespace(internal_kv_get=lambda *_: None)
    replaced = SimpleNamespace(internal_kv_get=refuse)
    ready = SimpleNamespace(internal_kv_get=lambda *_: b'["3.11.2", "2.0", "1.0"]')
    heads = iter([begun, replaced, ready])
    monkeypatch.setattr(ray_demand, "connect", lambda _: next(heads))
    monkeypatch.setattr(ray_demand, "LOOK_SECONDS", 0)
    assert asyncio.run(await_head(HEAD)) is ready
