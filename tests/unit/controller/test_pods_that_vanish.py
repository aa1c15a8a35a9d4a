"""A pod that is marked or fails, and is gone in the same read of the watch, is judged by what it showed."""

from __future__ import annotations

import asyncio

from fray.kube.api import Manifest
from fray.kube.resources import FRAYJOBS, JOBSETS, PODS
from fray.plan.timestamps import format_time
from fray.vocabulary import LABEL_COMPLETION_INDEX, LABEL_JOBSET_UID
from tests.unit.controller.watched_life import WatchedLife, live

POD = "train-a1-slice-0-0-x7x2p"
MARK = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}


async def begin(life: WatchedLife) -> Manifest:
    """Have a job of one host run; return the state of its container."""
    await life.start()
    life.submit("train", retries={"failures": 0, "preemptions": 1})
    await asyncio.sleep(5)
    state = {"running": {"startedAt": told_now(life)}}
    show(life, state, "Running")
    await asyncio.sleep(5)
    assert life.require("train")["status"]["phase"] == "Running"
    return state


def told_now(life: WatchedLife) -> str:
    return format_time(life.now())


def jobset_of(life: WatchedLife) -> Manifest:
    jobset = life.server.find(JOBSETS, "train-a1")
    assert jobset is not None
    return jobset


def show(life: WatchedLife, state: Manifest, phase: str, *conditions: Manifest) -> None:
    """Have the kubelet tell of the pod."""
    jobset = jobset_of(life)["metadata"]
    labels = {**jobset["labels"], LABEL_COMPLETION_INDEX: "0", LABEL_JOBSET_UID: jobset["uid"]}
    metadata = {"name": POD, "namespace": "default", "labels": labels}
    status = {"phase": phase, "conditions": list(conditions)}
    status["containerStatuses"] = [{"name": "main", "state": state}]
    life.server.store(PODS, {"metadata": metadata, "spec": {"nodeName": "node"}, "status": status})


def fail(life: WatchedLife) -> None:
    """Have JobSet tell that all is over."""
    ended = {"type": "Failed", "status": "True", "lastTransitionTime": told_now(life)}
    life.server.store(JOBSETS, {**jobset_of(life), "status": {"conditions": [ended]}})


def exited(life: WatchedLife, code: int) -> Manifest:
    now = told_now(life)
    return {"terminated": {"exitCode": code, "reason": "Error", "startedAt": now, "finishedAt": now}}


def first_attempt(life: WatchedLife) -> Manifest:
    body = life.server.find(FRAYJOBS, "train")
    assert body is not None
    attempt: Manifest = body["status"]["attempts"][0]
    return attempt


def test_an_eviction_whose_mark_and_deletion_come_at_once_is_a_preemption() -> None:
    async def story(life: WatchedLife) -> None:
        await begin(life)
        show(life, exited(life, 143), "Failed", MARK | {"lastTransitionTime": told_now(life)})
        life.server.remove(PODS, POD)
        fail(life)
        await asyncio.sleep(30)
        attempt = first_attempt(life)
        assert (attempt["verdict"], attempt["reason"]) == ("Preemption", "Disrupted")
        assert attempt["exitCode"] == 143

    live(story)


def test_the_exit_code_of_a_pod_that_is_removed_at_once_is_told() -> None:
    async def story(life: WatchedLife) -> None:
        await begin(life)
        show(life, exited(life, 9), "Failed")
        life.server.remove(PODS, POD)
        fail(life)
        await asyncio.sleep(30)
        attempt = first_attempt(life)
        assert (attempt["verdict"], attempt["exitCode"]) == ("Failure", 9)
        assert life.require("train")["status"]["phase"] == "Failed"

    live(story)


def test_a_mark_that_one_operator_saw_counts_for_the_next() -> None:
    async def story(life: WatchedLife) -> None:
        running = await begin(life)
        show(life, running, "Running", MARK)
        await asyncio.sleep(5)
        assert first_attempt(life)["disruption"]["message"] == "EvictionByEvictionAPI"
        await life.kill()
        life.server.remove(PODS, POD)
        fail(life)
        await life.start()
        await asyncio.sleep(30)
        assert first_attempt(life)["verdict"] == "Preemption"

    live(story)
