"""The operator process, assembled: lease and claims first, then caches, then kopf and the workers.

A standby holds no watch: it waits for the lease. A process that loses the lease ends at once, since
anything it does from then on might be done twice. It also ends when any of its parts does: Kubernetes
starts it anew, and starting is what is tested best. So it does once a kind can be served whose CRD or rights
were missing; until then it serves the others.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from fray.kube.api import KubeApi
from fray.kube.errors import ApiError, ForbiddenError, NotFoundError
from fray.kube.resources import JOBSETS, NODES, Resource
from fray.nodepools.provider import NodePoolProvider
from fray.vocabulary import AUTH_SECRET
from fray_operator.auth import AuthKeeper
from fray_operator.frayjobs import KINDS
from fray_operator.health import SILENCE_LIMIT_SECONDS, HealthServer
from fray_operator.kinds import Controller, Key, Kind, Services
from fray_operator.lease import Lease
from fray_operator.list_watch import ListWatch
from fray_operator.metrics import Metrics
from fray_operator.nodes import NodeInformer
from fray_operator.queue import WorkQueue
from fray_operator.scope import Scope
from fray_operator.settings import OperatorSettings
from fray_operator.source import Source
from fray_operator.worker import work

__all__ = ["OperatorProcess", "PartEndedError", "Parts", "ServableKindError"]

logger = logging.getLogger(__name__)

START_PAUSE_SECONDS = 2.0
"""Between two attempts to reach the server when the process starts."""
KINDS_SECONDS = 10.0
"""Between two looks whether a kind can be served that couldn't be."""
CLAIM_DURATION = 4
"""Duration of a claim to what is served, in durations of the Lease: claims may be many."""

END_SECONDS = 1.0
"""How long watchers may take to end; after that they are left to the end of the process."""


class ServableKindError(Exception):
    """A kind can be served that couldn't be when this process began; the next process serves it."""


