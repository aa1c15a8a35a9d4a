"""A large gang whose hosts start and end one by one takes few writes of its status, none of them late."""

from __future__ import annotations

import asyncio

import pytest

from fray.kube.api import Manifest
from fray.kube.resources import JOBSETS, PODS
from fray.plan.timestamps import format_time
from fray.vocabulary import LABEL_COMPLETION_INDEX, LABEL_JOBSET_UID
from tests.unit.controller.watched_life import WatchedLife, live

WRITE = "PUT frayjobs train"
SECONDS = 20.0
"""How long the hosts of a gang take to start, and to end."""


def show(life: WatchedLife, rank: int, phase: str, state: Manifest | None = None) -> None:
    """Have a kubelet tell of the pod with this rank; one without a state waits for its node."""
    jobset = life.server.find(JOBSETS, "train-a1")
    assert jobset is not None
    labels = {**jobset["metadata"]["labels"], LABEL_COMPLETION_INDEX: str(rank)}
    labels[LABEL_JOBSET_UID] = jobset["metadata"]["uid"]
    metadata = {"name": f"train-a1-main-0-{rank}", "namespace": "default", "labels": labels}
    status: Manifest = {"phase": phase}
    if state is not None:
        status["containerStatuses"] = [{"name": "main", "state": state}]
    spec = {"nodeName": f"node-{rank}"} if state is not None else {}
    life.server.store(PODS, {"metadata": metadata, "spec": spec, "status": status})


async def start(life: WatchedLife, hosts: int) -> list[Manifest]:
    """Have all hosts start one by one; return the states of their containers."""
    for rank in range(hosts):
        show(life, rank, "Pending")
    states = []
    for rank in range(hosts):
        await asyncio.sleep(SECONDS / hosts)
        states.append({"startedAt": format_time(life.now())})
        show(life, rank, "Running", {"running": states[rank]})
    return states


def end(life: WatchedLife, rank: int, begun: Manifest, code: int) -> None:
    told = {**begun, "finishedAt": format_time(life.now()), "exitCode": code}
    show(life, rank, "Failed" if code else "Succeeded", {"terminated": told})


@pytest.mark.parametrize(("hosts", "most"), [(24, 10), (64, 12)])
def test_a_gang_from_creation_to_end(hosts: int, most: int) -> None:
    async def story(life: WatchedLife) -> None:
        await life.start()
        life.calls()
        life.submit("train", replicas=hosts)
        await asyncio.sleep(1)
        states = await start(life, hosts)
        await asyncio.sleep(0.1)
        status = life.require("train")["status"]
        assert (status["phase"], status["ready"]) == ("Running", f"{hosts}/{hosts}")
        await asyncio.sleep(60)
        for rank, state in enumerate(states):
            await asyncio.sleep(SECONDS / hosts)
            end(life, rank, state, 0)
        await asyncio.sleep(0.1)
        status = life.require("train")["status"]
        assert (status["phase"], status["replicas"]["succeeded"]) == ("Succeeded", hosts)
        assert 3 <= life.calls()[WRITE] <= most

    live(story)


def test_counts_that_waited_are_written_without_another_event() -> None:
    async def story(life: WatchedLife) -> None:
        await life.start()
        life.submit("train", replicas=3)
        await asyncio.sleep(1)
        for rank in range(2):
            show(life, rank, "Running", {"running": {"startedAt": format_time(life.now())}})
        await asyncio.sleep(40)
        status = life.require("train")["status"]
        assert (status["ready"], status["replicas"]["running"]) == ("2/3", 2)

    live(story)


def test_the_first_cause_is_written_at_once() -> None:
    async def story(life: WatchedLife) -> None:
        await life.start()
        life.submit("train", replicas=24)
        await asyncio.sleep(1)
        states = await start(life, 24)
        end(life, 5, states[5], 3)
        await asyncio.sleep(0.1)
        attempt = life.require("train")["status"]["attempts"][0]
        assert (attempt["rank"], attempt["exitCode"], attempt["reason"]) == (5, 3, "NonZeroExit")

    live(story)
