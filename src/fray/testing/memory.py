"""An API server in memory, as far as Fray uses one; a test can hold up every call of its clients.

It is held to the same contract tests as a real one. It knows no schemas, defaults, rights or quotas, every
namespace exists, and nothing collects garbage. Manifests are JSON.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self, TypeVar, cast

from fray.kube.api import KubeApi, Manifest, Page, Propagation, WatchEvent
from fray.kube.errors import AlreadyExistsError, ConflictError, ExpiredError, NotFoundError, RefusedError
from fray.kube.request import APPLY_PATCH, Request
from fray.kube.resources import (
    CONFIG_MAPS,
    CRDS,
    EVENTS,
    FRAYACTORS,
    FRAYJOBS,
    JOBS,
    JOBSETS,
    LEASES,
    NETWORK_POLICIES,
    NODES,
    PODS,
    SECRETS,
    Resource,
)

__all__ = ["Call", "Listener", "MemoryApi", "MemoryServer", "Watch"]

Result = TypeVar("Result")

STATELESS = frozenset({CONFIG_MAPS, EVENTS, LEASES, NETWORK_POLICIES, SECRETS})
"""Kinds without a status of their own; the others' can be written by the subresource only."""
SERVED = STATELESS | {CRDS, FRAYACTORS, FRAYJOBS, JOBS, JOBSETS, NODES, PODS}
SELECTABLE = {
    EVENTS: frozenset({"involvedObject.kind", "involvedObject.name", "reason"}),
    PODS: frozenset({"spec.nodeName", "status.phase"}),
}
"""Fields that can be selected by, beside name and namespace."""
FINALIZERS = {"Foreground": ["foregroundDeletion"], "Orphan": ["orphan"], "Background": []}
KEPT_METADATA = ("uid", "creationTimestamp", "deletionTimestamp", "generation")
"""The server's own: what a client writes there is not taken."""


@dataclass(frozen=True)
class Call:
    """One call: GET, LIST, WATCH, POST, PUT, PATCH or DELETE."""

    method: str
    resource: Resource
    name: str

    @classmethod
    def of(cls, request: Request) -> Self:
        """Return the call by which a request is known."""
        name = request.name or ((request.body or {}).get("metadata") or {}).get("name", "")
        return cls("LIST" if request.method == "GET" and not name else request.method, request.resource, name)


Around = Callable[[Call], Awaitable[None]]
Listener = Callable[[Resource, Manifest | None, Manifest | None], None]
"""Is told of a resource what there was and what there is, None where there is nothing."""
_Place = tuple[Resource, str, str]


async def _nothing(_: Call) -> None:
    return None


@dataclass(frozen=True)
class _Change:
    version: int
    resource: Resource
    old: Manifest | None
    new: Manifest | None


@dataclass(frozen=True)
class Selection:
    """What a list or a watch is about."""

    resource: Resource
    namespace: str | None
    labels: str = ""
    fields: str = ""
    metadata_only: bool = False

    @classmethod
    def of(cls, request: Request) -> Self:
        """Return what a request for a collection, or for its changes, is about."""
        labels, fields = (str(request.query.get(f"{each}Selector", "")) for each in ("label", "field"))
        return cls(request.resource, request.namespace, labels, fields, request.metadata_only)

    def __post_init__(self) -> None:
        known = SELECTABLE.get(self.resource, frozenset()) | {"metadata.name", "metadata.namespace"}
        for path, _, _ in _field_terms(self.fields):
            if path not in known:
                raise RefusedError(str(self.resource), 400, "BadRequest", f"no field selector: {path}")

    def holds(self, resource: Resource, body: Manifest) -> bool:
        """Return whether an object is selected."""
        if resource != self.resource or self.namespace not in (None, body["metadata"].get("namespace")):
            return False
        labels = body["metadata"].get("labels") or {}
        return all(
            key in labels and value in (None, labels[key]) for key, value in _terms(self.labels)
        ) and all(
            ((_at(body, path) or "") == value) is equal for path, value, equal in _field_terms(self.fields)
        )

    def show(self, body: Manifest) -> Manifest:
        """Return a copy of as much of an object as is asked for."""
        return _copy(only_metadata(body) if self.metadata_only else body)

    def event(self, change: _Change) -> WatchEvent | None:
        """Return what a watch tells of a change; an object that is no longer selected is as good as gone."""
        was = change.old is not None and self.holds(change.resource, change.old)
        if change.new is not None and self.holds(change.resource, change.new):
            return WatchEvent("MODIFIED" if was else "ADDED", self.show(change.new))
        if change.old is None or not was:
            return None
        gone = self.show(change.old)
        gone["metadata"]["resourceVersion"] = str(change.version)
        return WatchEvent("DELETED", gone)


