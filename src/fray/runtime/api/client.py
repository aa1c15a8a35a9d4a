"""A small client of the API server for code in pods: synchronous, for any thread, standard library only.

It does what `fray.kube.client` does for programs that may install packages, and keeps the same contract.
Each request has a connection of its own, so nothing is shared between threads, and the token and the
authority are read for each: the kubelet writes new ones while a pod runs.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

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
from fray.kube.objects import Manifest, Page, WatchEvent, parse_event, parse_object
from fray.kube.request import (
    Request,
    build_create,
    build_delete,
    build_get,
    build_list,
    build_patch,
    build_replace,
    build_watch,
    sending,
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
WATCH_GRACE_SECONDS: Final = 15.0
"""A server that doesn't end a watch in time is left so much later."""
WATCH_SILENCE_SECONDS: Final = 90.0
"""A watch that is silent for so long is dead: the server sends a bookmark every minute."""


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

    def list_pages(self, resource: Resource, *, namespace: str | None = None) -> Iterator[Page]:
        """Return all objects of a kind, page by page."""
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

    def create(
        self, resource: Resource, body: Manifest, *, namespace: str | None = None, repeat: bool = False
    ) -> Manifest:
        """Create an object; see `build_create`.

        With `repeat` it is tried again although an earlier try may have been carried out: an
        `AlreadyExistsError` may then come from that one.
        """
        return self._ask(build_create(resource, body, namespace=namespace), repeat=repeat)

    def replace(self, resource: Resource, body: Manifest, *, subresource: str = "") -> Manifest:
        """Replace an object of this resourceVersion; see `build_replace`."""
        return self._ask(build_replace(resource, body, subresource=subresource), repeat=False)

    def _read_list(self, request: Request) -> Iterator[Page]:
        page = request
        while True:
            answer = self._ask(page)
            metadata = answer.get("metadata") or {}
            yield Page(answer.get("items") or [], metadata.get("resourceVersion", ""))
            if not (rest := metadata.get("continue")):
                return
            page = replace(request, query={**request.query, "continue": rest})

    def _follow(self, request: Request) -> Iterator[WatchEvent]:
        """Yield changes; a server that is silent, or doesn't end the stream, is an `UnreachableError`."""
        name, seconds = str(request), float(str(request.query["timeoutSeconds"])) + WATCH_GRACE_SECONDS
        end = time.monotonic() + seconds
        with self._open(request, silence=min(WATCH_SILENCE_SECONDS, seconds)) as response:
            for line in iter(response.readline, b""):
                try:
                    event = parse_event(name, line)
                except ValueError as cut:
                    raise UnreachableError(name, 0, type(cut).__name__, str(cut)) from cut
                yield event
                if time.monotonic() > end:
                    raise UnreachableError(name, 0, "TimeoutError", "the server doesn't end the watch")

    def _delete(self, request: Request) -> None:
        """Send a request to delete an object; one that is gone already is fine."""
        try:
            self._ask(request)
        except NotFoundError:
            return
        except ConflictError:
            if request.uid is None or self._has_uid(request, request.uid):
                raise
            # Another object has taken the name: the one that was meant is gone.

    def _has_uid(self, request: Request, uid: str) -> bool:
        try:
            found = self._ask(build_get(request.resource, request.name, namespace=request.namespace))
        except NotFoundError:
            return False
        return bool(found["metadata"]["uid"] == uid)

    def _ask(self, request: Request, *, repeat: bool = True) -> Manifest:
        """Return the answer, after further tries where `repeat`, or the error itself, allows them."""
        failures = 0
        while True:
            try:
                return self._ask_once(request)
            except (ServerError, ThrottledError, UnreachableError) as error:
                failures += 1
                asked = error.retry_after_seconds or 0.0
                may_repeat = repeat or _was_not_done(error)
                if not may_repeat or failures > BACKOFF.tries or asked > BACKOFF.longest_asked:
                    raise
                self._pause(BACKOFF.pause(failures, asked))

    def _ask_once(self, request: Request) -> Manifest:
        with self._open(request) as response:
            text = response.read()
        try:
            return parse_object(text, "kind")
        except ValueError as garbled:
            # Something between us and the server answered, or cut the answer.
            raise UnreachableError(str(request), 0, "no object", str(garbled)) from garbled

    @contextmanager
    def _open(self, request: Request, *, silence: float | None = None) -> Iterator[http.client.HTTPResponse]:
        """Send a request; raise the typed error of any answer but success, and of a connection that fails.

        `silence` is how many seconds the server may say nothing after the answer has begun.
        """
        import http.client  # noqa: PLC0415 - see the top

        name = str(request)
        headers = request.build_headers(f"Bearer {self._read_token(name)}")
        connection = self._connect(name)
        connected = connection.sock  # which the connection may give away to the response
        try:
            connection.request(request.verb, request.target, request.content, headers)
            with connection.getresponse() as response:
                # Anything but success, redirections too: the token goes to no other server.
                if response.status >= http.client.MULTIPLE_CHOICES:
                    after = response.getheader("Retry-After", "")
                    raise read_api_error(name, response.status, response.read(), retry_after=after)
                if silence is not None:
                    connected.settimeout(silence)
                yield response
        except (OSError, http.client.HTTPException) as lost:
            raise UnreachableError(name, 0, type(lost).__name__, str(lost)) from lost
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

    get = sending(build_get, _ask)
    list_pages = sending(build_list, _read_list)
    watch = sending(build_watch, _follow)
    patch = sending(build_patch, _ask)
    delete = sending(build_delete, _delete)


def _was_not_done(error: ApiError) -> bool:
    """Whether the server certainly hasn't carried the request out."""
    return isinstance(error, ThrottledError) or (isinstance(error, UnreachableError) and not error.was_sent)
