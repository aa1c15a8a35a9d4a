"""Finished jobs with a time to live are deleted when it is over, and others never, by one call for each."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import pytest

from fray.kube.errors import ForbiddenError, ThrottledError
from fray.kube.resources import EVENTS, FRAYJOBS
from fray.testing.memory import Call
from tests.unit.controller.test_log_levels import refuse
from tests.unit.controller.watched_life import WatchedLife, live

CHILD = {"parent": {"name": "train", "root": "train"}}


def ends_at_once(**spec: Any) -> dict[str, Any]:
    """The spec of a job that the operator ends as soon as it sees it."""
    return {"stopped": True, **spec}


@pytest.mark.parametrize("ttl", [0, 60])
def test_a_job_is_deleted_when_its_time_has_come_and_what_it_owns_first(ttl: int) -> None:
    async def story(life: WatchedLife) -> None:
        await life.start()
        life.submit("train", **ends_at_once(ttlSecondsAfterFinished=ttl))
        await asyncio.sleep(max(0.5, ttl - 0.5))
        assert life.require("train")["status"]["phase"] == "Stopped"
        await asyncio.sleep(2)
        body = life.server.find(FRAYJOBS, "train")
        assert body is not None
        assert body["metadata"]["finalizers"] == ["foregroundDeletion"]
        assert life.jobs.get_finished(("default", "train")) is None

    live(story)


def test_a_server_that_takes_no_events_holds_up_no_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "create", EVENTS, ThrottledError("POST events", 429, "TooManyRequests", "later"))

    async def story(life: WatchedLife) -> None:
        await life.start()
        life.submit("train", **ends_at_once(ttlSecondsAfterFinished=60))
        await asyncio.sleep(600)  # passes that fail follow each other after a minute at most
        body = life.server.find(FRAYJOBS, "train")
        assert body is not None
        assert body["metadata"]["finalizers"] == ["foregroundDeletion"]

    live(story)


def test_a_job_without_a_time_to_live_stays_and_costs_nothing() -> None:
    async def story(life: WatchedLife) -> None:
        await life.start()
        life.submit("train", **ends_at_once())
        await asyncio.sleep(1)
        life.calls()
        await asyncio.sleep(1_000_000)
        assert life.find("train")
        assert life.calls() == {}

    live(story)


def test_nothing_is_asked_while_a_job_waits_for_its_time_and_little_then() -> None:
    async def story(life: WatchedLife) -> None:
        await life.start()
        for name in ("one", "two"):
            life.submit(name, **ends_at_once(ttlSecondsAfterFinished=100_000))
        await asyncio.sleep(1)
        life.calls()
        await asyncio.sleep(99_000)
        assert life.calls() == {}
        await asyncio.sleep(2_000)
        assert life.calls() == {"DELETE frayjobs one": 1, "DELETE frayjobs two": 1}

    live(story)


@pytest.mark.parametrize(("before", "after", "seconds"), [(600, 60, 60), (60, 600, 600), (None, 60, 60)])
def test_a_time_to_live_can_be_changed_while_the_job_waits(
    before: int | None, after: int, seconds: int
) -> None:
    async def story(life: WatchedLife) -> None:
        await life.start()
        spec = {} if before is None else {"ttlSecondsAfterFinished": before}
        life.submit("train", **ends_at_once(**spec))
        await asyncio.sleep(30)
        life.edit("train", ttlSecondsAfterFinished=after)
        await asyncio.sleep(seconds - 31)
        assert life.find("train")
        await asyncio.sleep(3)
        assert life.find("train") is None

    live(story)


def test_a_time_to_live_can_be_removed_while_the_job_waits() -> None:
    async def story(life: WatchedLife) -> None:
        await life.start()
        life.submit("train", **ends_at_once(ttlSecondsAfterFinished=60))
        await asyncio.sleep(30)
        life.edit("train", ttlSecondsAfterFinished=None)
        await asyncio.sleep(10_000)
        assert life.find("train")
        assert life.jobs.get_finished(("default", "train")) is None

    live(story)


def test_a_job_whose_time_is_prolonged_just_before_it_is_deleted_stays() -> None:
    async def story(life: WatchedLife) -> None:
        async def prolong(call: Call) -> None:
            if call.method == "DELETE" and life.require("train")["spec"]["ttlSecondsAfterFinished"] == 60:
                life.edit("train", ttlSecondsAfterFinished=600)

        await life.start()
        life.submit("train", **ends_at_once(ttlSecondsAfterFinished=60))
        await asyncio.sleep(1)
        life.api.before = prolong
        await asyncio.sleep(598)
        assert life.find("train")
        await asyncio.sleep(3)
        assert life.find("train") is None

    live(story)


def test_another_change_of_a_finished_job_does_not_keep_it() -> None:
    async def story(life: WatchedLife) -> None:
        await life.start()
        life.submit("train", **ends_at_once(ttlSecondsAfterFinished=60))
        await asyncio.sleep(30)
        body = life.require("train")
        body["metadata"]["labels"] = {"team": "blue"}
        life.server.replace(FRAYJOBS, body, "")
        life.calls()
        await asyncio.sleep(32)
        assert life.find("train") is None
        assert life.calls()["DELETE frayjobs train"] == 1

    live(story)


@pytest.mark.parametrize("down", [10, 1000])
def test_a_time_to_live_outlives_the_operator(down: int) -> None:
    async def story(life: WatchedLife) -> None:
        await life.start()
        life.submit("train", **ends_at_once(ttlSecondsAfterFinished=100))
        await asyncio.sleep(1)
        await life.kill()
        await asyncio.sleep(down)
        await life.start()
        if down < 100:
            await asyncio.sleep(80)
            assert life.find("train")
            await asyncio.sleep(20)
        else:
            await asyncio.sleep(2)
        assert life.find("train") is None

    live(story)


def test_a_job_of_the_same_name_is_not_deleted_in_its_place() -> None:
    async def story(life: WatchedLife) -> None:
        await life.start()
        life.submit("train", **ends_at_once(ttlSecondsAfterFinished=60))
        await asyncio.sleep(30)
        life.server.remove(FRAYJOBS, "train")
        life.submit("train", suspend=True)
        await asyncio.sleep(1000)
        assert life.require("train")["status"]["phase"] == "Suspended"
        assert "DELETE frayjobs train" not in life.calls()

    live(story)


# --- clocks and times that can't be relied on -----------------------------------------------------------


@pytest.mark.parametrize("ended", ["yesterday", "", "2026-01-31T12:00:00"])
def test_an_end_that_cannot_be_read_is_that_of_the_condition(ended: str) -> None:
    async def story(life: WatchedLife) -> None:
        life.submit("train", ttlSecondsAfterFinished=60)
        life.finish("train", completionTime=ended)
        await life.start()
        await asyncio.sleep(55)
        assert life.find("train")
        await asyncio.sleep(10)
        assert life.find("train") is None

    live(story)


@pytest.mark.parametrize(("ended", "kept"), [("1999-01-01T00:00:00Z", 60), ("2999-01-01T00:00:00Z", 10**7)])
def test_a_clock_that_was_wrong_deletes_nothing_early(ended: str, kept: int) -> None:
    async def story(life: WatchedLife) -> None:
        life.submit("train", ttlSecondsAfterFinished=60)
        life.finish("train", completionTime=ended)
        await life.start()
        await asyncio.sleep(kept - 5)
        assert life.find("train")
        await asyncio.sleep(10)
        assert (life.find("train") is None) == (kept == 60)

    live(story)


# --- jobs that it launched ------------------------------------------------------------------------------


def test_a_parent_stays_until_all_its_children_have_ended() -> None:
    async def story(life: WatchedLife) -> None:
        await life.start()
        life.submit("train", suspend=True, ttlSecondsAfterFinished=60)
        for name in ("left", "right"):
            life.submit(name, suspend=True, **CHILD)
        await asyncio.sleep(1)
        life.finish("train")
        await asyncio.sleep(1000)
        life.calls()
        life.edit("left", stopped=True)
        await asyncio.sleep(1000)
        assert life.find("train")
        life.edit("right", stopped=True)
        await asyncio.sleep(2)
        assert life.find("train") is None
        assert life.calls()["GET frayjobs train"] == 0

    live(story)


def test_an_operator_that_starts_knows_the_children_before_it_deletes_their_parent() -> None:
    """Told of in the order of their names, children come last; and kopf may be slow to tell."""

    async def story(life: WatchedLife) -> None:
        life.submit("train", ttlSecondsAfterFinished=0)
        life.finish("train")
        life.submit("zebra", suspend=True, **CHILD)

        async def hold_back_the_watch(event: dict[str, Any]) -> None:
            if event["object"]["metadata"]["name"] == "zebra":
                await asyncio.sleep(100)

        feed = life._feed

        async def slow_feed(handle: Any) -> None:
            async def slowly(event: dict[str, Any]) -> None:
                await hold_back_the_watch(event)
                await handle(event)

            await feed(slowly)

        life._feed = slow_feed  # type: ignore[method-assign]
        await life.start()
        await asyncio.sleep(50)
        assert life.find("train")
        assert life.require("zebra")["status"]["phase"] == "Suspended"
        await asyncio.sleep(1000)
        assert life.find("train")
        life.edit("zebra", stopped=True)
        await asyncio.sleep(110)
        assert life.find("train") is None

    live(story)


@pytest.mark.parametrize("end", ["finish", "delete"])
def test_a_job_that_ends_while_all_are_read_is_not_taken_for_one_that_goes_on(end: str) -> None:
    async def story(life: WatchedLife) -> None:
        lists: list[Call] = []

        async def end_another(call: Call) -> None:
            if call.method != "LIST" or call.resource != FRAYJOBS:
                return
            lists.append(call)
            if len(lists) == 2:  # the first is kopf's
                if end == "finish":
                    life.finish("other")
                else:
                    life.server.delete(FRAYJOBS, "other", "default", uid=None, propagation="Background")
                await asyncio.sleep(5)

        life.submit("other", suspend=True)
        life.submit("train", **ends_at_once(ttlSecondsAfterFinished=60))
        life.api.after = end_another
        await life.start()
        await asyncio.sleep(90)
        assert life.find("train") is None
        assert life.jobs.get(("default", "other")) is None

    live(story)


def test_a_child_launched_as_the_last_act_of_its_parent_is_told_of_in_time() -> None:
    """Its watch event may be worked on a moment after that of its parent's end, which came after it."""

    async def story(life: WatchedLife) -> None:
        await life.start()
        life.submit("first", **ends_at_once(ttlSecondsAfterFinished=0))
        await asyncio.sleep(2)  # all jobs were read, and are not read again
        life.submit("train", suspend=True, ttlSecondsAfterFinished=0)
        await asyncio.sleep(1)
        life.finish("train")
        await asyncio.sleep(0.5)
        life.submit("child", suspend=True, **CHILD)
        await asyncio.sleep(1000)
        assert life.find("train")
        assert life.require("child")["status"]["phase"] == "Suspended"

    live(story)


# --- many of them, and no right to ----------------------------------------------------------------------


def test_a_deletion_that_is_not_permitted_is_tried_again_rarely(caplog: pytest.LogCaptureFixture) -> None:
    async def story(life: WatchedLife) -> None:
        async def forbid(call: Call) -> None:
            if call.method == "DELETE":
                tried.append(call.name)
                raise ForbiddenError("DELETE", 403, "Forbidden", "no right to")

        tried: list[str] = []
        await life.start()
        life.submit("train", **ends_at_once(ttlSecondsAfterFinished=0))
        life.api.before = forbid
        await asyncio.sleep(3600)
        assert 5 <= len(tried) <= 7

    live(story)
    assert "its time has come, and it can't be deleted" in caplog.text


def test_ten_thousand_finished_jobs_take_little_memory() -> None:
    async def story(life: WatchedLife) -> None:
        body = life.submit("train", ttlSecondsAfterFinished=10**9)
        life.finish("train")
        body = life.require("train")
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for number in range(1000):
            metadata = {**body["metadata"], "name": f"train-{number}", "uid": f"{number:036}"}
            life.jobs.put({**body, "metadata": metadata})
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (after - before) / 1000 < 800

    live(story)