@dataclass(eq=False)
class Watch:
    """An open watch: what it is about, and what it has yet to tell."""

    selection: Selection
    events: asyncio.Queue[WatchEvent | None] = field(default_factory=asyncio.Queue)
    """None is its end."""

    def tell(self, change: _Change) -> None:
        """Put what it tells of a change behind what it has yet to tell."""
        event = self.selection.event(change)
        if event is not None:
            self.events.put_nowait(event)


class MemoryServer:
    """The objects, with uids and resource versions; `calls` are those that arrived.

    `clock` returns the time that the server puts on objects, and `make_uid` the uid of a new one; else each
    has the same uids in each server.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        make_uid: Callable[[], str] | None = None,
    ) -> None:
        numbers = itertools.count(1)
        self._version, self._clock = 0, clock
        self._make_uid = make_uid or (lambda: f"uid-{next(numbers)}")
        self._objects: dict[_Place, Manifest] = {}
        self._history: list[_Change] = []
        self._compacted = 0
        # In the order in which they were opened: what happens first must not depend on chance.
        self._watches: dict[Watch, None] = {}
        self.calls: list[Call] = []
        self.listeners: list[Listener] = []
        """Told of each change as it is made; what they are given isn't theirs to change."""

    @property
    def version(self) -> str:
        """The resource version of the last change."""
        return str(self._version)

    @property
    def writes(self) -> list[Call]:
        """The calls that were to change something."""
        return [call for call in self.calls if call.method not in ("GET", "LIST", "WATCH")]

    def find(self, resource: Resource, name: str, *, namespace: str = "default") -> Manifest | None:
        """Return a copy of an object, or None."""
        return _copy(self._objects.get(_place(resource, name, namespace)))

    def all(self, resource: Resource) -> list[Manifest]:
        """Return copies of all objects of a kind, as they were made."""
        return [_copy(found) for (kind, _, _), found in self._objects.items() if kind == resource]

    def look(self, resource: Resource, *, label: tuple[str, str] | None = None) -> list[Manifest]:
        """Return all objects of a kind that have a label, not copied: to be looked at only."""
        found = [body for (kind, _, _), body in self._objects.items() if kind == resource]
        if label is None:
            return found
        key, value = label
        return [body for body in found if body["metadata"].get("labels", {}).get(key) == value]

    def store(self, resource: Resource, body: Manifest) -> Manifest:
        """Keep an object as it is, its status too, as a new one if there is none of its name."""
        body = _copy(body)
        metadata = body["metadata"]
        if resource.namespaced:
            metadata.setdefault("namespace", "default")
        place = _place(resource, metadata["name"], metadata.get("namespace"))
        known = self._objects.get(place)
        metadata["uid"] = known["metadata"]["uid"] if known is not None else self._make_uid()
        metadata.setdefault("creationTimestamp", self._now())
        return self._commit(place, body)

    def serves(self, resource: Resource) -> bool:
        """Return whether this server knows a kind: Kueue's only where there are objects of it."""
        return resource in SERVED or any(place[0] == resource for place in self._objects)

    def remove(self, resource: Resource, name: str, *, namespace: str = "default") -> None:
        """Drop an object, whatever its finalizers."""
        self._drop(_place(resource, name, namespace))

    def remove_owned(self, uid: str) -> None:
        """Drop what an object of this uid owns."""
        for place, body in list(self._objects.items()):
            if any(each["uid"] == uid for each in body["metadata"].get("ownerReferences") or ()):
                self._drop(place)

    def compact(self) -> None:
        """Forget all changes so far: who wants to go on from an earlier version must list again."""
        self._history.clear()
        self._compacted = self._version

    def end_watches(self) -> None:
        """End all watches as a server does in the end: with a bookmark."""
        for watch in self._watches:
            bookmark = {"metadata": {"resourceVersion": str(self._version)}}
            watch.events.put_nowait(WatchEvent("BOOKMARK", bookmark))
            watch.events.put_nowait(None)

    def answer(self, request: Request) -> Manifest:
        """Do what a client asks of an object, and return what it gets."""
        resource, name, namespace = request.resource, request.name, request.namespace
        part, body = request.subresource, request.body or {}
        match request.method:
            case "GET":
                return self.get(resource, name, namespace, part)
            case "POST":
                return self.create(resource, body, namespace)
            case "PUT":
                return self.replace(resource, body, part)
            case "PATCH" if request.content_type == APPLY_PATCH:
                return self.apply(resource, body, namespace)
            case "PATCH":
                return self.patch(resource, name, namespace, body, part)
            case _:
                how: Propagation = body.get("propagationPolicy") or "Background"
                version = (body.get("preconditions") or {}).get("resourceVersion")
                self.delete(
                    resource, name, namespace, uid=request.uid, resource_version=version, propagation=how
                )
                return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def get(self, resource: Resource, name: str, namespace: str | None, subresource: str = "") -> Manifest:
        """Return an object as a client gets it, or its scale."""
        found = self._require("GET", _place(resource, name, namespace))
        return _build_scale(resource, found) if subresource == "scale" else _copy(found)

    def select(self, request: Request) -> tuple[list[Manifest], str]:
        """Return what there is, by namespace and name, and of which version that is."""
        selection = Selection.of(request)
        found = sorted(
            (place[1:], body) for place, body in self._objects.items() if selection.holds(place[0], body)
        )
        return [selection.show(body) for _, body in found], str(self._version)

    def open_watch(self, request: Request) -> Watch:
        """Return a watch that holds what changed after a version."""
        selection, since = Selection.of(request), int(str(request.query.get("resourceVersion", "0")))
        if since < self._compacted:
            raise ExpiredError(f"WATCH {selection.resource}", 410, "Expired", "too old resource version")
        watch = Watch(selection)
        # Each change made the next version.
        for change in self._history[since - self._compacted :]:
            watch.tell(change)
        self._watches[watch] = None
        return watch

    def close_watch(self, watch: Watch) -> None:
        """Forget a watch."""
        self._watches.pop(watch, None)

    def create(self, resource: Resource, body: Manifest, namespace: str | None) -> Manifest:
        """Create an object as a client does."""
        request = f"POST {resource}"
        body = _copy(body)
        metadata = body["metadata"]
        namespace = namespace or metadata.get("namespace")
        if resource.namespaced:
            if namespace is None:
                raise RefusedError(request, 405, "MethodNotAllowed", "a namespace is needed")
            if metadata.setdefault("namespace", namespace) != namespace:
                raise RefusedError(request, 400, "BadRequest", "the namespaces differ")
        place = _place(resource, metadata["name"], namespace)
        if place in self._objects:
            raise AlreadyExistsError(request, 409, "AlreadyExists", f"{metadata['name']} already exists")
        for key in (*KEPT_METADATA, "resourceVersion"):
            metadata.pop(key, None)
        if resource not in STATELESS:
            metadata["generation"] = 1
            body.pop("status", None)
        return self.store(resource, body)

    def replace(self, resource: Resource, body: Manifest, subresource: str) -> Manifest:
        """Put a client's object, or its status, in the place of the one that it has read."""
        request = f"PUT {resource}"
        metadata = body["metadata"]
        place = _place(resource, metadata["name"], metadata.get("namespace"))
        if place not in self._objects and resource == LEASES and "uid" in metadata:
            # A PUT can create a Lease, but not with this uid.
            raise ConflictError(request, 409, "Conflict", "UID in precondition: some, in object: none")
        known = self._require("PUT", place)
        if not metadata.get("resourceVersion"):
            raise RefusedError(request, 422, "Invalid", "metadata.resourceVersion: must be specified")
        same = metadata["resourceVersion"] == known["metadata"]["resourceVersion"]
        if not same or metadata.get("uid", known["metadata"]["uid"]) != known["metadata"]["uid"]:
            raise ConflictError(request, 409, "Conflict", "the object has been modified")
        new = _merge(resource, known, _copy(body), subresource)
        if new == known:
            return _copy(known)  # a write that changes nothing makes no version
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            self._drop(place)
            return new
        return self._commit(place, new)

    def patch(
        self, resource: Resource, name: str, namespace: str | None, changes: Manifest, subresource: str
    ) -> Manifest:
        """Change fields of an object, its status or its scale, as a merge patch does."""
        known = self._require("PATCH", _place(resource, name, namespace))
        if subresource == "scale":
            spec = {"workers": changes["spec"]} if resource == FRAYJOBS else changes["spec"]
            new = _merge_patch(known, {"metadata": changes.get("metadata", {}), "spec": spec})
            return _build_scale(resource, self.replace(resource, new, ""))
        return self.replace(resource, _merge_patch(known, changes), subresource)

    def apply(self, resource: Resource, body: Manifest, namespace: str | None) -> Manifest:
        """Create an object, or set these fields of it; fields that are left out stay."""
        name, namespace = body["metadata"]["name"], namespace or body["metadata"].get("namespace")
        if _place(resource, name, namespace) not in self._objects:
            return self.create(resource, body, namespace)
        return self.patch(resource, name, namespace, body, "")

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        *,
        uid: str | None,
        resource_version: str | None = None,
        propagation: Propagation,
    ) -> None:
        """Delete a client's object; one with finalizers stays until they are gone."""
        place = _place(resource, name, namespace)
        known = self._objects.get(place)
        if known is None or uid not in (None, known["metadata"]["uid"]):
            return
        if resource_version not in (None, known["metadata"]["resourceVersion"]):
            raise ConflictError(f"DELETE {resource}", 409, "Conflict", "the object has been modified")
        own = {"foregroundDeletion", "orphan"}
        others = [name for name in known["metadata"].get("finalizers") or [] if name not in own]
        finalizers = others + FINALIZERS[propagation]
        if not finalizers:
            self._drop(place)
            return
        new = _copy(known)
        new["metadata"] |= {"finalizers": finalizers}
        new["metadata"].setdefault("deletionTimestamp", self._now())
        if new != known:
            self._commit(place, new)

    def _require(self, method: str, place: _Place) -> Manifest:
        resource, namespace, name = place
        found = self._objects.get(place)
        if found is None:
            raise NotFoundError(f"{method} {resource}", 404, "NotFound", f"{namespace}/{name} not found")
        return found

    def _commit(self, place: _Place, body: Manifest) -> Manifest:
        body["metadata"]["resourceVersion"] = str(self._version + 1)
        old = self._objects.get(place)
        self._objects[place] = body
        self._tell(place[0], old, body)
        return _copy(body)

    def _drop(self, place: _Place) -> None:
        self._tell(place[0], self._objects.pop(place), None)

    def _tell(self, resource: Resource, old: Manifest | None, new: Manifest | None) -> None:
        self._version += 1
        change = _Change(self._version, resource, old, new)
        self._history.append(change)
        for watch in self._watches:
            watch.tell(change)
        for listener in self.listeners:
            listener(resource, old, new)

    def _now(self) -> str:
        return self._clock().isoformat(timespec="seconds").replace("+00:00", "Z")


