"""Nodes are watched; the server is asked for a list only before, and where the watch may be dead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from fray.kube.errors import ApiError, ForbiddenError, UnreachableError
from fray.kube.resources import NODES
from fray.testing.memory import Call, MemoryApi, MemoryServer
from fray_operator.nodes import NodeInformer
from tests.unit.controller.virtual_time import run


class Watched:
    """A server, and the nodes of it that an operator knows."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.api = MemoryApi(self.server)
        self.nodes = NodeInformer(self.api)
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.task = asyncio.create_task(self.nodes.run())
        await self.nodes.synced.wait()
        self.server.calls.clear()

    def store(self, name: str, **spec: Any) -> None:
        self.server.store(NODES, {"metadata": {"name": name, "labels": {"pool": "a"}}, "spec": spec})

    async def known(self, *, judging: bool = False) -> dict[str, bool]:
        """Return whether each node that is known is cordoned."""
        found = await self.nodes.get(judging=judging)
        assert isinstance(found, Sequence), found
        return {node.name: node.cordoned for node in found}

    def lists(self) -> int:
        return len([call for call in self.server.calls if call.method == "LIST"])


def follow(story: Callable[[Watched], Awaitable[None]]) -> None:
    async def main() -> None:
        watched = Watched()
        try:
            await story(watched)
        finally:
            if watched.task is not None:
                watched.task.cancel()
                await asyncio.gather(watched.task, return_exceptions=True)

    run(main())


def test_what_the_watch_told_is_known_without_asking() -> None:
    async def story(watched: Watched) -> None:
        watched.store("left")
        watched.store("right")
        await watched.start()
        watched.store("left", unschedulable=True)
        watched.server.remove(NODES, "right")
        watched.store("new")
        await asyncio.sleep(1)
        for judging in (False, True):
            assert await watched.known(judging=judging) == {"left": True, "new": False}
        assert watched.lists() == 0

    follow(story)


def test_a_silent_watch_is_good_enough_to_explain_with_and_not_to_judge_by() -> None:
    async def story(watched: Watched) -> None:
        watched.store("left")
        await watched.start()
        await asyncio.sleep(60)
        assert (await watched.known(), watched.lists()) == ({"left": False}, 0)
        assert (await watched.known(judging=True), watched.lists()) == ({"left": False}, 1)

    follow(story)


def test_nodes_that_went_while_no_watch_was_open_are_forgotten() -> None:
    async def story(watched: Watched) -> None:
        watched.store("left")
        watched.store("right")
        await watched.start()
        watched.server.end_watches()
        watched.server.remove(NODES, "right")
        watched.server.compact()
        await asyncio.sleep(60)
        watched.server.calls.clear()
        assert (await watched.known(), watched.lists()) == ({"left": False}, 0)

    follow(story)


def test_before_the_first_list_the_server_is_asked_once_for_all() -> None:
    async def story(watched: Watched) -> None:
        watched.store("left")
        answers = await asyncio.gather(*(watched.known(judging=True) for _ in range(10)))
        assert (answers[0], watched.lists()) == ({"left": False}, 1)

    follow(story)


def test_nobody_judges_by_what_was_known_before_the_server_was_lost() -> None:
    async def story(watched: Watched) -> None:
        async def refuse(_call: Call) -> None:
            raise UnreachableError("LIST", 0, "ServerDisconnected", "cut")

        watched.store("left")
        await watched.start()
        watched.api.before = refuse
        watched.server.end_watches()
        await asyncio.sleep(10)
        assert await watched.known() == {"left": False}
        assert isinstance(await watched.nodes.get(judging=True), ApiError)

    follow(story)


def test_without_the_right_to_list_them_that_is_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def story(watched: Watched) -> None:
        async def forbid(_call: Call) -> None:
            raise ForbiddenError("LIST", 403, "Forbidden", "no right to")

        watched.api.before = forbid
        watched.task = asyncio.create_task(watched.nodes.run())
        await asyncio.sleep(600)
        assert isinstance(await watched.nodes.get(), ForbiddenError)
        assert watched.nodes.refused
        assert not watched.task.done()

    follow(story)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_right_to_read_them_that_is_given_or_taken_later_counts(caplog: pytest.LogCaptureFixture) -> None:
    async def story(watched: Watched) -> None:
        async def forbid(_call: Call) -> None:
            raise ForbiddenError("LIST", 403, "Forbidden", "no right to")

        async def permit(_call: Call) -> None:
            pass

        refused = []
        watched.store("left")
        watched.task = asyncio.create_task(watched.nodes.run())
        for answer in (forbid, permit, forbid):
            watched.api.before = answer
            await asyncio.sleep(300)
            watched.server.end_watches()
            await asyncio.sleep(300)
            refused.append(watched.nodes.refused)
        assert refused == [True, False, True]

    follow(story)
    assert len([record for record in caplog.records if "nodes may not be read" in record.message]) == 2
