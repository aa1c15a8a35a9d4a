"""Fray's own kinds, as kopf tells of them: the only module that knows kopf.

kopf logs in, lists, watches and connects again. Each event only makes a key due. Nothing else of kopf is
used: change handlers, daemons and timers would write annotations and finalizers to users' objects.

kopf doesn't report the end of a list. After a watch that was too old to go on, it lists again, and doesn't
report the objects that are missing from that list. So after each list of kopf's the kind is listed once
more here: then all are known, and those that are gone are dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping
from dataclasses import replace
from typing import Any

import aiohttp
import kopf

# The type of a parameter of `kopf.spawn_tasks`, of which kopf offers no name.
from kopf._cogs.structs.references import Insights

from fray.kube.api import KubeApi, Manifest
from fray.kube.client import (
    REQUEST_SECONDS,
    WATCH_GRACE_SECONDS,
    WATCH_SECONDS,
    WATCH_SILENCE_SECONDS,
)
from fray.kube.errors import ApiError
from fray.kube.resources import Resource
from fray_operator.kinds import Controller, Key
from fray_operator.list_watch import PAGE, place_of
from fray_operator.queue import WorkQueue
from fray_operator.settings import OperatorSettings

__all__ = ["Source", "UnwatchedKindError", "WatchedKind"]

logger = logging.getLogger(__name__)

LISTED_AT_ONCE = 10
"""Objects to a page of kopf's list."""
RETRY_SECONDS = 2.0
"""Between two attempts to read a list."""


class UnwatchedKindError(Exception):
    """kopf didn't find a kind when it started."""


class WatchedKind:
    """Keeps the store of a kind like the server's, and makes a pass due for each object that changes."""

    def __init__(
        self, api: KubeApi, queue: WorkQueue[Key], controller: Controller, namespaces: tuple[str, ...]
    ) -> None:
        self._api, self._queue, self._store = api, queue, controller.store
        self._kind, self.resource = controller.kind, controller.kind.resource
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._to_read: asyncio.Queue[str | None] = asyncio.Queue()
        """Namespaces that kopf has listed, None for all of them, and that weren't read here since."""
        self._read: set[str | None] = set()
        """Those that were read at least once."""
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
        self._paths = tuple(self.resource.path(namespace=each) for each in self._namespaces)

    @property
    def silent_seconds(self) -> float:
        """How long kopf has neither asked for the kind nor seen an object, at most since it was told to.

        It asks anew whenever a watch ends.
        """
        return self._loop.time() - self._heard_at

    async def on_event(self, event: Mapping[str, Any], **_: Any) -> None:
        """Take what kopf tells of an object; None is the type of one that was listed."""
        self._heard_at = self._loop.time()
        manifest = dict(event["object"])
        place = place_of(manifest)
        key = self._kind.key(place)
        if event["type"] == "DELETED":
            self._store.discard(place, uid=manifest["metadata"]["uid"])
            self._queue.forget(key)
            # One more pass, for events of it that could not be sent yet, and for what nobody collects.
            self._queue.add(key)
        elif self._store.put(manifest):
            self._queue.add(key)

    def note_request(self, path: str) -> None:
        """Note that kopf lists or watches; it asks anew whenever a watch ends."""
        if path.endswith(self._paths):
            self._heard_at = self._loop.time()

    def note_answer(self, path: str, query: Container[str]) -> None:
        """Note the first page of a list: all its pages are of one version, and kopf watches from there.

        It won't report what was deleted before.
        """
        if "watch" not in query and "continue" not in query:
            for listed, namespace in zip(self._paths, self._namespaces, strict=True):
                if path.endswith(listed):
                    self._store.complete.clear()
                    self._to_read.put_nowait(namespace)

    async def read_lists(self) -> None:
        """List for ever what kopf has listed."""
        while True:
            namespace = await self._to_read.get()
            try:
                await self._store.learn(namespace, self._list(namespace))
            except ApiError as error:
                logger.warning("%s can't be listed; trying again: %s", self.resource, error)
                await asyncio.sleep(max(RETRY_SECONDS, error.retry_after_seconds or 0.0))
                self._to_read.put_nowait(namespace)
                continue
            if namespace in self._read:
                self._store.look_at_relatives()
            self._read.add(namespace)
            if self._to_read.empty() and len(self._read) == len(self._namespaces):
                self._store.complete.set()

    async def _list(self, namespace: str | None) -> AsyncIterator[Manifest]:
        async for page in self._api.list_pages(self.resource, namespace=namespace, limit=PAGE):
            for manifest in page.items:
                yield manifest


