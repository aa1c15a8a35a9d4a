"""Two replicas of the operator, whole but for sockets: killed, told to stop, and started again.

kopf and the probes talk to sockets, so they are replaced; all else is the operator's own, as
`OperatorProcess` assembles it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from fray.kube.api import KubeApi
from fray.kube.errors import (
    ApiError,
    ExpiredError,
    ForbiddenError,
    ServerError,
    ThrottledError,
    UnreachableError,
)
from fray.testing.memory import Call, MemoryServer
from fray_operator.kinds import Controller, Key
from fray_operator.lease import LeaseLostError
from fray_operator.metrics import Metrics
from fray_operator.process import OperatorProcess
from fray_operator.queue import WorkQueue
from fray_operator.settings import OperatorSettings
from fray_operator.source import Source, WatchedKind
from tests.faults.chaos import Chaos
from tests.faults.faulty_api import FaultyApi
from tests.faults.invariants import Invariants

__all__ = ["Replica", "WatchGaveUpError"]

KOPF_BACKOFFS = (1, 1, 2, 3, 5, 8, 13, 21)
"""`networking.error_backoffs` of kopf 1.45."""
KOPF_RECONNECT_SECONDS = 0.1
KOPF_TRIES_AGAIN = (UnreachableError, ServerError, ForbiddenError, ThrottledError)


class WatchGaveUpError(Exception):
    """kopf ends the process: an error that it doesn't try again on, or for the last time."""


class _WatchedKind(WatchedKind):
    """kopf's stream of FrayJobs (kopf/_cogs/clients/watching.py), handed to the operator's own handler.

    Objects of a list come without a type, and nothing tells of those that are missing from it.
    """

    async def run(self) -> None:
        reading = asyncio.create_task(self.read_lists())
        try:
            while True:
                with contextlib.suppress(UnreachableError):
                    await self._list_and_watch()
                await asyncio.sleep(KOPF_RECONNECT_SECONDS)
                assert not reading.done()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _list_and_watch(self) -> None:
        version = ""
        pages = await self._tried(self._read_list)
        self.note_answer(self.resource.path(), {})
        for page in pages:
            for body in page.items:
                await self.on_event({"type": None, "object": body})
            version = page.resource_version
        while True:
            self.note_request(self.resource.path())
            try:
                async for event in self._api.watch(self.resource, resource_version=version):
                    version = event.object["metadata"]["resourceVersion"]
                    if event.type != "BOOKMARK":
                        await self.on_event({"type": event.type, "object": event.object})
            except ExpiredError:
                return
            except UnreachableError:
                await asyncio.sleep(KOPF_RECONNECT_SECONDS)
            except ThrottledError as busy:
                await asyncio.sleep(busy.retry_after_seconds or 1.0)
            except ApiError as error:
                raise WatchGaveUpError(str(error)) from error

    async def _read_list(self) -> Any:
        self.note_request(self.resource.path())
        return [page async for page in self._api.list_pages(self.resource)]

    async def _tried(self, read: Callable[[], Any]) -> Any:
        for pause in KOPF_BACKOFFS:
            try:
                return await read()
            except KOPF_TRIES_AGAIN as error:
                await asyncio.sleep(max(pause, error.retry_after_seconds or 0.0))
            except ApiError as error:
                raise WatchGaveUpError(str(error)) from error
        try:
            return await read()
        except UnreachableError:
            raise  # the stream begins anew
        except ApiError as error:
            raise WatchGaveUpError(str(error)) from error


class _Source(Source):
    """Kinds without kopf."""

    def __init__(
        self,
        api: KubeApi,
        queue: WorkQueue[Key],
        controllers: Iterable[Controller],
        settings: OperatorSettings,
    ) -> None:
        self._fed = [_WatchedKind(api, queue, each, settings.namespaces) for each in controllers]
        self.kinds = list[WatchedKind](self._fed)

    async def run(self) -> None:
        watches = [asyncio.create_task(each.run()) for each in self._fed]
        try:
            await asyncio.gather(*watches)
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)


class _Health:
    """Probes that nobody asks."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class _Process(OperatorProcess):
    """An operator without sockets, whose clock is the cluster's."""

    def __init__(
        self, api: KubeApi, settings: OperatorSettings, metrics: Metrics, clock: Callable[[], datetime]
    ) -> None:
        super().__init__(api, settings, metrics, clock=clock)
        self._health: Any = _Health()

    def _build_source(self, served: Iterable[Controller]) -> Source:
        return _Source(self._api, self._queue, served, self._settings)

    @property
    def identity(self) -> str:
        return self._identity


class Replica:
    """One replica: a process, and the next one when that has ended. `endings` counts how they ended."""

    def __init__(
        self,
        server: MemoryServer,
        chaos: Chaos,
        invariants: Invariants,
        *,
        rng: random.Random,
        settings: OperatorSettings,
        clock: Callable[[], datetime],
    ) -> None:
        self._server, self._chaos, self._invariants = server, chaos, invariants
        self._rng, self._settings, self._clock = rng, settings, clock
        self._process: _Process | None = None
        self.endings: Counter[str] = Counter()

    def stop(self) -> None:
        """Tell the process that runs to stop, as SIGTERM does."""
        if self._process is not None:
            self._process.stop()

    async def run(self) -> None:
        """Run for ever; raises what no process may end by."""
        await asyncio.sleep(self._rng.uniform(0.0, 5.0))
        while True:
            self.endings[await self._run_once()] += 1
            await asyncio.sleep(self._rng.choice([0.1, 5.0, 20.0]) * self._rng.random())

    async def _run_once(self) -> str:
        metrics = Metrics()
        killed = asyncio.Event()
        task: asyncio.Task[None] | None = None

        def on_kill() -> None:
            killed.set()
            assert task is not None
            task.cancel()

        def on_send(call: Call) -> None:
            self._invariants.on_send(call, sender=process.identity)

        api = FaultyApi(
            self._server,
            self._chaos,
            on_send=on_send,
            on_unchanged=self._invariants.on_unchanged,
            on_late=self._invariants.late,
            on_kill=on_kill,
        )
        process = self._process = _Process(api, self._settings, metrics, self._clock)
        task = asyncio.create_task(process.run())
        try:
            await asyncio.wait([task])
        finally:
            self._process = None
            api.dead = True
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        if bugs := metrics.registry.get_sample_value(
            "fray_reconciles_total", {"kind": "FrayJob", "outcome": "error"}
        ):
            self._invariants.tell(f"{bugs:.0f} passes ended by a bug of the operator")
        if killed.is_set():
            return "killed"
        try:
            task.result()
        except LeaseLostError:
            return "lease lost"
        except WatchGaveUpError:
            return "watch given up"
        return "stopped"


logging.getLogger("fray_operator").addHandler(logging.NullHandler())
