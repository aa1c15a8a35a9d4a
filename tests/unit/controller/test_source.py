"""What kopf doesn't tell of FrayJobs, the end of its lists and what is missing from them, is found out."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Mapping
from typing import Any

import kopf
import pytest
from aiohttp import web

from fray.kube.errors import UnreachableError
from fray.kube.resources import FRAYJOBS, JOBSETS
from fray.testing.memory import Call, MemoryApi, MemoryServer
from fray_operator.frayjobs import FRAYJOB
from fray_operator.kinds import Controller, Key
from fray_operator.list_watch import Place
from fray_operator.queue import WorkQueue
from fray_operator.settings import OperatorSettings
from fray_operator.source import Source, UnwatchedKindError
from fray_operator.store import Store
from tests.unit.controller.virtual_time import run

ALL, OURS, OTHERS = FRAYJOBS.path(), FRAYJOBS.path(namespace="ours"), FRAYJOBS.path(namespace="others")


async def never(_job: Place) -> None:
    raise AssertionError


def reach(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have kopf find its API server here."""
    found: Any = kopf.ConnectionInfo(server=server)
    monkeypatch.setattr(kopf, "login_with_service_account", lambda **_: None)
    monkeypatch.setattr(kopf, "login_with_kubeconfig", lambda **_: found)


@contextlib.asynccontextmanager
async def serve(answers: Mapping[str, Any]) -> AsyncIterator[str]:
    """Serve JSON by paths, and watches that end at once; yields the address."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response() if "watch" in request.query else web.json_response(answers[request.path])

    app = web.Application()
    app.add_routes([web.get(path, answer) for path in answers])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Fake:
    """A source without kopf, whose requests the test sends."""

    def __init__(self, *namespaces: str) -> None:
        self.server = MemoryServer()
        self.api = MemoryApi(self.server)
        self.jobs = Store()
        settings = OperatorSettings(namespaces=namespaces)
        queue = WorkQueue[Key]()
        controller = Controller(FRAYJOB, self.jobs, never)
        self.kopf = Source(self.api, queue, [controller], settings, claim_signals=lambda: None)
        (self.source,) = self.kopf.kinds
        self.task = asyncio.create_task(self.source.read_lists())

    def store(self, name: str, *, namespace: str = "default") -> None:
        self.server.store(FRAYJOBS, {"metadata": {"name": name, "namespace": namespace}, "spec": {}})

    def lists(self) -> int:
        return len([call for call in self.server.calls if call.method == "LIST"])


def test_all_are_known_once_what_kopf_listed_was_read() -> None:
    async def story() -> None:
        fake = Fake()
        fake.store("train")
        await asyncio.sleep(60)
        assert not fake.jobs.complete.is_set()
        fake.source.note_answer(ALL, {})
        await fake.jobs.complete.wait()
        assert list(fake.jobs) == [("default", "train")]

    run(story())


@pytest.mark.parametrize("query", [{"watch": "true"}, {"limit": "10", "continue": "abc"}])
def test_only_the_first_page_of_a_list_has_the_jobs_read(query: dict[str, str]) -> None:
    async def story() -> None:
        fake = Fake()
        fake.source.note_answer(ALL, {"limit": "10"})
        await fake.jobs.complete.wait()
        fake.source.note_answer(ALL, query)
        fake.source.note_answer(JOBSETS.path(), {})
        await asyncio.sleep(60)
        assert (fake.jobs.complete.is_set(), fake.lists()) == (True, 1)

    run(story())


def test_all_are_known_when_each_namespace_was_read_and_only_its_own_are_dropped() -> None:
    async def story() -> None:
        fake = Fake("ours", "others")
        fake.store("train", namespace="ours")
        fake.store("train", namespace="others")
        fake.source.note_answer(f"/prefix{OURS}", {})
        await asyncio.sleep(1)
        assert (list(fake.jobs), fake.jobs.complete.is_set()) == ([("ours", "train")], False)
        fake.source.note_answer(OTHERS, {})
        await fake.jobs.complete.wait()
        fake.server.delete(FRAYJOBS, "train", "ours", uid=None, propagation="Background")
        fake.source.note_answer(OURS, {})
        await fake.jobs.complete.wait()
        assert list(fake.jobs) == [("others", "train")]

    run(story())


def test_a_list_that_fails_is_read_again_and_until_then_not_all_are_known() -> None:
    async def story() -> None:
        async def refuse(_call: Call) -> None:
            raise UnreachableError("LIST", 0, "ServerDisconnected", "cut")

        async def allow(_call: Call) -> None: ...

        fake = Fake()
        fake.api.before = refuse
        fake.source.note_answer(ALL, {})
        await asyncio.sleep(60)
        assert not fake.jobs.complete.is_set()
        fake.api.before = allow
        async with asyncio.timeout(10):
            await fake.jobs.complete.wait()

    run(story())


def test_requests_of_kopfs_session_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with serve({ALL: {}}) as server:
            reach(server, monkeypatch)
            fake = Fake()
            logged_in = await fake.kopf._log_in()
            assert logged_in is not None
            session = logged_in.aiohttp_session
            try:
                fake.source._heard_at = -math.inf
                await session.get(f"{server}{ALL}/elsewhere")
                assert fake.source.silent_seconds == math.inf
                await session.get(f"{server}{ALL}", params={"limit": "10"})
                assert fake.source.silent_seconds < math.inf
                async with asyncio.timeout(10):
                    await fake.jobs.complete.wait()
                assert await fake.kopf._log_in() == logged_in
            finally:
                await session.close()

    asyncio.run(story())


def discover(*plurals: str) -> dict[str, Any]:
    """Return what a server says of itself that has these of Fray's kinds."""

    def tell(*plurals: str) -> dict[str, Any]:
        told = {"singularName": "", "namespaced": True, "verbs": ["list", "watch"]}
        return {"resources": [{"name": plural, "kind": plural, **told} for plural in plurals]}

    group, version = FRAYJOBS.group, {"version": FRAYJOBS.version}
    return {
        "/api": {"versions": ["v1"]},
        "/api/v1": tell("namespaces"),
        "/apis": {"groups": [{"name": group, "versions": [version], "preferredVersion": version}]},
        f"/apis/{group}/{FRAYJOBS.version}": tell(*plurals),
        ALL: {"items": [], "metadata": {"resourceVersion": "1"}},
    }


def test_a_kind_that_kopf_does_not_find_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with serve(discover("frayactors")) as server, asyncio.timeout(30):
            reach(server, monkeypatch)
            with pytest.raises(UnwatchedKindError, match=r"kopf doesn't watch frayjobs\.fray\.dev"):
                await Fake().kopf.run()

    asyncio.run(story())


def test_a_kind_that_kopf_finds_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with serve(discover("frayjobs")) as server, asyncio.timeout(30):
            reach(server, monkeypatch)
            fake = Fake()
            fake.store("train")
            watching = asyncio.create_task(fake.kopf.run())
            await fake.jobs.complete.wait()
            assert list(fake.jobs) == [("default", "train")]
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    asyncio.run(story())
