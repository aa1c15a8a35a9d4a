"""The operator's own parts at work in virtual time over a server in memory, with all their watches.

FrayJobs are watched by the operator's own handler, fed from the server instead of by kopf. It can be killed
and started again. Nothing plays other controllers: a test does what they would.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from fray.kube.api import Manifest
from fray.kube.errors import ExpiredError
from fray.kube.resources import FRAYJOBS, JOBS, JOBSETS, LEASES, PODS
from fray.plan.remains import tells_of_end
from fray.plan.settings import PlanSettings, RetryPolicy
from fray.testing.memory import MemoryApi, MemoryServer
from fray.vocabulary import Role
from fray_operator.act import Actor
from fray_operator.frayjobs import FRAYJOB
from fray_operator.informer import Informer, JobKey, trim_worker_job
from fray_operator.kinds import Controller, Key
from fray_operator.lease import Lease
from fray_operator.metrics import Metrics
from fray_operator.observe import Observer
from fray_operator.queue import WorkQueue
from fray_operator.reconcile import Reconciler
from fray_operator.source import WatchedKind
from fray_operator.store import Store
from fray_operator.worker import work
from fray_operator.writer import Writer
from tests.unit.controller.virtual_time import run

__all__ = ["LabelledPods", "WatchedLife", "live", "remember_in"]

Handle = Callable[[dict[str, Any]], Awaitable[None]]


def remember_in(caches: Mapping[Role, Informer]) -> Callable[[Role, Manifest], None]:
    """Return what keeps children that were written in the caches of their roles, where there are any."""

    def remember(role: Role, child: Manifest) -> None:
        if role in caches:
            caches[role].remember(child)

    return remember


class LabelledPods(Informer):
    """Pods by their labels alone, where a test plays no Jobs."""

    def held_of_job(self, key: JobKey) -> list[Manifest]:
        del key
        return []


class WatchedLife:
    """A server, and an operator of it from `start` to `kill`; `api` is the operator's way to the server."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.api = MemoryApi(self.server)
        self._begun = datetime.now(UTC)
        self._tasks: list[asyncio.Task[None]] = []
        self.jobs = Store()
        self.on_event: Handle | None = None
        """What is told of FrayJobs; a test may stand between."""

    def now(self) -> datetime:
        """Return the operator's time."""
        return self._begun + timedelta(seconds=asyncio.get_running_loop().time())

    async def start(self) -> None:
        """Start an operator."""
        queue, metrics, api = WorkQueue[Key](), Metrics(), self.api

        def due(job: JobKey) -> None:
            queue.add(FRAYJOB.key(job))

        self.jobs = jobs = Store(due)
        lease = Lease(api, namespace="default", name="leader", identity="a", seconds=10_000_000)
        await lease.acquire()
        jobsets = Informer(api, JOBSETS, FRAYJOB, namespace=None, on_change=due, trim=lambda body: body)
        pods = LabelledPods(
            api, PODS, FRAYJOB, namespace=None, on_change=due, trim=lambda body: body, outlives=tells_of_end
        )
        workers = Informer(
            api, JOBS, FRAYJOB, namespace=None, on_change=due, trim=trim_worker_job, role=Role.WORKER
        )
        observer = Observer(
            api,
            children={Role.HOST: lambda _: jobsets, Role.WORKER: lambda _: workers},
            pods=lambda _: pods,
            nodes=None,
        )
        remember = remember_in({Role.HOST: jobsets, Role.WORKER: workers})
        actor = Actor(api, lease, settings=PlanSettings(), remember=remember)
        policy = RetryPolicy(10, 360)
        writer = Writer(api, lease, FRAYJOB, identity="a")
        reconciler = Reconciler(
            FRAYJOB, jobs, observer, actor, writer, metrics, policy=policy, clock=self.now
        )
        controller = Controller(FRAYJOB, jobs, reconciler.reconcile)
        self._source = source = WatchedKind(api, queue, controller, ())
        self.on_event = source.on_event
        parts = [jobsets.run(), workers.run(), pods.run(), source.read_lists(), self._feed(self._tell)]
        parts += [work(queue, {FRAYJOB.name: controller}, metrics) for _ in range(2)]
        self._tasks = [asyncio.create_task(part) for part in parts]

    async def kill(self) -> None:
        """End the operator at once."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def submit(self, name: str, **spec: Any) -> Manifest:
        """Create a FrayJob."""
        body = {
            "apiVersion": "fray.dev/v1alpha1",
            "kind": "FrayJob",
            "metadata": {"name": name, "creationTimestamp": self.now().isoformat()},
            "spec": {"entrypoint": {"command": ["train"]}, **spec},
        }
        return self.server.store(FRAYJOBS, body)

    def edit(self, name: str, **spec: Any) -> None:
        """Change the spec of a FrayJob; None removes a field."""
        body = self.require(name)
        changed = body["spec"] | spec
        body["spec"] = {key: value for key, value in changed.items() if value is not None}
        self.server.replace(FRAYJOBS, body, "")

    def finish(self, name: str, kind: str = "Succeeded", **status: Any) -> None:
        """Write the status of a FrayJob that has ended, as an operator would."""
        time = {"completionTime": self.now().isoformat(), "phase": kind}
        told = {"status": "True", "reason": "Completed", "lastTransitionTime": self.now().isoformat()}
        conditions = [{"type": each, **told} for each in ("Finished", kind)]
        status = {**time, "conditions": conditions, **status}
        self.server.store(FRAYJOBS, {**self.require(name), "status": status})

    def miss(self, *events: Callable[[], Any]) -> None:
        """Have all this happen while no watch sees it, and be too old for any watch to be told of."""
        self.server.end_watches()
        for happens in events:
            happens()
        self.server.compact()

    def find(self, name: str) -> Manifest | None:
        """Return a FrayJob; None when it is gone, or goes as soon as all it owns is gone."""
        body = self.server.find(FRAYJOBS, name)
        return None if body is None or "deletionTimestamp" in body["metadata"] else body

    def require(self, name: str) -> Manifest:
        """Return a FrayJob that must be there."""
        body = self.find(name)
        assert body is not None, name
        return body

    def message(self, name: str, kind: str) -> str | None:
        """Return what a condition of a FrayJob says, None when it has none of the kind."""
        conditions = self.require(name).get("status", {}).get("conditions", [])
        return next((str(c["message"]) for c in conditions if c["type"] == kind), None)

    def calls(self) -> Counter[str]:
        """Return how often each call was sent since this was asked last; without watches and the Lease."""
        counted = Counter(
            f"{call.method} {call.resource.plural} {call.name}".strip()
            for call in self.server.calls
            if call.resource != LEASES and call.method != "WATCH"
        )
        self.server.calls.clear()
        return counted

    async def _tell(self, event: dict[str, Any]) -> None:
        assert self.on_event is not None
        await self.on_event(event)

    async def _feed(self, handle: Handle) -> None:
        while True:
            version = ""
            async for page in self.api.list_pages(FRAYJOBS):
                if not version:
                    self._source.note_answer(FRAYJOBS.path(), {})
                for item in page.items:
                    await handle({"type": None, "object": item})
                version = page.resource_version
            with contextlib.suppress(ExpiredError):
                while True:
                    async for event in self.api.watch(FRAYJOBS, resource_version=version):
                        version = event.object["metadata"]["resourceVersion"]
                        if event.type != "BOOKMARK":
                            await handle({"type": event.type, "object": event.object})


def live(story: Callable[[WatchedLife], Awaitable[None]]) -> None:
    """Run a story in virtual time; the operator of its life is killed at the end."""

    async def main() -> None:
        life = WatchedLife()
        try:
            await story(life)
            assert not [task for task in life._tasks if task.done()]
        finally:
            await life.kill()

    run(main())
