"""A watch of FrayJobs that begins anew never tells of those that were deleted in between: others find out."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

from fray.kube.resources import FRAYJOBS, NODES
from fray_operator.store import Store
from tests.unit.controller.test_job_store import CHILD, KEY, ask, child, manifest
from tests.unit.controller.watched_life import WatchedLife, live

PARENT = {"parent": {"name": "train", "root": "train"}}
GONE = "its parent train was deleted"


def remove(life: WatchedLife, name: str) -> Any:
    """Return what deletes a FrayJob, without a trace."""
    return functools.partial(life.server.remove, FRAYJOBS, name)


@pytest.mark.parametrize("parent", ["unfinished", "finished"])
@pytest.mark.parametrize("begins", ["with them", "without"])
def test_a_child_is_stopped_whose_parent_was_deleted_unheard(parent: str, begins: str) -> None:
    async def story(life: WatchedLife) -> None:
        if begins == "without":
            await life.start()
            await asyncio.sleep(60)
        life.submit("train", suspend=True)
        life.submit("child", **PARENT)
        if parent == "finished":
            life.finish("train")
        if begins == "with them":
            await life.start()
        await asyncio.sleep(60)
        assert "stopped" not in life.require("child")["spec"]
        life.miss(remove(life, "train"))
        await asyncio.sleep(60)
        assert life.require("child")["spec"]["stopped"] is True
        assert life.message("child", "Running") == f"attempt 1 is ending: {GONE}"

    live(story)


def test_nothing_is_stopped_when_nothing_is_missing() -> None:
    async def story(life: WatchedLife) -> None:
        life.submit("train", suspend=True)
        life.submit("child", suspend=True, **PARENT)
        life.submit("other", suspend=True)
        await life.start()
        await asyncio.sleep(60)
        life.calls()
        life.miss(lambda: life.server.store(NODES, {"metadata": {"name": "node-1"}}))
        await asyncio.sleep(60)
        assert len(life.jobs) == 3
        # One by kopf, and one to see what is missing from it.
        assert life.calls() == {"LIST frayjobs": 2, "LIST jobsets": 1, "LIST jobs": 1, "LIST pods": 1}

    live(story)


def test_a_finished_parent_goes_whose_last_child_was_deleted_unheard() -> None:
    async def story(life: WatchedLife) -> None:
        life.submit("train", suspend=True, ttlSecondsAfterFinished=60)
        life.submit("child", suspend=True, **PARENT)
        await life.start()
        await asyncio.sleep(60)
        life.finish("train")
        await asyncio.sleep(600)
        assert life.find("train") is not None
        life.miss(remove(life, "child"))
        await asyncio.sleep(60)
        assert life.find("train") is None

    live(story)


def test_a_finished_parent_stays_for_a_child_that_it_launched_unheard() -> None:
    """The list that begins the watch anew may come in pages, the parent's long before the child's."""

    async def story(life: WatchedLife) -> None:
        # Makes the operator read all jobs before the gap.
        life.submit("early", suspend=True, ttlSecondsAfterFinished=0)
        life.finish("early")
        await life.start()
        await asyncio.sleep(60)
        assert life.find("early") is None
        events = life.on_event
        assert events is not None

        async def hold_the_child(event: dict[str, Any]) -> None:
            if event["object"]["metadata"]["name"] == "child":
                await asyncio.sleep(600)
            await events(event)

        life.on_event = hold_the_child
        life.miss(
            lambda: life.submit("above", suspend=True, ttlSecondsAfterFinished=0),
            lambda: life.submit("child", suspend=True, parent={"name": "above", "root": "above"}),
            lambda: life.finish("above"),
        )
        await asyncio.sleep(300)
        assert life.find("above") is not None

    live(story)


# --- the store ------------------------------------------------------------------------------------------


def test_what_is_missing_where_all_are_read_is_dropped_and_its_relatives_look_again() -> None:
    told: list[Any] = []
    store = Store(told.append)
    store.put(manifest(1))
    store.put(child(2))
    told.clear()

    async def read() -> Any:
        yield child(2)

    asyncio.run(store.learn("other", read()))
    assert (len(store), told) == (2, [])
    asyncio.run(store.learn("default", read()))
    assert list(store) == [CHILD]
    assert set(told) == {KEY, CHILD}


def test_a_job_that_took_the_name_of_a_missing_one_is_kept() -> None:
    store = Store()
    store.put(manifest(1))

    async def read() -> Any:
        yield manifest(5, uid="2")

    asyncio.run(store.learn("default", read()))
    assert [body["metadata"]["uid"] for key in store if (body := store.get(key))] == ["2"]


def test_a_job_that_comes_while_all_are_read_is_kept() -> None:
    store = Store()

    async def read() -> Any:
        store.put(manifest(7))
        yield child(2)

    asyncio.run(store.learn("default", read()))
    assert set(store) == {KEY, CHILD}


@pytest.mark.parametrize("end", ["finish", "delete"])
def test_a_job_is_not_brought_back_that_came_and_ended_while_all_are_read(end: str) -> None:
    store = Store()

    async def read() -> Any:
        if end == "finish":
            store.put(manifest(7, finished=True))
        else:
            store.discard(KEY, uid="1")
        yield manifest(5)

    asyncio.run(store.learn(None, read()))
    assert list(store) == []


def test_after_a_listing_the_server_is_asked_anew_about_parents() -> None:
    told: list[Any] = []
    store = Store(told.append)
    store.put(child(1))
    answer = store.share_parent(KEY, ask)
    store.look_at_relatives()
    assert store.share_parent(KEY, ask) is not answer
    assert set(told) == {KEY, CHILD}
