"""A client's connection to the head, and the thread that has it. Workers have ways of their own.

What the client's threads tell goes into a queue: they never block. Who makes a single call and waits for its
result sends and hears in its own thread, while the other one sleeps: to wake it takes longer than the call.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from fray.errors import (
    AttemptOverError,
    ConnectionLostError,
    FrameTooLargeError,
    PoolClosedError,
    PoolVersionError,
    TransportError,
)
from fray.payload.stamp import Stamp
from fray.runtime.pool.client.backpressure import SubmitLimit
from fray.runtime.pool.client.client import PoolClient
from fray.runtime.pool.client.ear import Ear
from fray.runtime.pool.client.undisturbed import Undisturbed
from fray.runtime.pool.client.waiting import Waiter, acquire
from fray.runtime.pool.message_codec import (
    MESSAGES,
    OVER,
    REFUSAL,
    STAMP,
    decode_messages,
    encode_messages,
)
from fray.runtime.pool.messages.commands import AnswerActor, CopyObject, Deliver, DeliverItems, LimitInline
from fray.runtime.pool.messages.greetings import (
    Answered,
    Ask,
    ClientHello,
    ClientWelcome,
    HostAddresses,
    PoolFailed,
    TasksEnded,
    TellEnded,
)
from fray.runtime.pool.messages.specs import HostId
from fray.runtime.pool.transport.blocking import BlockingConnection

__all__ = ["HeadLink"]

_log = logging.getLogger(__name__)

FLUSH_SECONDS = 0.2
"""How often it looks whether an idle client has dropped references."""
WELCOME_SECONDS = 30.0
"""How long it waits for the head's answer to its hello."""
FRAME_MESSAGES = 256
"""Messages in one frame at most, so that the head begins while more are encoded."""
FAILED = "the pool, whose connection has failed,"
SENT_HERE = 16 * 1024
"""Bytes of messages that a thread of the client sends itself at most."""
_NEWS = frozenset((Deliver, DeliverItems, AnswerActor, LimitInline))


