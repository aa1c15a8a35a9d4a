"""What an API server is asked, before anything is sent: each verb once, for all clients. Pure.

What a builder's first line promises is what the server does; `fray.kube.errors` are how it refuses.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Concatenate, Final, ParamSpec, TypeVar
from urllib.parse import urlencode

from fray.kube.objects import Manifest, Propagation
from fray.kube.resources import Resource

__all__ = [
    "APPLY_PATCH",
    "WATCH_SECONDS",
    "Request",
    "build_apply",
    "build_create",
    "build_delete",
    "build_get",
    "build_list",
    "build_patch",
    "build_replace",
    "build_watch",
    "sending",
]

WATCH_SECONDS: Final = 300
"""How long the server keeps a watch open; a silent one ends here at the latest."""
STRICT: Final = {"fieldValidation": "Strict"}
"""Else a server drops unknown fields silently."""
JSON: Final = "application/json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
"""A server-side apply, whose YAML may be JSON."""
MERGE_PATCH: Final = "application/merge-patch+json"
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""For what is created or watched: https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches"""
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@dataclass(frozen=True)
class Request:
    """What is asked of an API server.

    Attributes:
        method: GET, POST, PUT, PATCH, DELETE, or WATCH: a GET that is answered by a stream.
        resource: The kind of object that it is about.
        name: The object; empty for a collection.
        namespace: Where that is; None for all namespaces.
        subresource: The part of the object that is meant.
        further: What follows on the path.
        query: Parameters of the path; a list is repeated.
        body: The object that is sent.
        accept: The media type of the answer.
        content_type: The media type of the body.
        packed: Whether the answer may be compressed.
    """

    method: str
    resource: Resource
    name: str = ""
    namespace: str | None = None
    subresource: str = ""
    further: str = ""
    query: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    body: Manifest | None = field(default=None, repr=False)
    accept: str = JSON
    content_type: str = JSON
    packed: bool = True

    def __str__(self) -> str:
        """The method and path, as errors name it."""
        return f"{self.method} {self.path}"

    @property
    def path(self) -> str:
        """The path on the server."""
        path = self.resource.path(namespace=self.namespace, name=self.name, subresource=self.subresource)
        return path + self.further

    @property
    def verb(self) -> str:
        """The method of HTTP."""
        return "GET" if self.method == "WATCH" else self.method

    @property
    def target(self) -> str:
        """The path with the parameters."""
        return self.path + (f"?{urlencode(self.query, doseq=True)}" if self.query else "")

    @property
    def content(self) -> bytes | None:
        """The body as it is sent."""
        return None if self.body is None else json.dumps(self.body).encode()

    @property
    def metadata_only(self) -> bool:
        """Whether nothing but the metadata of objects is to be sent."""
        return "as=PartialObjectMetadata" in self.accept

    @property
    def uid(self) -> str | None:
        """The uid that an object must have to be deleted; None: any."""
        uid: str | None = ((self.body or {}).get("preconditions") or {}).get("uid")
        return uid

    def build_headers(self, authorization: str | None) -> dict[str, str]:
        """Return the headers of the request."""
        headers = {"Accept": self.accept, "Content-Type": self.content_type}
        if not self.packed:
            headers["Accept-Encoding"] = "identity"
        if authorization is not None:
            headers["Authorization"] = authorization
        return headers


P = ParamSpec("P")
T = TypeVar("T")
Client = TypeVar("Client")


