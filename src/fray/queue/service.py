"""What a queue server does with a request that is proven: pure but for the queues it holds.

Items are bytes that nobody here looks into. Requests can be repeated: what was applied is remembered by
the number that the client gave it. No clock and no network: server.py puts those around it.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from fray.errors.queue import LeaseLostError
from fray.queue.protocol import Verb, is_identifier
from fray.queue.table import LeaseTable

__all__ = ["QueueService", "Reply", "Request"]

# How many requests of a queue are remembered: a repetition comes within seconds of the first.
REMEMBERED = 16_384


@dataclass(frozen=True)
class Reply:
    """An answer's status and body."""

    status: HTTPStatus
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Request:
    """A proven request: `queue` and `verb` of its path, the query, the body, and when it came (seconds)."""

    queue: str
    verb: str
    query: Mapping[str, str]
    body: bytes = field(repr=False)
    now: float


class _RefusalError(Exception):
    """A request that can't be done."""

    def __init__(self, status: HTTPStatus, problem: str) -> None:
        super().__init__(problem)
        self.reply = Reply(status, problem.encode())


class _HeldQueue:
    """One queue and the requests that were applied to it."""

    def __init__(self) -> None:
        self.table: LeaseTable[bytes] = LeaseTable()
        self._applied: OrderedDict[str, None] = OrderedDict()

    def was_applied(self, identifier: str) -> bool:
        return identifier in self._applied

    def remember(self, identifier: str) -> None:
        self._applied[identifier] = None
        if len(self._applied) > REMEMBERED:
            self._applied.popitem(last=False)


class QueueService:
    """Queues by name, that together hold at most `max_items` items and `max_bytes` bytes of them.

    For one thread. Bodies that are being received count too: `reserve` before, `give_back` after.
    """

    def __init__(self, *, max_items: int, max_bytes: int) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._items = 0
        self._bytes = 0
        self._queues: dict[str, _HeldQueue] = {}
        self._verbs: dict[str, Callable[[_HeldQueue, Request], Reply]] = {
            Verb.PUSH: self._push,
            Verb.PEEK: self._peek,
            Verb.POP: self._pop,
            Verb.RENEW: self._renew,
            Verb.DONE: self._done,
            Verb.RELEASE: self._release,
            Verb.COUNT: self._count,
        }

    def add(self, name: str) -> None:
        """Make a queue, unless there is one of this name; from any thread, as only this writes the names."""
        self._queues.setdefault(name, _HeldQueue())

    def reserve(self, size: int) -> bool:
        """Set room aside for a body of this many bytes; False when there isn't as much."""
        if self._bytes + size > self._max_bytes:
            return False
        self._bytes += size
        return True

    def give_back(self, size: int) -> None:
        """Free the room that was set aside."""
        self._bytes -= size

    def answer(self, request: Request) -> Reply:
        """Do what a request asks."""
        verb = self._verbs.get(request.verb)
        queue = self._queues.get(request.queue)
        if verb is None or queue is None:
            return Reply(HTTPStatus.NOT_FOUND, b"no such queue or verb")
        if request.body and request.verb != Verb.PUSH:
            return Reply(HTTPStatus.BAD_REQUEST, b"a body where none belongs")
        try:
            return verb(queue, request)
        except _RefusalError as refusal:
            return refusal.reply
        except LeaseLostError as error:
            return Reply(HTTPStatus.CONFLICT, error.message.encode())

    def _push(self, queue: _HeldQueue, request: Request) -> Reply:
        identifier = _identifier(request, "request")
        if queue.was_applied(identifier):
            return Reply(HTTPStatus.NO_CONTENT)
        if self._items >= self._max_items or not self.reserve(len(request.body)):
            raise _RefusalError(HTTPStatus.INSUFFICIENT_STORAGE, "full")
        self._items += 1
        queue.table.push(request.body)
        queue.remember(identifier)
        return Reply(HTTPStatus.NO_CONTENT)

    def _peek(self, queue: _HeldQueue, request: Request) -> Reply:
        return _item(queue.table.peek(now=request.now))

    def _pop(self, queue: _HeldQueue, request: Request) -> Reply:
        lease, until = _identifier(request, "lease"), request.now + _seconds(request)
        held = queue.table.leased(lease)
        if held is not None:
            queue.table.renew(lease, until=until, now=request.now)
            return _item(held)
        if queue.was_applied(_lease_key(lease)):
            # A late repetition: its sender has long ended this lease.
            raise LeaseLostError(lease)
        return _item(queue.table.pop(lease, until=until, now=request.now))

    def _renew(self, queue: _HeldQueue, request: Request) -> Reply:
        lease, until = _identifier(request, "lease"), request.now + _seconds(request)
        queue.table.renew(lease, until=until, now=request.now)
        return Reply(HTTPStatus.NO_CONTENT)

    def _done(self, queue: _HeldQueue, request: Request) -> Reply:
        return self._end(queue, request, self._drop)

    def _release(self, queue: _HeldQueue, request: Request) -> Reply:
        return self._end(queue, request, lambda held, lease: held.table.release(lease))

    def _drop(self, queue: _HeldQueue, lease: str) -> None:
        self._bytes -= len(queue.table.done(lease))
        self._items -= 1

    def _end(self, queue: _HeldQueue, request: Request, end: Callable[[_HeldQueue, str], None]) -> Reply:
        lease, identifier = _identifier(request, "lease"), _identifier(request, "request")
        if not queue.was_applied(identifier):
            end(queue, lease)
            queue.remember(identifier)
            queue.remember(_lease_key(lease))
        return Reply(HTTPStatus.NO_CONTENT)

    def _count(self, queue: _HeldQueue, request: Request) -> Reply:
        counts = {
            "size": queue.table.size(now=request.now),
            "pending": queue.table.pending(now=request.now),
        }
        return Reply(HTTPStatus.OK, json.dumps(counts).encode())


def _item(found: tuple[bytes] | None) -> Reply:
    return Reply(HTTPStatus.NO_CONTENT) if found is None else Reply(HTTPStatus.OK, found[0])


def _lease_key(lease: str) -> str:
    # Leases that were ended are remembered among the requests, apart from those of the same number.
    return f"lease {lease}"


def _identifier(request: Request, parameter: str) -> str:
    found = request.query.get(parameter, "")
    if not is_identifier(found):
        raise _RefusalError(HTTPStatus.BAD_REQUEST, f"{parameter} must be 32 hexadecimal digits")
    return found


def _seconds(request: Request) -> float:
    try:
        seconds = float(request.query.get("seconds", ""))
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds) or seconds <= 0:
        raise _RefusalError(HTTPStatus.BAD_REQUEST, "seconds must be a positive number")
    return seconds
