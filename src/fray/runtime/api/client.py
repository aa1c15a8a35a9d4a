"""A small client of the API server for code in pods: synchronous, for any thread, standard library only.

It does what `fray.kube.client` does for programs that may install packages, and keeps the same contract.
Each request has a connection of its own, so nothing is shared between threads, and the token and the
authority are read for each: the kubelet writes new ones while a pod runs.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlencode, urlsplit

from fray.backoff import Backoff
from fray.kube.errors import (
    ApiError,
    ConflictError,
    NotFoundError,
    ServerError,
    ThrottledError,
    UnauthorizedError,
    UnreachableError,
    read_api_error,
)
from fray.kube.objects import (
    Manifest,
    Page,
    Propagation,
    WatchEvent,
    build_delete_options,
    build_query,
    build_watch_query,
    parse_event,
    parse_object,
)
from fray.kube.resources import Resource

if (
    TYPE_CHECKING
):  # imported where it's used: it takes longer than all else here, and most processes ask nothing
    import http.client

__all__ = ["BACKOFF", "ApiAccess", "ApiClient", "ObjectApi"]

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/"""
REQUEST_SECONDS: Final = 5.0
"""How long each step of a request may take."""
BACKOFF: Final = Backoff(0.8, 1.6, tries=2, longest_asked=5.0)
"""A pod that is being ended may have no more than 15 s. Who is asked to pause for longer learns it."""
WATCH_SECONDS: Final = 300.0
"""How long a watch is kept open."""
WATCH_GRACE_SECONDS: Final = 15.0
"""A server that doesn't end a watch in time is left so much later."""
WATCH_SILENCE_SECONDS: Final = 90.0
"""A watch that is silent for so long is dead: the server sends a bookmark every minute."""
JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"


@dataclass(frozen=True)
class ApiAccess:
    """An API server as a pod sees it: its `url`, the pod's `namespace` and the file with its token.

    `authority` is the file with the certificate that the server is known by; None: the system's.
    """

    url: str
    namespace: str
    token_file: Path
    authority: Path | None = None

    @classmethod
    def in_pod(cls, environ: Mapping[str, str], directory: Path = SERVICE_ACCOUNT) -> ApiAccess | None:
        """Return that of this pod; None outside of pods, and in those without a service account's token."""
        host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
        try:
            namespace = (directory / "namespace").read_text(encoding="utf-8").strip()
        except OSError:
            return None
        if not host or not (directory / "token").exists():
            return None
        address = f"[{host}]" if ":" in host else host
        return cls(f"https://{address}:{port}", namespace, directory / "token", directory / "ca.crt")


class ObjectApi(Protocol):
    """What is asked of an API server about actors, in pods by `ApiClient`; all raise `ApiError`."""

    @property
    def namespace(self) -> str:
        """Where the actors are."""
        ...

    def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Manifest:
        """Return an object; raises `NotFoundError`."""
        ...

    def create(
        self, resource: Resource, body: Manifest, *, namespace: str | None = None, repeat: bool = False
    ) -> Manifest:
        """Create an object; of several callers one succeeds. See `ApiClient.create`."""
        ...

    def delete(
        self, resource: Resource, name: str, *, namespace: str | None = None, uid: str | None = None
    ) -> None:
        """Delete an object, only if it still has this uid; one that is gone already is fine."""
        ...