def sending(
    build: Callable[P, Request], send: Callable[[Client, Request], T]
) -> Callable[Concatenate[Client, P], T]:
    """Return a client's method that sends a request: its parameters and its promise are the request's."""

    @functools.wraps(build)
    def method(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return send(client, build(*args, **kwargs))

    return method


def build_get(
    resource: Resource, name: str, *, namespace: str | None = None, subresource: str = ""
) -> Request:
    """Ask for an object, or for a subresource of it such as `scale`; refused with `NotFoundError`."""
    return Request("GET", resource, name, namespace, subresource)


def build_list(
    resource: Resource,
    *,
    namespace: str | None = None,
    labels: str = "",
    fields: str = "",
    limit: int = 500,
    metadata_only: bool = False,
) -> Request:
    """Ask for a collection in pages of at most `limit` objects; refused with `ExpiredError` if too slow.

    A page is cut short where its objects are large; the last one has the version to watch from. With
    `metadata_only` nothing but their metadata is sent.
    """
    query = _select(labels, fields, limit=str(limit))
    accept = METADATA_LIST if metadata_only else JSON
    # Not packed: a small piece may hold a hundred megabytes.
    return Request("GET", resource, "", namespace, query=query, accept=accept, packed=False)


def build_watch(  # noqa: PLR0913 - the parameters of a watch, all but the first by keyword
    resource: Resource,
    *,
    resource_version: str,
    namespace: str | None = None,
    labels: str = "",
    fields: str = "",
    metadata_only: bool = False,
    seconds: float = WATCH_SECONDS,
) -> Request:
    """Ask for the changes after a version until the server ends the stream; refused with `ExpiredError`."""
    options = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": resource_version}
    query = _select(labels, fields, **options, timeoutSeconds=str(max(1, math.ceil(seconds))))
    accept = METADATA_ONLY if metadata_only else JSON
    return Request("WATCH", resource, "", namespace, query=query, accept=accept)


def build_create(
    resource: Resource, body: Manifest, *, namespace: str | None = None, metadata_only: bool = False
) -> Request:
    """Create an object, strictly checked; of several callers one succeeds.

    Refused with `AlreadyExistsError` for the others. With `metadata_only` no more than that comes back.
    """
    namespace = namespace or body["metadata"].get("namespace")
    accept = METADATA_ONLY if metadata_only else JSON
    return Request("POST", resource, "", namespace, query=STRICT, body=body, accept=accept)


def build_replace(resource: Resource, body: Manifest, *, subresource: str = "") -> Request:
    """Replace an object of this resourceVersion; refused with `ConflictError` if it has changed.

    One that is gone is a `NotFoundError`, or a `ConflictError` where a PUT may create (Leases).
    """
    metadata = body["metadata"]
    return Request("PUT", resource, metadata["name"], metadata.get("namespace"), subresource, body=body)


def build_patch(
    resource: Resource, name: str, changes: Manifest, *, namespace: str | None = None, subresource: str = ""
) -> Request:
    """Change these fields of an object, or of its `scale` or `status`; None takes a field away.

    With `metadata.resourceVersion` among them only that version, else it is refused with `ConflictError`.
    Refused with `NotFoundError`.
    """
    request = Request("PATCH", resource, name, namespace, subresource, query=STRICT, body=changes)
    return replace(request, content_type=MERGE_PATCH)


def build_apply(resource: Resource, body: Manifest, *, manager: str, namespace: str | None = None) -> Request:
    """Make an object be as `body` says, no matter who set its fields before; strictly checked.

    It is a server-side apply of `manager`: what that has set before and `body` lacks is taken away.
    """
    name, namespace = body["metadata"]["name"], namespace or body["metadata"].get("namespace")
    query = {"fieldManager": manager, "force": "true", **STRICT}
    return Request("PATCH", resource, name, namespace, query=query, body=body, content_type=APPLY_PATCH)


def build_delete(
    resource: Resource,
    name: str,
    *,
    namespace: str | None = None,
    uid: str | None = None,
    resource_version: str | None = None,
    propagation: Propagation = "Background",
) -> Request:
    """Delete an object, only if it still has this uid.

    With a version only if it still is of that one; refused with `ConflictError` if it has changed.
    """
    body: Manifest = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
    wanted = {"uid": uid, "resourceVersion": resource_version}
    if preconditions := {key: value for key, value in wanted.items() if value is not None}:
        body["preconditions"] = preconditions
    return Request("DELETE", resource, name, namespace, body=body)


def _select(labels: str, fields: str, **others: str) -> dict[str, str]:
    """Return the parameters of a request for a collection; those that are empty are left out."""
    query = {**others, "labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in query.items() if value}
