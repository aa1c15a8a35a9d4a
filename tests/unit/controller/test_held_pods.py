"""A pod that waits on its node for a volume is explained by events, which nobody reads for other pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from fray.kube.resources import EVENTS, FRAYJOBS, JOBSETS
from fray.plan.timestamps import format_time
from fray.testing.memory import MemoryServer
from fray.vocabulary import LABEL_COMPLETION_INDEX, LABEL_JOBSET_UID
from fray_operator.informer import Informer
from fray_operator.kinds import Key
from fray_operator.metrics import Metrics
from fray_operator.queue import WorkQueue
from tests.unit.controller.an_hour import frayjob, passes, reconcile_for_an_hour

MISSING = 'MountVolume.SetUp failed for volume "config" : configmap "absent" not found'
TOLD = "volume 'config' can't be mounted: configmap \"absent\" not found"
TRIES = (2.0, 2.5, 3.5, 5.5, 9.5, 17.5, 33.5, 65.5, 129.5, 251.5)
"""When the kubelet tries to mount the volume of a pod that it took after a second."""


class Kubelet:
    """Tells of the only pod of `train`, and of a volume that it can't mount."""

    def __init__(self, server: MemoryServer, pods: Informer) -> None:
        self._server, self._pods = server, pods
        self._began = datetime.now(UTC)

    def take(self, state: dict[str, Any]) -> None:
        jobset = self._server.find(JOBSETS, "train-a1")
        assert jobset is not None
        labels = {**jobset["metadata"]["labels"], LABEL_COMPLETION_INDEX: "0"}
        labels |= {LABEL_JOBSET_UID: jobset["metadata"]["uid"]}
        metadata = {
            "name": "train-a1-slice-0-0-x",
            "namespace": "default",
            "labels": labels,
            "uid": "uid-pod",
        }
        metadata |= {"creationTimestamp": self._time(1)}
        phase = "Running" if "running" in state else "Pending"
        status = {"phase": phase, "containerStatuses": [{"name": "main", "state": state}]}
        status |= {"startTime": self._time(1)}
        self._pods.remember({"metadata": metadata, "spec": {"nodeName": "node"}, "status": status})

    def fail_to_mount(self) -> None:
        now = self.now()
        known = self._server.find(EVENTS, "train-a1-slice-0-0-x.1")
        self._server.store(
            EVENTS,
            {
                "metadata": {"name": "train-a1-slice-0-0-x.1", "namespace": "default"},
                "involvedObject": {"kind": "Pod", "name": "train-a1-slice-0-0-x", "uid": "uid-pod"},
                "reason": "FailedMount",
                "message": MISSING,
                "firstTimestamp": known["firstTimestamp"] if known else now,
                "lastTimestamp": now,
            },
        )

    def now(self) -> str:
        return self._time(asyncio.get_running_loop().time())

    def _time(self, seconds: float) -> str:
        return format_time(self._began + timedelta(seconds=seconds))


def reasons(server: MemoryServer) -> dict[str, tuple[str, str, str]]:
    job = server.find(FRAYJOBS, "train")
    assert job is not None
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in job["status"]["conditions"]}


def lists_of_events(server: MemoryServer) -> int:
    return sum(call.method == "LIST" and call.resource is EVENTS for call in server.calls)


def live(*steps: tuple[float, Callable[[Kubelet, MemoryServer], None]]) -> tuple[MemoryServer, Metrics]:
    """Have these happen in an hour of `train`; return what is there in the end."""
    kept: list[tuple[MemoryServer, Metrics]] = []

    def prepare(server: MemoryServer, _: Informer, pods: Informer) -> None:
        kubelet = Kubelet(server, pods)
        for at, step in steps:
            asyncio.get_running_loop().call_later(at, step, kubelet, server)

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        kept.append((server, metrics))

    reconcile_for_an_hour([frayjob("train")], check, prepare=prepare)
    return kept[0]


def create(kubelet: Kubelet, _: MemoryServer) -> None:
    kubelet.take({"waiting": {"reason": "ContainerCreating"}})


def start(kubelet: Kubelet, _: MemoryServer) -> None:
    kubelet.take({"running": {"startedAt": kubelet.now()}})


def fail(kubelet: Kubelet, _: MemoryServer) -> None:
    kubelet.fail_to_mount()


def test_a_volume_that_cannot_be_mounted_is_told_on_running_until_it_can() -> None:
    told: list[dict[str, tuple[str, str, str]]] = []

    def look(_: Kubelet, server: MemoryServer) -> None:
        told.append(reasons(server))

    tries = [(at, fail) for at in TRIES]
    server, metrics = live((1, create), *tries, (8, look), (40, look), (250, look), (300, start), (301, look))
    assert [each["Running"] for each in told] == [
        ("False", "HostsStarting", "1 of 1 hosts are starting"),
        ("False", "VolumeMountFailed", TOLD),
        ("False", "VolumeMountFailed", TOLD),
        ("True", "AllHostsRunning", "1 of 1 hosts run (attempt 1)"),
    ]
    assert {each["Scheduled"][:2] for each in told} == {("True", "AllHostsPlaced")}
    assert [e["message"] for e in server.all(EVENTS) if e["reason"] == "VolumeMountFailed"] == [TOLD]
    assert passes(metrics, "error") == 0


def test_a_pod_that_starts_in_time_costs_no_look_at_events() -> None:
    server, _ = live((1, create), (20, start))
    assert reasons(server)["Running"][0] == "True"
    assert lists_of_events(server) == 0


def test_a_pod_that_pulls_its_image_for_long_costs_ever_fewer_looks() -> None:
    server, metrics = live((1, create))
    assert reasons(server)["Running"][1] == "HostsStarting"
    # An hour of looks a minute apart, and some more in the beginning; each asks for two reasons.
    assert 0 < lists_of_events(server) < 2 * 65
    assert passes(metrics, "error") == 0
