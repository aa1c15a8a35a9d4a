"""A plain client for any path of an apiserver, for set-up and assertions in tests.

It knows no kinds and retries nothing: what the server answered is what the caller gets.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from e2e.cluster.errors import ClusterError

__all__ = ["Api", "ApiError", "Response"]

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class Response(NamedTuple):
    """What the server answered: HTTP `status`, and `body` parsed as JSON (text when it is none)."""

    status: int
    body: Any

    @property
    def ok(self) -> bool:
        """Whether the request succeeded (2xx)."""
        return 200 <= self.status < 300


class ApiError(ClusterError):
    """The server refused something that the harness itself needs.

    Parameters: `problem` is one clause, `response` what the server said.
    """

    def __init__(self, problem: str, response: Response) -> None:
        super().__init__(problem, response)
        self.problem = problem
        self.response = response

    def __str__(self) -> str:
        return f"{self.problem}: {self.response.status} {self.response.body}"


class Api:
    """Requests to one apiserver; safe to share between threads (each request is its own connection).

    Parameters: `url` of the server; `authority` the PEM that must have signed it; `token` a bearer token;
    `client` PEM files (certificate, key) of a client certificate; `timeout` of each request in seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        authority: bytes,
        token: str | None = None,
        client: tuple[str, str] | None = None,
        timeout: float = 30.0,
    ) -> None:
        self.url = url
        self._address = urlsplit(url)
        self._headers = {"Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._context = ssl.create_default_context(cadata=authority.decode())
        if client is not None:
            self._context.load_cert_chain(*client)
        self._timeout = timeout

    def request(
        self,
        method: str,
        path: str,
        body: object | None = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Response:
        """Send one request to `path` (such as `/api/v1/namespaces`) and return whatever the server says.

        Raises OSError or http.client.HTTPException when there is no answer.
        """
        connection = http.client.HTTPSConnection(
            self._address.hostname or "", self._address.port, context=self._context, timeout=self._timeout
        )
        target = f"{path}?{urlencode(query)}" if query else path
        headers = dict(self._headers)
        payload = None
        if body is not None:
            payload = json.dumps(body)
            headers["Content-Type"] = content_type
        try:
            connection.request(method, target, payload, headers)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
        finally:
            connection.close()
        try:
            return Response(answer.status, json.loads(text))
        except json.JSONDecodeError:
            return Response(answer.status, text)

    def watch(self, path: str, *, version: str, seconds: float) -> Iterator[dict[str, Any]]:
        """What happens to the collection `path` after resource version `version`, as it happens.

        With bookmarks, which only tell how far it got. Ends after `seconds`. Raises ApiError when the server
        refuses, OSError or http.client.HTTPException when the connection breaks.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": f"{seconds:.0f}",
        }
        connection = http.client.HTTPSConnection(
            self._address.hostname or "",
            self._address.port,
            context=self._context,
            timeout=seconds + self._timeout,
        )
        try:
            connection.request("GET", f"{path}?{urlencode(query)}", headers=self._headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise ApiError(f"{path} can't be watched", Response(answer.status, answer.read().decode()))
            for line in answer:
                yield json.loads(line)
        finally:
            connection.close()

    def get(self, path: str, **query: str) -> Response:
        """GET `path`; keyword arguments become the query."""
        return self.request("GET", path, query=query)

    def post(self, path: str, body: object) -> Response:
        """Create the object `body` in the collection `path`; unknown fields are an error, not dropped."""
        return self.request("POST", path, body, query={"fieldValidation": "Strict"})

    def put(self, path: str, body: object) -> Response:
        """Replace the object at `path`."""
        return self.request("PUT", path, body)

    def merge(self, path: str, body: object) -> Response:
        """Merge-patch the object (or its /status) at `path`."""
        return self.request("PATCH", path, body, content_type=MERGE)

    def patch(self, path: str, operations: list[dict[str, Any]]) -> Response:
        """JSON-patch the object at `path`."""
        return self.request("PATCH", path, operations, content_type=JSON_PATCH)

    def apply(self, path: str, body: object, *, field_manager: str) -> Response:
        """Server-side apply of `body` to the object at `path`, taking over conflicting fields."""
        query = {"fieldManager": field_manager, "force": "true"}
        return self.request("PATCH", path, body, content_type=APPLY, query=query)

    def delete(self, path: str) -> Response:
        """Delete the object at `path` (background propagation)."""
        return self.request("DELETE", path)

    def apply_object(self, manifest: Mapping[str, Any], *, field_manager: str) -> Response:
        """Server-side apply of a manifest of any kind; the server's discovery says where it belongs.

        Raises ApiError when the server refuses it or does not know its kind.
        """
        version = manifest["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        found = self.get(root)
        resources = found.body.get("resources", []) if found.ok else []
        kind = manifest["kind"]
        resource = next((r for r in resources if r["kind"] == kind and "/" not in r["name"]), None)
        if resource is None:
            raise ApiError(f"the server has no kind {kind} in {version}", found)
        metadata = manifest["metadata"]
        namespace = f"/namespaces/{metadata.get('namespace', 'default')}" if resource["namespaced"] else ""
        path = f"{root}{namespace}/{resource['name']}/{metadata['name']}"
        answer = self.apply(path, manifest, field_manager=field_manager)
        if not answer.ok:
            raise ApiError(f"{kind} {metadata['name']} was refused", answer)
        return answer