class OperatorProcess:
    """One operator: `run` returns when it was asked to stop, and raises when it can't go on.

    `claim_signals` is called when a part may have taken the handling of signals away from the caller;
    `node_pools` is asked for those that jobs wait for.
    """

    def __init__(  # noqa: PLR0913 - tests replace some of it
        self,
        api: KubeApi,
        settings: OperatorSettings,
        metrics: Metrics,
        *,
        kinds: Iterable[Kind[Any]] = KINDS,
        node_pools: NodePoolProvider | None = None,
        claim_signals: Callable[[], None] = lambda: None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api, self._settings, self._metrics = api, settings, metrics
        self._stop = asyncio.Event()
        self._identity = f"{settings.pod_name}_{uuid.uuid4().hex[:8]}"
        self._queue: WorkQueue[Key] = WorkQueue()
        self._lease = Lease(
            api,
            namespace=settings.lease_namespace,
            name=settings.lease_name,
            identity=self._identity,
            seconds=settings.lease_seconds,
        )
        self._scope = Scope(
            api,
            namespaces=settings.namespaces,
            installation=settings.lease_namespace,
            seconds=CLAIM_DURATION * settings.lease_seconds,
        )
        self._started = False
        self._nodes = NodeInformer(api) if settings.read_nodes else None
        services = Services(
            api, self._queue, settings, self._lease, metrics, self._nodes, self._identity, clock, node_pools
        )
        self._controllers = {kind.name: kind.control(kind, services) for kind in kinds}
        self._unserved: dict[str, str] = {}
        """Why kinds can't be served, by name."""
        self._claim_signals = claim_signals
        self._source: Source | None = None
        self._health = HealthServer(
            metrics,
            host=settings.http_host,
            port=settings.http_port,
            problem=self._describe_problem,
            readiness=self._describe_readiness,
            refresh=self._refresh,
        )

    async def run(self) -> None:
        """Lead when it is this process's turn, until `stop` is called.

        Raises `PortUnavailableError`, `ServableKindError`, `UnwatchedKindError`, `LeaseLostError`, or
        whatever ended a part of it.
        """
        await self._health.start()
        parts = Parts()
        parts.add_watcher(self._raise_when_stopped(), name="stop")
        try:
            await parts.until(self._await_kinds())
            self._started = True
            await parts.until(self._lease.acquire())
            parts.add_writer(self._lease.keep(), name="lease")
            await parts.until(self._scope.acquire())
            for claim in self._scope.claims:
                parts.add_writer(claim.keep(), name="claim")
            # Again: a standby may have waited for long, and kinds may have come or gone since.
            await parts.until(self._await_kinds())
            await self._lead(parts, [each for each in self._controllers.values() if self._serves(each)])
        except _StoppedError:
            logger.info("asked to stop")
        finally:
            # In this order: nothing is written any more, the next process may lead, and only then all that
            # may take its time.
            await parts.end_writers()
            if self._lease.held():
                # Else another replica may lead, and have taken over the claims.
                await self._scope.release()
            await self._lease.release()
            await self._health.stop()
            await parts.end_watchers()

    def stop(self) -> None:
        """Make `run` return, as leader or as standby."""
        self._stop.set()

    async def _raise_when_stopped(self) -> None:
        await self._stop.wait()
        raise _StoppedError

    async def _lead(self, parts: Parts, served: Sequence[Controller]) -> None:
        # Owners first, since whose an object is follows from them. Decisions on half-filled caches would be
        # wrong: nothing is worked on before they are full.
        for row in (row for controller in served for row in controller.watches):
            for watch in row:
                parts.add_watcher(watch.run(), name="informer")
            await parts.until(_all_synced(row))
        if self._nodes is not None:
            # Not waited for: nodes only make reasons precise, and the right to read them may be missing.
            parts.add_watcher(self._nodes.run(), name="nodes")
        for _ in range(self._settings.workers):
            parts.add_writer(work(self._queue, self._controllers, self._metrics), name="worker")
        for controller in served:
            for name, run in controller.writers.items():
                parts.add_writer(run(), name=name)
        keys = AuthKeeper(
            self._api,
            self._lease,
            lambda: set().union(*(each.store.find_namespaces_with_keys() for each in served)),
        )
        parts.add_writer(keys.run(), name=AUTH_SECRET)
        self._source = self._build_source(served)
        parts.add_watcher(self._source.run(), name="watch of Fray's kinds")
        if len(served) < len(self._controllers):
            parts.add_watcher(self._raise_when_more_can_be_served(served), name="look at other kinds")
        await parts.run()

    def _build_source(self, served: Iterable[Controller]) -> Source:
        return Source(self._api, self._queue, served, self._settings, claim_signals=self._claim_signals)

    # --- kinds that can be served -----------------------------------------------------------------------

    def _serves(self, controller: Controller) -> bool:
        return controller.kind.name not in self._unserved

    async def _await_kinds(self) -> None:
        """Look which kinds can be served, until at least one can."""
        await self._look_at_kinds()
        while len(self._unserved) == len(self._controllers):
            await asyncio.sleep(KINDS_SECONDS)
            await self._look_at_kinds()

    async def _raise_when_more_can_be_served(self, served: Collection[Controller]) -> None:
        """Look for ever; raises `ServableKindError`."""
        while True:
            await asyncio.sleep(KINDS_SECONDS)
            more = [each.kind.name for each in await self._look_at_kinds() if each not in served]
            if more:
                raise ServableKindError(f"{', '.join(more)} can be served now")

    async def _look_at_kinds(self) -> list[Controller]:
        """Return what serves the kinds that can be served; what stands against others is logged once."""
        found = await asyncio.gather(*map(self._find_obstacle, self._controllers.values()))
        named = zip(self._controllers, found, strict=True)
        unserved = {name: obstacle for name, obstacle in named if obstacle is not None}
        for name, obstacle in unserved.items():
            if self._unserved.get(name) != obstacle:
                logger.error("%s isn't served: %s", name, obstacle)
        self._unserved = unserved
        return [each for each in self._controllers.values() if self._serves(each)]

    async def _find_obstacle(self, controller: Controller) -> str | None:
        """Wait for a server that answers; return what a kind lacks, None when it can be served."""
        kind = controller.kind
        watched = (watch.resource for row in controller.watches for watch in row)
        resources = dict.fromkeys((kind.resource, *kind.requires, *watched))
        # At once: a leader works on nothing before this, and a server that is ill lets many of them fail.
        found = await asyncio.gather(*map(self._find_obstacle_to_read, resources))
        return next((obstacle for obstacle in found if obstacle is not None), None)

    async def _find_obstacle_to_read(self, resource: Resource) -> str | None:
        for namespace in self._settings.namespaces or (None,):
            try:
                await self._try_to_read(resource, namespace)
            except NotFoundError:
                how = "JobSet" if resource == JOBSETS else "the chart's CRDs"
                return f"the cluster has no {resource}: install {how} first"
            except ForbiddenError as error:
                where = "" if namespace is None else f" in namespace {namespace}"
                return f"{resource} can't be read{where}: grant the chart's rights ({error.message})"
        return None

    async def _try_to_read(self, resource: Resource, namespace: str | None) -> None:
        """Read one object if there is any; raises `NotFoundError` and `ForbiddenError`."""
        while True:
            try:
                async for _ in self._api.list_pages(resource, namespace=namespace, limit=1):
                    break
            except (NotFoundError, ForbiddenError):
                raise
            except ApiError as error:
                logger.warning("%s can't be read; trying again: %s", resource, error)
                await asyncio.sleep(max(START_PAUSE_SECONDS, error.retry_after_seconds or 0.0))
            else:
                return

    # --- probes and metrics -----------------------------------------------------------------------------

    def _describe_readiness(self) -> tuple[bool, str]:
        """Return whether anything is served, or will be by a standby, and what isn't."""
        unserved = [f"{name} isn't served: {obstacle}" for name, obstacle in self._unserved.items()]
        if len(unserved) == len(self._controllers):
            return False, "\n".join(unserved)
        problem = self._scope.overlap if self._started else "starting"
        return problem is None, "\n".join([problem or "ok", *unserved])

    def _describe_problem(self) -> str | None:
        if not self._lease.held():
            return None
        for resource, seconds in self._silent_seconds().items():
            if seconds > SILENCE_LIMIT_SECONDS:
                return f"a watch has been silent for {seconds:.0f} s: that of {resource}"
        return None

    def _silent_seconds(self) -> dict[Resource, float]:
        """Return how long the watches of each resource have been silent at most.

        0 before they are synced, and for nodes that may not be read: a restart would not help.
        """
        silent = dict.fromkeys([each.kind.resource for each in self._controllers.values()], 0.0)
        if self._source is not None:
            silent |= {kind.resource: kind.silent_seconds for kind in self._source.kinds}
        watches = [watch for each in self._controllers.values() for row in each.watches for watch in row]
        silent |= dict.fromkeys([watch.resource for watch in watches], 0.0) | {NODES: 0.0}
        if self._nodes is not None and not self._nodes.refused:
            watches.append(self._nodes)
        for watch in watches:
            if watch.synced.is_set():
                silent[watch.resource] = max(silent[watch.resource], watch.silent_seconds)
        return silent

    def _refresh(self) -> None:
        self._metrics.leading.set(1 if self._lease.held() else 0)
        queued = Counter(key.kind for key in self._queue)
        for name, controller in self._controllers.items():
            self._metrics.unfinished.labels(name).set(len(controller.store))
            self._metrics.queued.labels(name).set(queued[name])
        for resource, seconds in self._silent_seconds().items():
            self._metrics.silent_seconds.labels(str(resource)).set(seconds)


class _StoppedError(Exception):
    """`stop` was called."""


async def _all_synced(watches: Iterable[ListWatch]) -> None:
    for watch in watches:
        await watch.synced.wait()


class PartEndedError(Exception):
    """A task that should have run for as long as the process ended without an error."""


class Parts:
    """Tasks that must all run on; the first that ends, ends whatever is awaited.

    Those that write and those that only watch are kept apart, since at the end the writers must be gone
    before another process may lead, while watchers may take their time.
    """

    def __init__(self) -> None:
        self._writers: list[asyncio.Task[None]] = []
        self._watchers: list[asyncio.Task[None]] = []

    def add_writer(self, part: Coroutine[Any, Any, None], *, name: str) -> None:
        """Start a task that changes something in the cluster."""
        self._writers.append(asyncio.create_task(part, name=name))

    def add_watcher(self, part: Coroutine[Any, Any, None], *, name: str) -> None:
        """Start a task that changes nothing."""
        self._watchers.append(asyncio.create_task(part, name=name))

    async def until(self, awaited: Coroutine[Any, Any, Any]) -> None:
        """Wait for `awaited`; raises the error of a part that ended before."""
        target = asyncio.create_task(awaited)
        try:
            await asyncio.wait([target, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
            self._check()
            target.result()
        finally:
            target.cancel()
            await asyncio.gather(target, return_exceptions=True)

    async def run(self) -> None:
        """Wait until a part ends; raises its error, or `PartEndedError`."""
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        self._check()

    async def end_writers(self) -> None:
        """Cancel what writes; nothing is written any more when this returns."""
        for task in self._writers:
            task.cancel()
        await asyncio.gather(*self._writers, return_exceptions=True)

    async def end_watchers(self) -> None:
        """Cancel the others, and wait for them, but not for long."""
        for task in self._watchers:
            task.cancel()
        if self._watchers:
            await asyncio.wait(self._watchers, timeout=END_SECONDS)

    @property
    def _tasks(self) -> list[asyncio.Task[None]]:
        return [*self._writers, *self._watchers]

    def _check(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()
                raise PartEndedError(f"{task.get_name()} ended")