class HeadLink:
    """Makes this process a client of the pool; `client` is its part of it.

    Parameters: an authenticated `connection`; the `hello`; `limit` of what it may have submitted.

    Raises `PoolVersionError` if the head refuses it for its versions, `AttemptOverError` if it says that the
    job's attempt is over, `ConnectionLostError` if it ends.
    """

    def __init__(self, connection: BlockingConnection, hello: ClientHello, limit: SubmitLimit) -> None:
        self.copy: Callable[[CopyObject], Any] = lambda _: None
        """Copies an object to this process's host, and returns what the head is to hear."""
        self._connection = connection
        self._addresses: dict[HostId, str] = {}
        self._limit = limit
        self._questions: dict[int, Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._pending: deque[Any] = deque()
        self._awake = False
        self._ends = False
        self._sending = threading.Lock()
        self._hearing = threading.Lock()
        self._heard = True
        """Whether something has come since a thread of the client has sent."""
        self._frames = 0
        """How many have come."""
        try:
            connection.send(STAMP, Stamp.here().to_json().encode())
            connection.send(MESSAGES, encode_messages([hello]))
            self.welcome, early = self._await_welcome()
        except BaseException:
            connection.close()
            raise
        self.client = PoolClient(
            self.welcome.client, self.post, limit=limit, eager=True, defer=self._pending.append
        )
        limit.on_wait = lambda: self.post(TellEnded(True))
        self._bell, self._bell_end = socket.socketpair()
        self._bell.setblocking(False)
        self._ear = Ear(connection.fileno(), self._bell_end.fileno())
        if self._ear.lends:
            self.client.hear = self._hear_until
        self._end = "the pool, whose head has ended,"
        """What has ended once nothing can be received any more, in words."""
        self._hear(early)
        self._thread = threading.Thread(target=self._run, name="fray-pool-link", daemon=True)
        limit.exempt = self._thread
        self._thread.start()

    def _await_welcome(self) -> tuple[ClientWelcome, list[Any]]:
        try:
            frame = self._connection.receive(WELCOME_SECONDS)
        except TimeoutError as error:
            problem = f"it didn't answer within {WELCOME_SECONDS:g} s"
            raise ConnectionLostError(self._connection.peer, problem) from error
        if frame.kind == REFUSAL:
            raise PoolVersionError(bytes(frame.body).decode())
        if frame.kind == OVER:
            raise AttemptOverError(bytes(frame.body).decode())
        welcome, *early = decode_messages(frame.body)
        return welcome, early

    # --- from any thread -----------------------------------------------------------------------------------

    def post(self, message: Any) -> None:
        """Send to the head, after what was sent before. Never blocks, so that finalizers may call it."""
        self._pending.append(message)
        if not self._awake and not (self._heard and self._send_here()):
            self._wake()

    def _wake(self) -> None:
        """Let the other thread send what is pending."""
        self._awake = True
        with contextlib.suppress(OSError):  # it rings already; or nobody listens any more
            self._bell.send(b"\0")

    def _send_here(self) -> bool:
        """Send what is pending in this thread; return whether that is done.

        Only what comes first after something was heard, and is small: it doesn't have to wait for the head.
        """
        try:
            with Undisturbed() as here:
                # Not if this is a finalizer within the same.
                if not (here.certain and self._sending.acquire(blocking=False)):
                    return False
                try:
                    self._heard = False
                    return self._send_if_small()
                finally:
                    self._sending.release()
        except RecursionError:
            return False

    def _send_if_small(self) -> bool:
        pending = self._pending
        count = len(pending)
        if count > FRAME_MESSAGES:
            return False
        try:
            # They stay there until they are sent: to encode them may fail in this thread alone.
            body = encode_messages([pending[place] for place in range(count)])
            if len(body) > SENT_HERE or not self._ear.has_room():
                return False
            self._connection.send(MESSAGES, body)
        except TransportError as error:
            _log.debug("the head is gone: %s", error)  # the other thread hears of it, too
            return True
        for _ in range(count):
            pending.popleft()
        return True

    def _hear_until(self, waiter: Waiter, timeout: float | None) -> bool:
        """Hear the head in this thread, or wait for the one that does; see `PoolClient.hear`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with Undisturbed() as here:
                if not (here.certain and self._hearing.acquire(blocking=False)):
                    break
                try:
                    self._ear.lend()
                    while waiter.missing > 0 and self._ear.await_frame(here, deadline):
                        self._receive()
                except TransportError:
                    break  # the other thread ends all, and with it the wait of this one
                finally:
                    self._ear.take_back()
                    self._hearing.release()
            # The turn was given back first: a signal's handler may wait for the pool itself, or for long.
            if waiter.missing <= 0 or not here.signalled:
                return waiter.missing <= 0
        return acquire(waiter.lock, None if deadline is None else deadline - time.monotonic())

    def ask(self, what: str, timeout: float | None = None) -> Any:
        """Return the head's answer.

        Raises `PoolClosedError` once the pool has ended, and TimeoutError if it takes more seconds than that.
        """
        answer: Future[Any] = Future()
        number = next(self._numbers)
        self._questions[number] = answer
        self.client.flush()
        self.post(Ask(number, what))
        if self.client.end is not None:
            self._refuse_questions()
        return answer.result(timeout)

    def hears(self, seconds: float, wait: Callable[[float], object]) -> bool:
        """Return whether something comes from the head while it waits for so many seconds."""
        known = self._frames
        wait(seconds)
        return self._frames != known or self._ear.has_news()

    def address_of(self, host: HostId) -> str | None:
        """Return where the objects of a host are read; None or empty: they can't be."""
        return self._addresses.get(host)

    def fail(self, reason: str) -> None:
        """End the pool for this process, since it can't go on; those who wait get the reason."""
        _log.error("the pool has ended: %s", reason)
        self.client.close(f"the pool, which has failed ({reason}),")
        self._connection.close()

    def close(self) -> None:
        """Leave the pool; what was posted before is still sent. May be called twice."""
        self.client.close()
        if self._thread is threading.current_thread():  # a finalizer
            self._connection.close()
            return
        self._ends = True
        self._wake()
        self._thread.join()

    def forget(self) -> None:
        """Let this process, a fork of the one that has the connection, touch nothing of it."""
        self._awake = True
        self.client.close_in_fork()

    # --- the thread of its own -----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._serve()
        except TransportError as error:
            _log.debug("the head is gone: %s", error)
        except BaseException:
            self._end = FAILED
            raise
        finally:
            self._connection.close()
            self.client.close(self._end)
            self._refuse_questions()
            self._ear.close()
            self._bell.close()
            self._bell_end.close()

    def _serve(self) -> None:
        # What came with the welcome must not wait for more.
        called = self._connection.pending
        while True:
            if called and self._hearing.acquire(blocking=False):
                try:
                    self._receive()
                finally:
                    self._hearing.release()
            rung, called = self._ear.listen(FLUSH_SECONDS)
            if not (rung or called):
                self.client.flush()
            if rung:
                self._bell_end.recv(4096)
            # First of all: what is posted from here on rings again.
            self._awake = False
            with self._sending:
                self._send()
            if self._ends:
                return

    def _receive(self) -> None:
        """Hear what has come. To look for more would hold up the threads that this has woken."""
        try:
            self._hear_frames()
        except TimeoutError:
            pass  # it was a part of a frame
        except BaseException as error:
            # Nobody could hear any more: it would look alive, and hang. Another thread might never meet it.
            if not isinstance(error, TransportError):
                self._end = FAILED
                self._connection.close()
            self._ends = True
            self._wake()
            raise

    def _hear_frames(self) -> None:
        connection = self._connection
        while True:
            for frame in connection.receive_all(0):
                self._frames += 1
                if frame.kind == OVER:
                    reason = bytes(frame.body).decode()
                    self._end = f"the pool, whose attempt is over ({reason}),"
                    raise ConnectionLostError(connection.peer, reason)
                self._hear(decode_messages(frame.body))
            if not connection.pending:
                return

    def _send(self) -> None:
        """Send what is pending."""
        pending = self._pending
        while pending:
            self._send_batch([pending.popleft() for _ in range(min(len(pending), FRAME_MESSAGES))])

    def _send_batch(self, batch: list[Any]) -> None:
        try:
            self._connection.send(MESSAGES, encode_messages(batch))
        except FrameTooLargeError:
            if len(batch) == 1:
                raise
            for message in batch:
                self._send_batch([message])

    def _hear(self, messages: list[Any]) -> None:
        self._heard = True
        news: list[Deliver | DeliverItems | AnswerActor | LimitInline] = []
        for message in messages:
            kind = type(message)
            if kind in _NEWS:
                news.append(message)
            elif kind is Answered:
                if (question := self._questions.pop(message.number, None)) is not None:
                    question.set_result(message.answer)
            elif kind is TasksEnded:
                self._limit.note_ended(message.tasks, message.size)
                if not self._limit.has_waiters:
                    self.post(TellEnded(False))
            elif kind is HostAddresses:
                message.update(self._addresses)
            elif kind is CopyObject:
                threading.Thread(target=self._relay, args=(message,), name="fray-relay", daemon=True).start()
            elif kind is PoolFailed:
                self.client.close(f"the pool, which has failed ({message.reason}),")
        if news:
            self.client.deliver(news)

    def _relay(self, command: CopyObject) -> None:
        self.post(self.copy(command))

    def _refuse_questions(self) -> None:
        end = self.client.end
        while self._questions:
            with contextlib.suppress(KeyError):
                _, answer = self._questions.popitem()
                answer.set_exception(PoolClosedError(end.name if end is not None else "the pool"))