class Source:
    """Has kopf watch kinds. `claim_signals` is called once kopf has taken SIGTERM and SIGINT for itself."""

    def __init__(
        self,
        api: KubeApi,
        queue: WorkQueue[Key],
        controllers: Iterable[Controller],
        settings: OperatorSettings,
        *,
        claim_signals: Callable[[], None],
    ) -> None:
        self._settings, self._claim_signals = settings, claim_signals
        self.kinds = [WatchedKind(api, queue, each, settings.namespaces) for each in controllers]
        self._session: tuple[kopf.ConnectionInfo, kopf.AiohttpSession] | None = None
        self._registry = kopf.OperatorRegistry()
        kopf.on.login(registry=self._registry)(self._log_in)
        for kind in self.kinds:
            where = kind.resource
            kopf.on.event(where.group, where.version, where.plural, registry=self._registry)(kind.on_event)

    async def run(self) -> None:
        """Watch until cancelled; raises `UnwatchedKindError`, and what kopf gives up on."""
        logging.getLogger("kopf").setLevel(logging.WARNING)
        # Or kopf asks the system for the user's name, which a container's user has none of.
        identity: Any = self._settings.pod_name
        insights = Insights()
        # Not `kopf.operator`: at its end that cancels every task of the process that began after it.
        spawned = await kopf.spawn_tasks(
            registry=self._registry,
            settings=_build_settings(),
            identity=identity,
            standalone=True,
            clusterwide=not self._settings.namespaces,
            namespaces=self._settings.namespaces,
            insights=insights,
        )
        self._claim_signals()
        tasks = [*spawned, *(asyncio.create_task(kind.read_lists()) for kind in self.kinds)]
        looked = asyncio.create_task(insights.ready_resources.wait())
        try:
            await asyncio.wait([looked, *tasks], return_when=asyncio.FIRST_COMPLETED)
            if looked.done():
                self._check_found(insights.watched_resources)
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            for task in (looked, *tasks):
                task.cancel()
            await asyncio.gather(looked, *tasks, return_exceptions=True)

    def _check_found(self, watched: Iterable[kopf.Resource]) -> None:
        """Raise `UnwatchedKindError` for a kind that isn't watched: kopf looks once what the server has."""
        found = {Resource(each.group, each.version, each.plural) for each in watched}
        missing = [str(kind.resource) for kind in self.kinds if kind.resource not in found]
        if missing:
            raise UnwatchedKindError(f"kopf doesn't watch {', '.join(missing)}, which it didn't find")

    # --- log-in -----------------------------------------------------------------------------------------

    async def _log_in(self, **kwargs: Any) -> kopf.AiohttpSession | None:
        """Return a session that notes kopf's requests, which it tells nobody of.

        For the same credentials it is the same: kopf must recognise those that were refused.
        """
        found = self._find_connection(**kwargs)
        if found is None:
            return None
        if self._session is None or self._session[0] != found:
            self._session = found, self._build_session(found)
        return self._session[1]

    def _find_connection(self, **kwargs: Any) -> kopf.ConnectionInfo | None:
        """Reach the server where all other requests go: kopf's own address for pods needs DNS."""
        account = kopf.login_with_service_account(**kwargs)
        if account is None:
            return kopf.login_with_kubeconfig(**kwargs)
        return replace(account, server=self._settings.api_server or account.server)

    def _build_session(self, found: kopf.ConnectionInfo) -> kopf.AiohttpSession:
        trace = aiohttp.TraceConfig()

        async def note_request(_session: Any, _context: Any, sent: aiohttp.TraceRequestStartParams) -> None:
            for kind in self.kinds:
                kind.note_request(sent.url.path)

        async def note_answer(_session: Any, _context: Any, answered: aiohttp.TraceRequestEndParams) -> None:
            for kind in self.kinds if answered.response.ok else ():
                kind.note_answer(answered.url.path, answered.url.query)

        trace.on_request_start.append(note_request)
        trace.on_request_end.append(note_answer)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=found.as_ssl_context()),
            headers=found.as_http_headers(),
            proxy=found.proxy_url,
            trust_env=found.trust_env,
            trace_configs=[trace],
        )
        return kopf.AiohttpSession(
            server=found.server,
            default_namespace=found.default_namespace,
            priority=found.priority,
            expiration=found.expiration,
            aiohttp_session=session,
        )


def _build_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    # Only kinds that were found are watched, so there is nothing to scan for; scanning needs cluster rights.
    settings.scanning.disabled = True
    # Each object seen has a task for so long, which holds it; thousands arrive when the process starts.
    settings.queueing.idle_timeout = 0.05
    # kopf reads a page at once, and an object may be as large as etcd takes: 1.5 MiB.
    settings.watching.chunk_size = LISTED_AT_ONCE
    # Nobody asks what has changed about a job, and to find out costs as much as all else about an event.
    settings.persistence.diffbase_storage = _NoDiffs([])
    settings.persistence.progress_storage = kopf.MultiProgressStorage([])
    # At the end nothing is worked on any more: what is left of kopf's events needs no time.
    settings.queueing.exit_timeout = 0.2
    # kopf would kill the whole process some time after its end; in tests it isn't the whole process.
    settings.process.ultimate_exiting_timeout = None
    settings.networking.request_timeout = REQUEST_SECONDS
    settings.watching.server_timeout = WATCH_SECONDS
    settings.watching.client_timeout = WATCH_SECONDS + WATCH_GRACE_SECONDS
    settings.watching.inactivity_timeout = WATCH_SILENCE_SECONDS
    return settings


class _NoDiffs(kopf.MultiDiffBaseStorage):
    """Takes nothing of an object to compare it by: kopf would copy all of it at each event."""

    def build(self, **_: Any) -> Any:
        return {}
