"""The lease queue for processes that share a network: the client of HttpQueueServer.

It unpickles only what a server with the token answered to this very request.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import threading
import time
import uuid
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import urllib3

from fray.backoff import Backoff
from fray.errors import FrayError
from fray.errors.queue import (
    ItemTooLargeError,
    LeaseLostError,
    QueueAnswerError,
    QueueArgumentError,
    QueueFullError,
    QueueNotFoundError,
    QueueTokenError,
    QueueUnreachableError,
)
from fray.queue.base import DEFAULT_LEASE_SECONDS, Lease, checked_seconds
from fray.queue.codec import decode_item, encode_item
from fray.queue.protocol import (
    ANSWER_HEADER,
    DIGEST_HEADER,
    MAX_ITEM_BYTES,
    NONCE_HEADER,
    SIGNATURE_HEADER,
    Verb,
    checked_name,
    digest_of,
    is_identifier,
    sign_answer,
    sign_request,
    signatures_match,
)

__all__ = ["ClientLimits", "HttpQueue"]

T = TypeVar("T")

CONNECT_SECONDS = 5.0
BACKOFF = Backoff(0.05, 2.0)

# Without a proof, these come from a server, or a proxy before it, that asks for another try.
_TRY_AGAIN = frozenset({408, 429, 502, 503, 504})


@dataclass(frozen=True)
class _Answer:
    """What came back, not yet believed."""

    status: int
    body: bytes = field(repr=False)
    signature: str


@dataclass(frozen=True)
class ClientLimits:
    """How long a client tries, and how much it takes."""

    timeout_seconds: float = 30.0
    """For one try."""
    retry_seconds: float = 60.0
    """How long a request without an answer is repeated; repetitions change nothing twice."""
    max_item_bytes: int = MAX_ITEM_BYTES
    """The largest answer to accept."""


class HttpQueue(Generic[T]):
    """A `Queue` kept by an HttpQueueServer; usually made by its `new_queue`.

    `HttpQueue(host, port, name, token=...)` or `HttpQueue("http://host:port", name, token=...)`.

    Args:
        token: the server's.
        limits: times and sizes.

    Pickles with its token: keep its pickles as secret. Every method raises `QueueUnreachableError`
    without an answer, `QueueAnswerError` after one that isn't of a server with the token,
    `QueueTokenError` when the server doesn't accept the token, `QueueNotFoundError` for a queue that it
    doesn't have.
    """

    def __init__(
        self,
        host: str,
        port: int | str,
        queue_name: str | None = None,
        *,
        token: str | None = None,
        limits: ClientLimits | None = None,
    ) -> None:
        if queue_name is None:
            self.address, self.name = host.rstrip("/"), checked_name(str(port))
        else:
            literal = f"[{host}]" if ":" in host else host
            self.address, self.name = f"http://{literal}:{port}", checked_name(queue_name)
        if not self.address.startswith(("http://", "https://")):
            raise QueueArgumentError("host", f"must be a name or an http(s) URL, not {host!r}")
        if not token:
            raise QueueTokenError(self.address, "a client needs the token of its server")
        self._token = token
        self._limits = limits or ClientLimits()
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._pool: urllib3.HTTPConnectionPool | None = None

    def push(self, item: T) -> None:
        """Add an item at the end.

        Raises:
            ItemTooLargeError: the server doesn't take items of this size.
            QueueFullError: it holds as much as it may; nothing was added.
        """
        self._ask(Verb.PUSH, encode_item(item), request=uuid.uuid4().hex)

    def peek(self) -> T | None:
        """Return the item that pop would hand out and leave it there; None when nothing waits."""
        answer = self._ask(Verb.PEEK)
        if answer.status == HTTPStatus.NO_CONTENT:
            return None
        found: T = decode_item(answer.body)
        return found

    def pop(self, lease_timeout: float = DEFAULT_LEASE_SECONDS) -> Lease[T] | None:
        """Hand out the first item for `lease_timeout` seconds; None when nothing waits.

        Raises:
            QueueArgumentError: the timeout isn't a positive, finite number.
            QueueItemError: the item can't be unpickled here; it stays leased.
        """
        seconds = checked_seconds(lease_timeout)
        # Chosen here: a repetition, should the answer get lost, names the same lease and gets its item.
        lease_id = uuid.uuid4().hex
        answer = self._ask(Verb.POP, lease=lease_id, seconds=seconds)
        if answer.status == HTTPStatus.NO_CONTENT:
            return None
        return Lease(decode_item(answer.body, lease_id=lease_id), lease_id, time.time())

    def renew(self, lease: Lease[T], lease_timeout: float = DEFAULT_LEASE_SECONDS) -> None:
        """Let the lease end `lease_timeout` seconds from now instead."""
        self._ask(Verb.RENEW, lease=lease.lease_id, seconds=checked_seconds(lease_timeout))

    def done(self, lease: Lease[T]) -> None:
        """Remove the item: it never comes back."""
        self._ask(Verb.DONE, lease=lease.lease_id, request=uuid.uuid4().hex)

    def release(self, lease: Lease[T]) -> None:
        """Give the item back, to be handed out at once."""
        self._ask(Verb.RELEASE, lease=lease.lease_id, request=uuid.uuid4().hex)

    def size(self) -> int:
        """How many items wait to be handed out, those of expired leases included."""
        return int(json.loads(self._ask(Verb.COUNT).body)["size"])

    def pending(self) -> int:
        """How many items are handed out, under leases that haven't expired."""
        return int(json.loads(self._ask(Verb.COUNT).body)["pending"])

    def _ask(self, verb: Verb, body: bytes = b"", **query: str | float) -> _Answer:
        lease_id = str(query.get("lease", ""))
        if "lease" in query and not is_identifier(lease_id):
            raise LeaseLostError(lease_id)
        path = f"/queues/{self.name}/{verb}" + (f"?{urlencode(query)}" if query else "")
        answer = self._persist(path, body)
        if answer.status not in (HTTPStatus.OK, HTTPStatus.NO_CONTENT):
            raise self._error(answer, len(body), lease_id)
        return answer

    def _persist(self, path: str, body: bytes) -> _Answer:
        """Send a request until there is an answer or the time for it is over."""
        give_up = time.monotonic() + self._limits.retry_seconds
        failures = 0
        while True:
            cause: Exception | None = None
            try:
                answer = self._try(path, body)
                if answer is not None:
                    return answer
            except (urllib3.exceptions.HTTPError, OSError) as error:
                cause = error
            failures += 1
            pause = BACKOFF.pause(failures)
            if time.monotonic() + pause > give_up:
                raise QueueUnreachableError(self.address, str(cause or "it is busy")) from cause
            time.sleep(pause * random.uniform(0.5, 1.0))

    def _try(self, path: str, body: bytes) -> _Answer | None:
        """Send a request once; return a proven answer, or None when it should be sent again."""
        nonce, digest = secrets.token_hex(16), digest_of(body)
        signature = sign_request(self._token, path=path, nonce=nonce, length=len(body), digest=digest)
        headers = {NONCE_HEADER: nonce, DIGEST_HEADER: digest, SIGNATURE_HEADER: signature}
        answer = self._exchange(path, body, headers)
        expected = sign_answer(self._token, request=signature, status=answer.status, body=answer.body)
        if signatures_match(expected, answer.signature):
            return answer
        if answer.status in _TRY_AGAIN:
            return None
        if answer.status == HTTPStatus.UNAUTHORIZED:
            raise QueueTokenError(self.address, "the server has another token")
        raise QueueAnswerError(self.address, f"without a proof that it has the token (HTTP {answer.status})")

    def _exchange(self, path: str, body: bytes, headers: dict[str, str]) -> _Answer:
        timeout, limit = self._limits.timeout_seconds, self._limits.max_item_bytes
        deadline = time.monotonic() + timeout
        response = self._connections().urlopen(
            "POST",
            path,
            body=body,
            headers={**headers, "Content-Type": "application/octet-stream"},
            retries=False,
            redirect=False,
            timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, timeout), read=timeout),
            preload_content=False,
            decode_content=False,
        )
        received = bytearray()
        finished = False
        try:
            for chunk in response.stream(2**16, decode_content=False):
                received += chunk
                if len(received) > limit:
                    raise QueueAnswerError(self.address, f"with more than {limit} bytes (max_item_bytes)")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the answer took longer than {timeout} s")
            finished = True
        finally:
            # Half an answer would be taken for the beginning of the next.
            response.release_conn() if finished else response.close()
        return _Answer(response.status, bytes(received), response.headers.get(ANSWER_HEADER, ""))

    def _error(self, answer: _Answer, size: int, lease_id: str) -> FrayError:
        match answer.status:
            case HTTPStatus.NOT_FOUND:
                return QueueNotFoundError(self.name, self.address)
            case HTTPStatus.CONFLICT:
                return LeaseLostError(lease_id)
            case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                return ItemTooLargeError(size, int(answer.body))
            case HTTPStatus.INSUFFICIENT_STORAGE:
                return QueueFullError(self.name, self.address)
        text = answer.body.decode(errors="replace")
        return QueueAnswerError(self.address, f"refused the request (HTTP {answer.status}: {text})")

    def _connections(self) -> urllib3.HTTPConnectionPool:
        # A forked child must not share its parent's connections and lock.
        if self._pid != os.getpid():
            self._start_afresh()
        with self._lock:
            if self._pool is None:
                self._pool = urllib3.connection_from_url(self.address, maxsize=8)
            return self._pool

    def __repr__(self) -> str:
        return f"HttpQueue({self.address!r}, {self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reconnect, (self.address, self.name, self._token, self._limits)


def _reconnect(address: str, name: str, token: str, limits: ClientLimits) -> HttpQueue[Any]:
    return HttpQueue(address, name, token=token, limits=limits)