class MemoryApi(KubeApi):
    """A client of the server. `before` and `after` are awaited around what the server does for each call."""

    def __init__(self, server: MemoryServer, *, before: Around = _nothing, after: Around = _nothing) -> None:
        self._server, self.before, self.after = server, before, after

    async def ask(self, request: Request) -> Manifest:
        """Return the object that answers a request; see `KubeApi`."""
        return await self._call(request, lambda: self._server.answer(request))

    async def read_list(self, request: Request) -> AsyncIterator[Page]:
        """Yield what is selected, all of one version, in pages; see `KubeApi`."""
        items, version = await self._call(request, lambda: self._server.select(request))
        limit = int(str(request.query.get("limit", max(1, len(items)))))
        # All pages are of the version of the first.
        yield Page(items[:limit], version)
        for start in range(limit, len(items), limit):
            page = functools.partial(Page, items[start : start + limit], version)
            yield await self._call(request, page)

    async def follow(self, request: Request) -> AsyncIterator[WatchEvent]:
        """Yield what changes after a version, until the server ends the watches."""
        watch = await self.open_watch(request)
        try:
            while (event := await watch.events.get()) is not None:
                yield event
        finally:
            self.close_watch(watch)

    async def open_watch(self, request: Request) -> Watch:
        """Return a watch that is open, which its caller closes."""
        return await self._call(request, lambda: self._server.open_watch(request))

    def close_watch(self, watch: Watch) -> None:
        """Forget a watch."""
        self._server.close_watch(watch)

    async def read_log(self, pod: str, *, namespace: str, container: str, tail_lines: int) -> str:
        """Raise NotImplementedError: there are no logs."""
        raise NotImplementedError

    async def _call(self, request: Request, act: Callable[[], Result]) -> Result:
        call = Call.of(request)
        await self.before(call)
        self._server.calls.append(call)
        try:
            if not self._server.serves(request.resource):
                raise NotFoundError(f"{call.method} {call.resource}", 404, "", "404 page not found")
            return act()
        finally:
            await self.after(call)


