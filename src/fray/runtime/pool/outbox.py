"""What a process of the pool tells the head, from all of its threads, in one order."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from fray.errors import ConnectionLostError, FrameTooLargeError
from fray.runtime.pool.current import shielded, uninterrupted
from fray.runtime.pool.message_codec import MESSAGES, encode_messages
from fray.runtime.pool.messages.events import ItemsProduced, RefsAdded

__all__ = ["FrameSender", "Outbox"]

BATCH = 64
"""Messages that are sent together at most when they could wait."""
DELAY_SECONDS = 0.0005
"""How long a message waits for others; less than a frame's way to the driver and back."""


class FrameSender(Protocol):
    """What is needed of a connection."""

    def send(self, kind: int, body: bytes, /) -> None:
        """Send one frame; return when the kernel has all of it."""


class Outbox:
    """Sends messages in the order in which they were given to it; what comes during a send leaves together.

    Parameters: `connection` to the head; `on_lost`, called when it has ended.
    """

    def __init__(self, connection: FrameSender, on_lost: Callable[[], None]) -> None:
        self._connection = connection
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._pending: deque[Any] = deque()
        self._flushed = 0.0
        self._awake = False
        self._alarm = threading.Event()
        self._flusher: threading.Thread | None = None

    def send(self, *messages: Any) -> None:
        """Send these and all that was deferred; return when the kernel has them.

        Blocks while the head doesn't read.

        Raises `FrameTooLargeError` for a message above the limit of frames.
        """
        self._pending.extend(messages)
        self.flush()

    def defer(self, message: Any) -> None:
        """Send the message with the next ones. Never blocks, so that finalizers of objects may call it."""
        self._pending.append(message)

    def send_soon(self, message: Any) -> None:
        """Send the message within about a millisecond, with others that follow closely.

        A frame for each of many short tasks would cost both ends more than the tasks do. Where messages
        come further apart than that, each is sent at once.
        """
        self._pending.append(message)
        if len(self._pending) >= BATCH or time.perf_counter() - self._flushed >= DELAY_SECONDS:
            self.flush()
        elif not self._awake:
            with shielded():  # else the message might wait for the next one for ever
                self._awake = True
                if not self._wake_flusher():
                    self._awake = False
                    self.flush()

    @uninterrupted  # a frame that is sent in part ends the connection
    def flush(self) -> None:
        """Send what was deferred."""
        with self._lock:
            batch = []
            # Finalizers may append while this runs, even in this thread: they are taken or left for the next.
            while self._pending:
                batch.append(self._pending.popleft())
            if not batch:
                return
            self._flushed = time.perf_counter()
            try:
                self._send_batch(batch)
            except ConnectionLostError:
                self._on_lost()

    def _send_batch(self, batch: list[Any]) -> None:
        try:
            self._connection.send(MESSAGES, encode_messages(_joined(batch) if len(batch) > 1 else batch))
        except FrameTooLargeError:
            if len(batch) == 1:
                raise
            middle = len(batch) // 2
            try:
                self._send_batch(batch[:middle])
            finally:
                # One that is too large by itself mustn't take the others with it.
                self._send_batch(batch[middle:])

    def _wake_flusher(self) -> bool:
        """Let what is pending be sent soon; return whether there is a thread that will."""
        if self._flusher is None:
            flusher = threading.Thread(target=self._flush_late, name="fray-flusher", daemon=True)
            try:
                flusher.start()
            except RuntimeError:  # no thread can be started now
                return False
            self._flusher = flusher
        self._alarm.set()
        return True

    def _flush_late(self) -> None:
        while self._alarm.wait():
            self._alarm.clear()
            time.sleep(DELAY_SECONDS)
            # First of all: what is appended from here on wakes this thread again.
            self._awake = False
            self.flush()


def _joined(batch: list[Any]) -> list[Any]:
    """Return the messages, with those as one that follow each other and are about more of the same."""
    runs: list[list[Any]] = []
    last: object = None
    for message in batch:
        kind = type(message)
        about = message.task if kind is ItemsProduced else kind if kind is RefsAdded else None
        if about is not None and about == last:
            runs[-1].append(message)
        else:
            runs.append([message])
            last = about
    return [run[0] if len(run) == 1 else _join(run) for run in runs]


def _join(run: list[Any]) -> Any:
    first = run[0]
    if type(first) is RefsAdded:
        return RefsAdded(tuple([object_id for message in run for object_id in message.ids]))
    items = tuple([item for message in run for item in message.items])
    return ItemsProduced(first.task, first.position, items)
