"""What stands between a client and a server, and may lose, change or invent answers."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fray.queue import HttpQueue, HttpQueueServer


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


# Gets the path and what forwards the request; None cuts the connection without an answer.
Behaviour = Callable[[str, Callable[[], Answer]], Answer | None]


@contextmanager
def middleman(server: HttpQueueServer, behaviour: Behaviour) -> Iterator[int]:
    """Stand before a server; yields the port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = dict(self.headers.items())
            self.close_connection = True

            def forward() -> Answer:
                connection = http.client.HTTPConnection("127.0.0.1", server.port)
                connection.request("POST", self.path, body, headers)
                response = connection.getresponse()
                answer = Answer(response.status, dict(response.headers.items()), response.read())
                connection.close()
                return answer

            answer = behaviour(self.path, forward)
            if answer is None:
                return
            self.send_response_only(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in ("content-length", "connection"):
                    self.send_header(name, value)
            if answer.status != 204:
                self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield listener.server_address[1]
        listener.shutdown()
        thread.join()


def queue_through(port: int, server: HttpQueueServer, **options: Any) -> HttpQueue[Any]:
    """The queue `q` as seen through a middleman."""
    server.new_queue("q")
    return HttpQueue("127.0.0.1", port, "q", token=server.token, **options)
