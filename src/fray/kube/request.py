"""A request to an API server, before anything is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

from fray.kube.objects import Manifest
from fray.kube.resources import Resource

__all__ = ["JSON", "Request"]

JSON: Final = "application/json"


@dataclass(frozen=True)
class Request:
    """What is asked of an API server.

    Attributes:
        method: GET, POST, PUT, PATCH, DELETE, or WATCH: a GET that is answered by a stream.
        resource: What it is about, as it is counted.
        path: The path on the server.
        query: Parameters of the path; a list is repeated.
        body: The object that is sent.
        accept: The media type of the answer.
        packed: Whether the answer may be compressed.
    """

    method: str
    resource: Resource
    path: str
    query: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    body: Manifest | None = field(default=None, repr=False)
    accept: str = JSON
    packed: bool = True

    def __str__(self) -> str:
        """The method and path, as errors name it."""
        return f"{self.method} {self.path}"

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

    def build_headers(self, authorization: str | None) -> dict[str, str]:
        """Return the headers of the request."""
        # The only patch that is sent is a server-side apply, whose YAML may be JSON.
        content = "application/apply-patch+yaml" if self.method == "PATCH" else JSON
        headers = {"Accept": self.accept, "Content-Type": content}
        if not self.packed:
            headers["Accept-Encoding"] = "identity"
        if authorization is not None:
            headers["Authorization"] = authorization
        return headers
