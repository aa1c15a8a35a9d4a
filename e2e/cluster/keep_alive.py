"""The plain client on one kept connection: who plays a whole cluster sends thousands of requests."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from e2e.cluster.api import Api, Response

__all__ = ["KeepAliveApi"]

IDLE_SECONDS = 45.0
"""How long a connection may rest and be used again: API servers close theirs after 90 s."""


class KeepAliveApi(Api):
    """Like the client that it is made from, for one thread at a time: others wait for each other."""

    def __init__(self, api: Api) -> None:
        # All that a client is, but not its connections: it has none between two requests.
        self.__dict__.update(vars(api))
        self._connection: http.client.HTTPSConnection | None = None
        self._used_at = 0.0
        self._lock = threading.Lock()

    def request(
        self,
        method: str,
        path: str,
        body: object | None = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Response:
        """Send one request; what the server said."""
        headers: dict[str, Any] = dict(self._headers)
        payload = None if body is None else json.dumps(body)
        if body is not None:
            headers["Content-Type"] = content_type
        target = f"{path}?{urlencode(query)}" if query else path
        with self._lock:
            if time.monotonic() - self._used_at > IDLE_SECONDS:
                self.close()
            if self._connection is None:
                self._connection = http.client.HTTPSConnection(
                    self._address.hostname or "",
                    self._address.port,
                    context=self._context,
                    timeout=self._timeout,
                )
            try:
                self._connection.request(method, target, payload, headers)
                answer = self._connection.getresponse()
                text = answer.read().decode("utf-8", "replace")
                self._used_at = time.monotonic()
            except (OSError, http.client.HTTPException):
                self.close()
                raise
        try:
            return Response(answer.status, json.loads(text))
        except json.JSONDecodeError:
            return Response(answer.status, text)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
