"""A Kubernetes API server in this process, for tests of programs that launch and read jobs."""

from __future__ import annotations

import asyncio
import itertools
import json
import tempfile
import threading
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import unquote

from aiohttp import web

from fray.kube import resources
from fray.kube.api import Manifest
from fray.kube.errors import ApiError, NotFoundError
from fray.kube.request import WATCH_SECONDS, Request
from fray.kube.resources import FRAYJOBS, Resource
from fray.runtime.loop_thread import LoopThread
from fray.testing.memory import Call, MemoryApi, MemoryServer, only_metadata

__all__ = ["FakeCluster"]

T = TypeVar("T")

CLUSTER_WIDE: Final = {
    (each.group, each.version, each.plural): each
    for each in vars(resources).values()
    if isinstance(each, Resource) and not each.namespaced
}
CONTEXT: Final = "fake"
SHUTDOWN_SECONDS: Final = 0.1
LARGEST_BODY: Final = 1 << 24


class FakeCluster:
    """A Kubernetes cluster without pods: it keeps objects, and tests say what becomes of them.

    Use it as a context manager. Programs reach it by its `kubeconfig`, as they reach any cluster; they may be
    in this process or in others. It is held to the same tests as a real API server, over the same HTTP.
    There are no operator, schemas, defaults, rights and quotas, and every namespace exists. What is owned by
    an object goes with it; an object that is deleted in the foreground stays until its finalizer is taken
    away. No pod runs, so there are no logs.

    Its methods may be called from any thread, while programs use it.

    Parameters: the `namespace` of programs that name none.
    """

    def __init__(self, *, namespace: str = "default") -> None:
        self.namespace = namespace
        self.fault: Callable[[Call], ApiError | None] = lambda _: None
        """Returns the error that a call is answered with; None: the call is carried out."""
        # Programs keep what they know of an object by its uid, which no other cluster has given to one.
        self._server = MemoryServer(make_uid=lambda: str(uuid.uuid4()))
        self._server.listeners.append(self._collect)
        app = web.Application(client_max_size=LARGEST_BODY)
        self.add_routes(app.router)
        self._runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_SECONDS)
        self._loop = LoopThread("fray-fake-cluster", on_end=self._runner.cleanup)
        self._open = ExitStack()
        self._thread = 0
        self.url, self.kubeconfig = "", Path()
        """Where it listens, on this machine only, and the file for KUBECONFIG that leads there."""

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            folder = opening.enter_context(tempfile.TemporaryDirectory(prefix="fray-fake-cluster-"))
            opening.callback(self._loop.close)
            self.url, self.kubeconfig = self._loop.run(self._start()), Path(folder, "kubeconfig")
            self.kubeconfig.write_text(json.dumps(self._build_kubeconfig()), encoding="utf-8")
            self._open = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add what answers requests; a subclass may add what comes first."""
        http = _Http(MemoryApi(self._server, before=self._raise_fault))
        router.add_route("*", "/{path:.*}", http.answer)

    @property
    def calls(self) -> list[Call]:
        """The calls of programs so far."""
        return self._ask(lambda: list(self._server.calls))

    def find(self, resource: Resource, name: str, *, namespace: str = "") -> Manifest | None:
        """Return a copy of an object; None where there is none."""
        return self._ask(lambda: self._server.find(resource, name, namespace=namespace or self.namespace))

    def all(self, resource: Resource = FRAYJOBS) -> list[Manifest]:
        """Return copies of all objects of a kind, in the order in which they were created."""
        return self._ask(lambda: self._server.all(resource))

    def store(self, resource: Resource, body: Manifest) -> Manifest:
        """Keep an object as it is, its status too, in the place of one that has its name; return it."""
        metadata = (
            {"namespace": self.namespace, **body["metadata"]} if resource.namespaced else body["metadata"]
        )
        return self._ask(lambda: self._server.store(resource, {**body, "metadata": metadata}))

    def set_status(self, name: str, *, resource: Resource = FRAYJOBS, **status: Any) -> Manifest:
        """Set fields of the status of an object that is there, as an operator does; return it."""

        def change() -> Manifest:
            found = self._server.get(resource, name, self.namespace)
            return self._server.store(resource, {**found, "status": {**found.get("status", {}), **status}})

        return self._ask(change)

    def remove(self, resource: Resource, name: str, *, namespace: str = "") -> None:
        """Take an object away, and what it owns, whatever its finalizers."""
        self._ask(lambda: self._server.remove(resource, name, namespace=namespace or self.namespace))

    def end_watches(self) -> None:
        """End all open watches, as a server does now and then."""
        self._ask(self._server.end_watches)

    def forget_changes(self) -> None:
        """Forget what has changed so far: programs that go on from an earlier version must list again."""
        self._ask(self._server.compact)

    def _ask(self, act: Callable[[], T]) -> T:
        if threading.get_ident() == self._thread:  # of a `fault`
            return act()

        async def on_loop() -> T:
            return act()

        return self._loop.run(on_loop())

    async def _start(self) -> str:
        self._thread = threading.get_ident()
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def _raise_fault(self, call: Call) -> None:
        if (error := self.fault(call)) is not None:
            raise error

    def _collect(self, _: Resource, old: Manifest | None, new: Manifest | None) -> None:
        """Remove what an object owned that is gone, as the garbage collector does."""
        if old is not None and new is None:
            self._server.remove_owned(old["metadata"]["uid"])

    def _build_kubeconfig(self) -> Manifest:
        context = {"cluster": CONTEXT, "user": CONTEXT, "namespace": self.namespace}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": CONTEXT, "cluster": {"server": self.url}}],
            "users": [{"name": CONTEXT, "user": {"token": "fake"}}],
            "contexts": [{"name": CONTEXT, "context": context}],
            "current-context": CONTEXT,
        }


class _Http:
    """The API of Kubernetes over HTTP: https://kubernetes.io/docs/reference/using-api/api-concepts/"""

    def __init__(self, api: MemoryApi) -> None:
        self._api = api
        self._rest: dict[str, tuple[list[Manifest], str]] = {}
        """The rest of each list that is read in pages, and its version, by the word that continues it."""
        self._words = itertools.count(1)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer any request; errors become objects of the kind Status."""
        try:
            asked = await _read_request(request)
            if asked.method == "WATCH":
                return await self._watch(request, asked)
            if asked.method == "GET" and not asked.name:
                return web.json_response(await self._list(asked))
            found = await self._api.ask(asked)
        except ApiError as refused:
            return web.json_response(_build_status(refused), status=refused.status)
        found = only_metadata(found) if asked.metadata_only else _with_kind(asked.resource, found)
        return web.json_response(found, status=201 if request.method == "POST" else 200)

    async def _list(self, asked: Request) -> Manifest:
        limit = int(str(asked.query.get("limit", 0)))
        if (word := asked.query.get("continue")) is not None:
            items, version = self._rest.pop(str(word))
        else:
            items, version = [], ""
            query = {key: value for key, value in asked.query.items() if key != "limit"}
            async for page in self._api.read_list(replace(asked, query=query)):
                items, version = items + page.items, page.resource_version
        metadata = {"resourceVersion": version}
        if limit and len(items) > limit:
            metadata["continue"] = word = str(next(self._words))
            self._rest[word], items = (items[limit:], version), items[:limit]
        return {"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}

    async def _watch(self, request: web.Request, asked: Request) -> web.StreamResponse:
        watch = await self._api.open_watch(asked)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        try:
            await response.prepare(request)
            async with asyncio.timeout(float(request.query.get("timeoutSeconds", WATCH_SECONDS))):
                while (event := await watch.events.get()) is not None:
                    body = _with_kind(asked.resource, event.object)
                    await response.write(json.dumps({"type": event.type, "object": body}).encode() + b"\n")
        except TimeoutError:
            pass  # its time is up, which is no error
        finally:
            self._api.close_watch(watch)
        await response.write_eof()
        return response


async def _read_request(request: web.Request) -> Request:
    """Return what is asked; raises `NotFoundError` for paths that are none of objects."""
    resource, namespace, name, subresource = parse_path(request.path)
    watches = request.method == "GET" and not name and request.query.get("watch") == "true"
    return Request(
        "WATCH" if watches else request.method,
        resource,
        name,
        namespace,
        subresource,
        query=dict(request.query),
        body=await request.json() if request.can_read_body else None,
        accept=request.headers.get("Accept", ""),
        content_type=request.content_type,
    )


def parse_path(path: str) -> tuple[Resource, str | None, str, str]:
    """Return the kind, the namespace, the name and the subresource of a URL's path.

    Raises `NotFoundError` for paths that are none of objects.
    """
    group, namespace = "", None
    match [unquote(part) for part in path.strip("/").split("/")]:
        case ["api", version, *rest] if rest:
            pass
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            raise NotFoundError(path, 404, "", "404 page not found")
    if rest[0] == "namespaces" and len(rest) > 2:
        _, namespace, *rest = rest
    plural, name, subresource, *_ = [*rest, "", ""]
    known = CLUSTER_WIDE.get((group, version, plural)) if namespace is None else None
    return known or Resource(group, version, plural), namespace, name, subresource


def _with_kind(resource: Resource, body: Manifest) -> Manifest:
    """Return an object with its kind; tests may store some that lack it."""
    return body if "kind" in body else {"kind": resource.plural, **body}


def _build_status(error: ApiError) -> Manifest:
    details = {} if error.retry_after_seconds is None else {"retryAfterSeconds": error.retry_after_seconds}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.detail,
        "reason": error.reason,
        "details": details,
        "code": error.status,
    }