def _build_scale(resource: Resource, body: Manifest) -> Manifest:
    """Return the scale of an object: how many replicas it asks for, where it says so."""
    spec = body["spec"].get("workers", {}) if resource == FRAYJOBS else body["spec"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    metadata = {key: body["metadata"][key] for key in kept if key in body["metadata"]}
    wanted = {key: value for key, value in spec.items() if key == "replicas"}
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": wanted}


def _merge_patch(known: Any, changes: Any) -> Any:
    """Return a copy with the changes of a merge patch: https://www.rfc-editor.org/rfc/rfc7396"""
    if not isinstance(changes, dict):
        return _copy(changes)
    merged = _copy(known) if isinstance(known, dict) else {}
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_patch(merged.get(key), value)
    return merged


def _merge(resource: Resource, known: Manifest, body: Manifest, subresource: str) -> Manifest:
    """Return what a PUT makes of an object: the status, or all but the status and the server's own."""
    if subresource == "status":
        return {**known, "metadata": dict(known["metadata"]), "status": body.get("status", {})}
    kept = {key: known["metadata"][key] for key in KEPT_METADATA if key in known["metadata"]}
    metadata = {key: value for key, value in body["metadata"].items() if key not in KEPT_METADATA}
    new = {**body, "metadata": {**metadata, **kept}}
    if resource in STATELESS:
        return new
    new.pop("status", None)
    if "status" in known:
        new["status"] = known["status"]
    if new.get("spec") != known.get("spec"):
        new["metadata"]["generation"] = new["metadata"].get("generation", 0) + 1
    return new


def only_metadata(body: Manifest) -> Manifest:
    return {"kind": "PartialObjectMetadata", "metadata": body["metadata"]}


def _place(resource: Resource, name: str, namespace: str | None) -> _Place:
    # Without its namespace nothing is found.
    return resource, (namespace or "") if resource.namespaced else "", name


def _terms(selector: str) -> Iterator[tuple[str, str | None]]:
    """Yield the terms of a selector, `key` or `key=value`: what the operator uses."""
    for term in selector.split(",") if selector else ():
        if any(sign in term for sign in "!() "):
            raise NotImplementedError(f"this server doesn't know the selector {selector!r}")
        key, equals, value = term.partition("=")
        yield key, value if equals else None


def _field_terms(selector: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the terms of a selector of fields, `path=value` or `path!=value`, and whether they are equal."""
    for term in selector.split(",") if selector else ():
        path, _, value = term.partition("=")
        yield path.removesuffix("!"), value, not path.endswith("!")


def _at(body: Manifest, path: str) -> Any:
    found: Any = body
    for part in path.split("."):
        found = (found or {}).get(part)
    return found


def _copy(value: Result) -> Result:
    """Return a copy of a manifest: an order of magnitude faster than one of anything."""
    copied: object = value
    if isinstance(value, dict):
        copied = {key: _copy(item) for key, item in value.items()}
    elif isinstance(value, list):
        copied = [_copy(item) for item in value]
    return cast("Result", copied)
