"""Jobs that another job launched end with it, whenever that is seen, and all of them by the same rule."""

from __future__ import annotations

import asyncio

import pytest

from fray.kube.api import Manifest
from fray.kube.errors import ForbiddenError, RefusedError, ServerError
from fray.kube.resources import EVENTS, FRAYJOBS, JOBSETS, Resource
from fray.testing.memory import Call
from tests.unit.controller.watched_life import WatchedLife, live

CHILD = {"parent": {"name": "train", "root": "train"}}
GRANDCHILD = {"parent": {"name": "child", "root": "train"}}


async def family(life: WatchedLife) -> None:
    """Have a parent and its child wait, under an operator."""
    life.submit("train", suspend=True)
    life.submit("child", suspend=True, **CHILD)
    await life.start()
    await asyncio.sleep(1)
    assert life.require("child")["status"]["phase"] == "Suspended"


@pytest.mark.parametrize(
    ("kind", "told"),
    [("Failed", "its parent train failed"), ("Stopped", "its parent train was stopped")],
)
def test_a_child_is_stopped_when_its_parent_ends_badly_and_says_why(kind: str, told: str) -> None:
    async def story(life: WatchedLife) -> None:
        await family(life)
        life.calls()
        life.finish("train", kind)
        await asyncio.sleep(0.5)
        child = life.require("child")
        assert child["spec"]["stopped"] is True
        assert child["metadata"]["annotations"] == {"fray.dev/stopped-because": told}
        assert child["status"]["phase"] == "Stopped"
        assert (life.message("child", "Stopped"), life.message("child", "Finished")) == (told, told)
        events = {event["message"] for event in life.server.all(EVENTS)}
        assert f"StopRequested: {told}" in events
        calls = life.calls()
        assert (calls["GET frayjobs train"], calls["PUT frayjobs child"]) == (1, 2)

    live(story)


def test_a_child_that_runs_ends_its_hosts() -> None:
    async def story(life: WatchedLife) -> None:
        life.submit("train", suspend=True)
        life.submit("child", **CHILD)
        await life.start()
        await asyncio.sleep(1)
        life.finish("train", "Failed")
        await asyncio.sleep(1)
        jobset = life.server.find(JOBSETS, "child-a1")
        assert jobset is not None
        assert "deletionTimestamp" in jobset["metadata"]
        assert life.message("child", "Running") == "attempt 1 is ending: its parent train failed"

    live(story)


def test_a_child_outlives_a_parent_that_succeeds_until_that_is_deleted() -> None:
    async def story(life: WatchedLife) -> None:
        await family(life)
        life.finish("train")
        await asyncio.sleep(1000)
        assert life.require("child")["status"]["phase"] == "Suspended"
        life.calls()
        for suspended in (False, True, False, True):
            life.edit("child", suspend=suspended)
            await asyncio.sleep(100)
        assert life.calls()["GET frayjobs train"] == 0  # it was asked about once
        life.server.remove(FRAYJOBS, "train")
        await asyncio.sleep(1)
        assert life.require("child")["spec"]["stopped"]
        assert "its parent train was deleted" in life.require("child")["metadata"]["annotations"].values()

    live(story)


@pytest.mark.parametrize("finalizers", [[], ["example.com/hold"]], ids=["gone", "being deleted"])
def test_a_child_is_stopped_when_its_parent_is_deleted(finalizers: list[str]) -> None:
    async def story(life: WatchedLife) -> None:
        await family(life)
        body = life.require("train")
        body["metadata"]["finalizers"] = finalizers
        life.server.store(FRAYJOBS, body)
        await life.api.delete(FRAYJOBS, "train", namespace="default")
        if finalizers:
            gone = life.server.find(FRAYJOBS, "train")
            assert gone is not None
            ending = {**gone["metadata"], "deletionTimestamp": "now", "finalizers": finalizers}
            life.server.store(FRAYJOBS, {**gone, "metadata": ending})
        await asyncio.sleep(1)
        told = "its parent train is being deleted" if finalizers else "its parent train was deleted"
        assert life.message("child", "Stopped") == told

    live(story)


def test_grandchildren_follow() -> None:
    async def story(life: WatchedLife) -> None:
        await family(life)
        life.submit("grandchild", suspend=True, **GRANDCHILD)
        await asyncio.sleep(1)
        life.finish("train", "Failed")
        await asyncio.sleep(1)
        assert life.message("child", "Stopped") == "its parent train failed"
        assert life.message("grandchild", "Stopped") == "its parent child was stopped"

    live(story)


@pytest.mark.parametrize("end", ["Failed", "deleted", "Succeeded"])
@pytest.mark.parametrize("name", ["a-child", "zebra"])
def test_a_parent_that_ended_while_nobody_led_is_found(end: str, name: str) -> None:
    """Whether it is told of before its parent, or after."""

    async def story(life: WatchedLife) -> None:
        life.submit("train", suspend=True)
        life.submit(name, suspend=True, **CHILD)
        await life.start()
        await asyncio.sleep(1)
        await life.kill()
        if end == "deleted":
            life.server.remove(FRAYJOBS, "train")
        else:
            life.finish("train", end)
        await life.start()
        await asyncio.sleep(1)
        told = {"Failed": "its parent train failed", "deleted": "its parent train was deleted"}
        assert life.message(name, "Stopped") == told.get(end)

    live(story)


def test_a_child_of_a_predecessor_of_that_name_ends_with_it() -> None:
    async def story(life: WatchedLife) -> None:
        await family(life)
        await life.kill()
        life.server.remove(FRAYJOBS, "train")
        await asyncio.sleep(60)
        life.submit("train", suspend=True)
        await life.start()
        await asyncio.sleep(1)
        assert life.message("child", "Stopped") == "its parent train was deleted"
        assert life.require("train")["status"]["phase"] == "Suspended"

    live(story)