class ApiClient:
    """Typed access to objects; every method raises `fray.kube.errors.ApiError` when refused.

    What is safe to repeat is tried again after a silent, busy or failed server: all but `create` and
    `replace`, which are repeated only where the server certainly hasn't carried them out.

    Parameters: `access` to the server; `seconds` that each step of a request may take; `pause` sleeps.
    """

    def __init__(
        self,
        access: ApiAccess,
        *,
        seconds: float = REQUEST_SECONDS,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._access, self._seconds, self._pause = access, seconds, pause

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return self._access.namespace

    def get(
        self, resource: Resource, name: str, *, namespace: str | None = None, subresource: str = ""
    ) -> Manifest:
        """Return an object, or a subresource of it such as `scale`; raises `NotFoundError`."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return self._ask("GET", path, repeat=True)

    def list_pages(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        limit: int = 500,
    ) -> Iterator[Page]:
        """Yield a collection in pages of at most `limit` objects; raises `ExpiredError` if too slow.

        The last page has the version to watch from.
        """
        query = build_query(labels, fields, limit=str(limit))
        path = resource.path(namespace=namespace)
        while True:
            answer = self._ask("GET", path, query=query, repeat=True)
            metadata = answer.get("metadata") or {}
            yield Page(answer.get("items") or [], metadata.get("resourceVersion", ""))
            query["continue"] = metadata.get("continue") or ""
            if not query["continue"]:
                return

    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        seconds: float = WATCH_SECONDS,
    ) -> Iterator[WatchEvent]:
        """Yield changes after a version until the time is up; raises `ExpiredError`.

        A server that is silent, or doesn't end the stream, ends it as an `UnreachableError`.
        """
        query = build_watch_query(labels, fields, resource_version=resource_version, seconds=seconds)
        path = resource.path(namespace=namespace)
        request, silence = f"WATCH {path}", min(WATCH_SILENCE_SECONDS, seconds + WATCH_GRACE_SECONDS)
        end = time.monotonic() + seconds + WATCH_GRACE_SECONDS
        with self._open(request, path, query=query, silence=silence) as response:
            for line in iter(response.readline, b""):
                try:
                    event = parse_event(request, line)
                except ValueError as cut:
                    raise UnreachableError(request, 0, type(cut).__name__, str(cut)) from cut
                yield event
                if time.monotonic() > end:
                    raise UnreachableError(request, 0, "TimeoutError", "the server doesn't end the watch")

    def create(
        self, resource: Resource, body: Manifest, *, namespace: str | None = None, repeat: bool = False
    ) -> Manifest:
        """Create an object, strictly checked; of several callers one succeeds.

        With `repeat` it is tried again although an earlier try may have been carried out: an
        `AlreadyExistsError` may then come from that one.

        Raises `AlreadyExistsError` for the others.
        """
        path = resource.path(namespace=namespace or body["metadata"].get("namespace"))
        # Plain create drops unknown fields silently.
        return self._ask("POST", path, body=body, query={"fieldValidation": "Strict"}, repeat=repeat)

    def replace(self, resource: Resource, body: Manifest, *, subresource: str = "") -> Manifest:
        """Replace an object of this resourceVersion; raises `ConflictError` if it has changed."""
        metadata = body["metadata"]
        path = resource.path(
            namespace=metadata.get("namespace"), name=metadata["name"], subresource=subresource
        )
        return self._ask("PUT", path, body=body, repeat=False)

    def patch(
        self,
        resource: Resource,
        name: str,
        changes: Manifest,
        *,
        namespace: str | None = None,
        subresource: str = "",
    ) -> Manifest:
        """Change these fields of an object, or of its `scale` or `status`; None takes a field away.

        With `metadata.resourceVersion` among them only that version, else it raises `ConflictError`.
        Raises `NotFoundError`.
        """
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        query = {"fieldValidation": "Strict"}
        return self._ask("PATCH", path, body=changes, query=query, content=MERGE_PATCH, repeat=True)

    def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation = "Background",
    ) -> None:
        """Delete an object; see `fray.kube.api.KubeApi.delete`."""
        body = build_delete_options(propagation, uid=uid, resource_version=resource_version)
        try:
            path = resource.path(namespace=namespace, name=name)
            self._ask("DELETE", path, body=body, repeat=True)
        except NotFoundError:
            return
        except ConflictError:
            if uid is None or self._has_uid(resource, name, namespace=namespace, uid=uid):
                raise
            # Another object has taken the name: the one that was meant is gone.

    def _has_uid(self, resource: Resource, name: str, *, namespace: str | None, uid: str) -> bool:
        try:
            found = self.get(resource, name, namespace=namespace)
        except NotFoundError:
            return False
        return bool(found["metadata"]["uid"] == uid)

    def _ask(
        self,
        method: str,
        path: str,
        *,
        repeat: bool,
        body: Manifest | None = None,
        query: Mapping[str, str] | None = None,
        content: str = JSON,
    ) -> Manifest:
        """Return the answer, after further tries where `repeat`, or the error itself, allows them."""
        request = f"{method} {path}"
        failures = 0
        while True:
            try:
                return self._ask_once(request, path, body=body, query=query, content=content)
            except (ServerError, ThrottledError, UnreachableError) as error:
                failures += 1
                asked = error.retry_after_seconds or 0.0
                may_repeat = repeat or _was_not_done(error)
                if not may_repeat or failures > BACKOFF.tries or asked > BACKOFF.longest_asked:
                    raise
                self._pause(BACKOFF.pause(failures, asked))

    def _ask_once(
        self, request: str, path: str, *, body: Manifest | None, query: Mapping[str, str] | None, content: str
    ) -> Manifest:
        with self._open(request, path, body=body, query=query, content=content) as response:
            text = response.read()
        try:
            return parse_object(text, "kind")
        except ValueError as garbled:
            # Something between us and the server answered, or cut the answer.
            raise UnreachableError(request, 0, "no object", str(garbled)) from garbled

    @contextmanager
    def _open(
        self,
        request: str,
        path: str,
        *,
        body: Manifest | None = None,
        query: Mapping[str, str] | None = None,
        content: str = JSON,
        silence: float | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request; raise the typed error of any answer but success, and of a connection that fails.

        `silence` is how many seconds the server may say nothing after the answer has begun.
        """
        import http.client  # noqa: PLC0415 - see the top

        method = request.partition(" ")[0].replace("WATCH", "GET")
        target = f"{path}?{urlencode(query)}" if query else path
        headers = {"Authorization": f"Bearer {self._read_token(request)}", "Accept": JSON}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = content
        connection = self._connect(request)
        connected = connection.sock  # which the connection may give away to the response
        try:
            connection.request(method, target, data, headers)
            with connection.getresponse() as response:
                # Anything but success, redirections too: the token goes to no other server.
                if response.status >= http.client.MULTIPLE_CHOICES:
                    after = response.getheader("Retry-After", "")
                    raise read_api_error(request, response.status, response.read(), retry_after=after)
                if silence is not None:
                    connected.settimeout(silence)
                yield response
        except (OSError, http.client.HTTPException) as lost:
            raise UnreachableError(request, 0, type(lost).__name__, str(lost)) from lost
        finally:
            connection.close()

    def _read_token(self, request: str) -> str:
        """Return the token of this moment; raises `UnauthorizedError`, which never shows it."""
        try:
            token = self._access.token_file.read_text(encoding="ascii").strip()
        except OSError as unread:
            raise UnauthorizedError(request, 0, type(unread).__name__, str(unread)) from unread
        except UnicodeDecodeError:
            token = ""
        if not token.isprintable() or not token:
            raise UnauthorizedError(request, 0, "no token", f"{self._access.token_file} holds no token")
        return token

    def _connect(self, request: str) -> http.client.HTTPConnection:
        """Return an open connection; an `UnreachableError` of it says that nothing was sent."""
        import http.client  # noqa: PLC0415 - see the top

        try:
            parts = urlsplit(self._access.url)
            host, port, authority = parts.hostname or "", parts.port, self._access.authority
            if parts.scheme == "http":
                connection = http.client.HTTPConnection(host, port, timeout=self._seconds)
            else:
                context = ssl.create_default_context(cafile=str(authority) if authority else None)
                connection = http.client.HTTPSConnection(host, port, timeout=self._seconds, context=context)
            connection.connect()
        except (OSError, ValueError, http.client.HTTPException) as failed:
            reason = f"NotConnected ({type(failed).__name__})"
            raise UnreachableError(request, 0, reason, str(failed)) from failed
        return connection


def _was_not_done(error: ApiError) -> bool:
    """Whether the server certainly hasn't carried the request out."""
    return isinstance(error, ThrottledError) or (isinstance(error, UnreachableError) and not error.was_sent)
