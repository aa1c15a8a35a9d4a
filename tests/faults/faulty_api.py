"""`KubeApi` over the server in memory, as one process sees it through a network that does what networks do.

A request that was sent arrives although its sender has died or given up by then, and a process that was
killed neither sends nor hears anything any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import Any, NoReturn, TypeVar

from fray.kube.api import KubeApi, Manifest, Page, WatchEvent
from fray.kube.client import REQUEST_SECONDS, WATCH_SILENCE_SECONDS
from fray.kube.errors import ApiError, UnreachableError, build_api_error
from fray.kube.request import WATCH_SECONDS, Request
from fray.kube.resources import Resource
from fray.testing.memory import Call, MemoryServer, Watch
from tests.faults.chaos import Chaos, Harm, WatchHarm

__all__ = ["FaultyApi"]

Result = TypeVar("Result")

ANSWERS = {
    Harm.CONFLICT: (409, "Conflict"),
    Harm.EXPIRED: (410, "Expired"),
    Harm.THROTTLED: (429, "TooManyRequests"),
    Harm.FAILED: (500, "InternalError"),
    Harm.UNAVAILABLE: (503, "ServiceUnavailable"),
    Harm.LIE: (504, "Timeout"),
}
CARRIED_OUT = (None, Harm.LIE, Harm.CUT_AFTER, Harm.HANG_AFTER, Harm.LATE, Harm.ORPHANED)
BOOKMARK_SECONDS = 60.0


class FaultyApi(KubeApi):
    """The API of one process; `on_kill` ends that.

    `on_send` is told of every request that leaves it, `on_unchanged` of writes that changed nothing; within
    `on_late` a request is carried out that its sender has given up, or has died after.
    """

    def __init__(
        self,
        server: MemoryServer,
        chaos: Chaos,
        *,
        on_send: Callable[[Call], None],
        on_unchanged: Callable[[Call], None],
        on_late: Callable[[Call], AbstractContextManager[None]],
        on_kill: Callable[[], None],
    ) -> None:
        self._server, self._chaos, self._on_kill = server, chaos, on_kill
        self._on_send, self._on_unchanged, self._on_late = on_send, on_unchanged, on_late
        self.dead = False

    async def ask(self, request: Request) -> Manifest:
        return await self._call(Call.of(request), lambda: self._server.answer(request))

    async def read_list(self, request: Request) -> AsyncIterator[Page]:
        call, limit = Call.of(request), int(str(request.query["limit"]))
        items, version = await self._call(call, lambda: self._server.select(request))
        # All pages are of the version of the first.
        yield Page(items[:limit], version)
        for start in range(limit, len(items), limit):
            page = functools.partial(Page, items[start : start + limit], version)
            yield await self._call(call, page)

    async def follow(self, request: Request) -> AsyncIterator[WatchEvent]:
        watch = await self._call(Call.of(request), lambda: self._server.open_watch(request))
        try:
            async for event in self._follow_watch(request.resource, watch):
                self._check()
                yield event
        finally:
            self._server.close_watch(watch)

    async def read_log(self, pod: str, *, namespace: str, container: str, tail_lines: int) -> str:
        raise NotImplementedError

    async def _follow_watch(self, resource: Resource, watch: Watch) -> AsyncIterator[WatchEvent]:
        loop = asyncio.get_running_loop()
        end = loop.time() + WATCH_SECONDS
        while True:
            try:
                async with asyncio.timeout(min(BOOKMARK_SECONDS, end - loop.time())):
                    event = await watch.events.get()
            except TimeoutError:
                yield WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": self._server.version}})
                if loop.time() >= end:
                    return
                continue
            await self._harm(resource)
            if event is None:
                return
            yield event

    async def _harm(self, resource: Resource) -> None:
        """Let happen what happens to a watch before its next event."""
        request = f"WATCH {resource}"
        match self._chaos.watch_harm(resource):
            case WatchHarm.CUT:
                raise UnreachableError(request, 0, "ClientPayloadError", "cut")
            case WatchHarm.SILENCE:
                await asyncio.sleep(WATCH_SILENCE_SECONDS)
                raise UnreachableError(request, 0, "TimeoutError", "silent")
            case WatchHarm.EXPIRED:
                raise _error(request, 410, "Expired")
            case WatchHarm.FAILED:
                raise _error(request, 500, "InternalError")
            case WatchHarm.LAG:
                await asyncio.sleep(self._chaos.lateness())
            case None:
                await asyncio.sleep(self._chaos.latency())

    async def _call(self, call: Call, act: Callable[[], Result]) -> Result:
        self._check()
        self._on_send(call)
        dies = self._chaos.kill(call)
        if dies == "before":
            self._die(call)
        harm = None if dies else self._chaos.harm(call)
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        deliver = functools.partial(self._deliver, call, act, answer, harm, dies=dies is not None)
        delay = self._chaos.orphan_lateness(call) if harm is Harm.ORPHANED else self._chaos.latency()
        if harm is Harm.LATE:
            delay += self._chaos.lateness()
        asyncio.get_running_loop().call_later(delay, deliver)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                result = await answer
        except TimeoutError as late:
            raise UnreachableError(f"{call.method} {call.resource}", 0, "TimeoutError", "") from late
        await asyncio.sleep(self._chaos.lateness() if harm is Harm.LATE else self._chaos.latency())
        self._check()
        return result

    def _deliver(
        self,
        call: Call,
        act: Callable[[], Any],
        answer: asyncio.Future[Any],
        harm: Harm | None,
        *,
        dies: bool,
    ) -> None:
        """Have the request arrive, or not, and its answer be on the way, or not."""
        request = f"{call.method} {call.resource}"
        result: Any = None
        error: ApiError | None = None
        if harm in CARRIED_OUT:
            self._server.calls.append(call)
            before = self._server.version
            late = self._on_late(call) if self.dead or answer.done() else contextlib.nullcontext()
            try:
                with late:
                    result = act()
                if call.method == "PUT" and self._server.version == before:
                    self._on_unchanged(call)
            except ApiError as refused:
                error = refused
        if dies:
            self._end()
            error = UnreachableError(request, 0, "Dead", "the process was killed")
        elif harm in ANSWERS:
            after = self._chaos.retry_after() if harm is Harm.THROTTLED else None
            error = _error(request, *ANSWERS[harm], retry_after_seconds=after)
        elif harm in (Harm.CUT, Harm.CUT_AFTER):
            error = UnreachableError(request, 0, "ServerDisconnectedError", "cut")
        elif harm in (Harm.HANG, Harm.HANG_AFTER):
            return
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)

    def _die(self, call: Call) -> NoReturn:
        self._end()
        raise UnreachableError(f"{call.method} {call.resource}", 0, "Dead", "the process was killed")

    def _end(self) -> None:
        self.dead = True
        self._on_kill()

    def _check(self) -> None:
        if self.dead:
            raise UnreachableError("any request", 0, "Dead", "the process was killed")


def _error(request: str, status: int, reason: str, *, retry_after_seconds: float | None = None) -> ApiError:
    body = {"kind": "Status", "reason": reason, "message": "injected"}
    return build_api_error(request, status, body, retry_after_seconds=retry_after_seconds)