def test_jobs_of_other_parents_and_namespaces_are_left_alone() -> None:
    async def story(life: WatchedLife) -> None:
        await family(life)
        life.submit("other", suspend=True)
        life.submit("others", suspend=True, parent={"name": "other", "root": "train"})
        life.submit("alone", suspend=True)
        elsewhere = life.submit("train-elsewhere", suspend=True)
        elsewhere["metadata"] |= {"namespace": "elsewhere", "name": "train"}
        life.server.store(FRAYJOBS, elsewhere)
        cousin = {**elsewhere, "metadata": {**elsewhere["metadata"], "name": "cousin"}}
        life.server.store(FRAYJOBS, {**cousin, "spec": {**cousin["spec"], **CHILD}})
        await asyncio.sleep(1)
        life.finish("train", "Failed")
        await asyncio.sleep(1)
        stopped = {
            (body["metadata"]["namespace"], body["metadata"]["name"])
            for body in life.server.all(FRAYJOBS)
            if body["spec"].get("stopped")
        }
        assert stopped == {("default", "child")}

    live(story)


def test_a_child_that_was_stopped_or_has_ended_before_is_not_touched() -> None:
    async def story(life: WatchedLife) -> None:
        await family(life)
        life.submit("done", suspend=True, **CHILD)
        life.edit("child", stopped=True)
        await asyncio.sleep(1)
        life.finish("done")
        await asyncio.sleep(1)
        life.finish("train", "Failed")
        life.calls()
        await asyncio.sleep(1000)
        assert life.calls() == {}
        assert life.message("child", "Stopped") == "spec.stopped is true"

    live(story)


def test_a_child_that_is_ending_because_its_user_stopped_it_says_so() -> None:
    async def story(life: WatchedLife) -> None:
        life.submit("train", suspend=True)
        life.submit("child", **CHILD)
        await life.start()
        await asyncio.sleep(1)
        life.edit("child", stopped=True)
        await asyncio.sleep(1)
        life.finish("train", "Failed")
        await asyncio.sleep(1)
        assert life.message("child", "Running") == "attempt 1 is ending: spec.stopped is true"
        assert "annotations" not in life.require("child")["metadata"]

    live(story)


def test_what_somebody_changes_at_the_same_time_is_kept() -> None:
    async def story(life: WatchedLife) -> None:
        async def edit_first(call: Call) -> None:
            if (call.method, call.name) == ("PUT", "child") and not tried:
                tried.append(call.name)
                life.edit("child", ttlSecondsAfterFinished=77)

        tried: list[str] = []
        await family(life)
        life.api.before = edit_first
        life.finish("train", "Failed")
        await asyncio.sleep(5)
        spec = life.require("child")["spec"]
        assert (spec["ttlSecondsAfterFinished"], spec["stopped"]) == (77, True)
        assert life.message("child", "Stopped") == "its parent train failed"

    live(story)


@pytest.mark.parametrize("error", [ForbiddenError, RefusedError])
def test_a_child_that_cannot_be_stopped_goes_on_and_its_status_too(
    error: type[ForbiddenError], caplog: pytest.LogCaptureFixture
) -> None:
    async def story(life: WatchedLife) -> None:
        async def replace(resource: Resource, body: Manifest, *, subresource: str = "") -> Manifest:
            if subresource:
                return await accept(resource, body, subresource=subresource)
            raise error("PUT", 403, "Forbidden", "by a policy")

        await family(life)
        accept = life.api.replace
        life.api.replace = replace  # type: ignore[method-assign]
        life.finish("train", "Failed")
        await asyncio.sleep(1)
        assert "stopped" not in life.require("child")["spec"]
        life.edit("child", suspend=False)
        await asyncio.sleep(1)
        assert life.require("child")["status"]["phase"] == "Pending"

    live(story)
    assert "the job can't be stopped, although its parent train failed" in caplog.text


def test_a_server_that_fails_is_asked_again() -> None:
    async def story(life: WatchedLife) -> None:
        async def fail(call: Call) -> None:
            if (call.method, call.name) in failing:
                failing.remove((call.method, call.name))
                raise ServerError(call.method, 500, "InternalError", "no")

        await family(life)
        failing = [("GET", "train"), ("GET", "train"), ("PUT", "child"), ("PUT", "child")]
        life.api.before = fail
        life.finish("train", "Failed")
        await asyncio.sleep(10)
        assert failing == []
        assert life.message("child", "Stopped") == "its parent train failed"

    live(story)


def test_a_parents_end_is_seen_although_an_older_answer_about_it_is_still_on_its_way() -> None:
    async def story(life: WatchedLife) -> None:
        async def hold(call: Call) -> None:
            if (call.method, call.name) == ("GET", "train") and not asked:
                asked.append(call.name)
                await asyncio.sleep(10)

        asked: list[str] = []
        await family(life)
        life.finish("train")
        life.api.after = hold  # the answer is that it succeeded
        await asyncio.sleep(5)
        assert asked
        life.server.remove(FRAYJOBS, "train")
        await asyncio.sleep(20)
        assert life.message("child", "Stopped") == "its parent train was deleted"

    live(story)


def test_many_children_of_a_finished_parent_ask_about_it_once() -> None:
    async def story(life: WatchedLife) -> None:
        life.submit("train", suspend=True)
        life.finish("train")
        for number in range(50):
            life.submit(f"child-{number}", suspend=True, **CHILD)
        await life.start()
        await asyncio.sleep(100)
        assert life.calls()["GET frayjobs train"] == 1
        assert life.require("child-49")["status"]["phase"] == "Suspended"

    live(story)
