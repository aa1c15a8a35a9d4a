"""Whether a worker's pod has joined its pool, by HTTP: what the kubelet's probe asks every second.

No event loop, and no thread unless `start` is called: it's part of a process that forks, whose selector says
when to call it. A client that says nothing takes one of a few places, and the next one gets it.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections import deque
from typing import Final

from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.sockets import listening_socket

__all__ = ["ReadinessServer"]

PATH: Final = b"/ready"
MOST_CLIENTS: Final = 16
"""Connections at once: the oldest is cut off for a further one."""
MOST_BYTES: Final = 4096
"""Of a request that are looked at; its first line is what counts."""


class ReadinessServer:
    """Answers `GET /ready`: 200 while `ready` is set, else 503; all else is 404.

    Raises `AddressError` if the address can't be listened on.
    """

    def __init__(self, address: Address) -> None:
        self.ready = False
        self._listener = listening_socket(address)
        self._clients: deque[socket.socket] = deque()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._listener.getsockname()[1])

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """Those that are to be watched: `serve` wants to be called when one is readable."""
        return (self._listener, *self._clients)

    def serve(self) -> None:
        """Accept who has come and answer those who have asked; never blocks."""
        for client in tuple(self._clients):
            with contextlib.suppress(BlockingIOError):
                self._answer(client)
        with contextlib.suppress(OSError):  # nobody has come, or it has gone by now
            while True:
                client, _ = self._listener.accept()
                client.setblocking(False)
                self._clients.append(client)
                if len(self._clients) > MOST_CLIENTS:
                    self._clients.popleft().close()

    def start(self) -> None:
        """Answer from now on in a thread of its own, until the process ends."""
        threading.Thread(target=self._serve_always, daemon=True).start()

    def _serve_always(self) -> None:
        while True:
            select.select(self.sockets, [], [])
            self.serve()

    def close(self) -> None:
        """Listen no more."""
        for each in self.sockets:
            each.close()
        self._clients.clear()

    def _answer(self, client: socket.socket) -> None:
        try:
            request = client.recv(MOST_BYTES)
            if request:
                client.send(_build_answer(request, ready=self.ready))
        except BlockingIOError:
            raise
        except OSError:
            pass  # the client has gone
        self._clients.remove(client)
        client.close()


def _build_answer(request: bytes, *, ready: bool) -> bytes:
    method, _, rest = request.partition(b" ")
    if method != b"GET" or rest.split(b" ", 1)[0].partition(b"?")[0] != PATH:
        status = "404 Not Found"
    else:
        status = "200 OK" if ready else "503 Service Unavailable"
    body = f"{status}\n"
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n{body}".encode()
