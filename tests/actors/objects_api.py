"""An API server for tests that keeps objects: names that are taken, versions, uids, merge patches."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

__all__ = ["ObjectsApi", "serving"]


class ObjectsApi:
    """The objects, by the path of their URL."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.down = False
        """Whether every request is refused with 503."""
        self._lock = threading.Lock()
        self._version = 0

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the object of an answer."""
        with self._lock:
            if self.down:
                return 503, _status("ServiceUnavailable")
            if method == "POST":
                return self._create(f"{path}/{body['metadata']['name']}", body)
            found = self.objects.get(path)
            if found is None:
                return 404, _status("NotFound")
            if method == "DELETE":
                if body.get("preconditions", {}).get("uid") not in (None, found["metadata"]["uid"]):
                    return 409, _status("Conflict")
                self._collect(found["metadata"]["uid"])
                return 200, self.objects.pop(path)
            if method == "PATCH":
                return self._patch(found, body)
            return 200, found

    def _create(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if path in self.objects:
            return 409, _status("AlreadyExists")
        self._version += 1
        metadata = {
            "namespace": "ml",
            **body["metadata"],
            "uid": str(uuid.uuid4()),
            "resourceVersion": str(self._version),
        }
        self.objects[path] = {**body, "metadata": metadata}
        return 201, self.objects[path]

    def _collect(self, owner: str) -> None:
        """Remove what an object owns, as the garbage collector does."""
        for path, each in list(self.objects.items()):
            if any(one["uid"] == owner for one in each["metadata"].get("ownerReferences", ())):
                del self.objects[path]

    def _patch(self, found: dict[str, Any], changes: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        version = changes.get("metadata", {}).get("resourceVersion")
        if version not in (None, found["metadata"]["resourceVersion"]):
            return 409, _status("Conflict")
        self._version += 1
        found["data"] = {**found.get("data", {}), **changes["data"]}
        found["metadata"]["resourceVersion"] = str(self._version)
        return 200, found


def _status(reason: str) -> dict[str, Any]:
    return {"kind": "Status", "reason": reason, "message": reason}


@contextmanager
def serving(api: ObjectsApi) -> Iterator[str]:
    """Serve it; give the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else {}
            status, answer = api.answer(self.command, urlsplit(self.path).path, body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
