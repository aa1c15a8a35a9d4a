"""A process's view of the pool: the objects that it refers to, what is known of them, and waiting for them.

The driver has one, and so has each worker. What a client says to the head goes through `post`, what the
head says comes by `deliver`; sockets, processes and encodings are elsewhere, and so is what users see.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

from fray.errors import GetTimeoutError, PoolClosedError
from fray.runtime.pool.client.backpressure import SubmitLimit
from fray.runtime.pool.client.waiting import Answer, Entry, StreamEntry, Waiter, acquire
from fray.runtime.pool.messages.commands import AnswerActor, Deliver, DeliverItems, LimitInline
from fray.runtime.pool.messages.events import (
    ActorSubmitted,
    Event,
    FetchFailed,
    ItemsConsumed,
    KillActor,
    ObjectPut,
    ObjectsWanted,
    RefsAdded,
    RefsReleased,
    TaskCancelled,
    TaskSubmitted,
)
from fray.runtime.pool.messages.specs import (
    CLIENT_BITS,
    ActorId,
    ActorSpec,
    ClientId,
    Failed,
    ObjectId,
    Outcome,
    Stored,
    TaskSpec,
    Value,
)
from fray.runtime.pool.objects.values import INLINE_LIMIT

__all__ = ["Listener", "PoolClient"]

Listener: TypeAlias = Callable[[Entry], None]

CROWDED_INLINE_LIMIT = 1024
"""Of values in messages, in bytes, while the head keeps too many."""
ACKNOWLEDGED_TOGETHER = 64
"""Small items of a generator that its reader has taken, and that are reported to the head at once: a quarter
of those that it may be ahead at least, so that it needn't wait for fewer."""
ACKNOWLEDGED_BEFORE_WAITING = 16
"""Those that are reported once there is no further item: of a generator that is so many ahead (`buffered`),
the head believes that it waits for its reader, and doesn't tell that the pool stands still."""


class PoolClient:
    """Submits, waits, and counts references for one process. All threads may use it.

    `post` takes an event to the head, in order, and doesn't block for long; it may be called by any thread.
    `blocking` is entered while a thread waits (a worker's task lends its CPUs), with what
    ends the waiting from another thread. `limit` is that of the driver's submissions. `eager`: results are
    asked for as they are submitted, since it costs nothing where the head is in the same process. `defer`
    takes an event that may wait for the next one.
    """

    def __init__(
        self,
        client: ClientId,
        post: Callable[[Event], None],
        *,
        blocking: Callable[[Callable[[], None]], AbstractContextManager[object]] = nullcontext,
        limit: SubmitLimit | None = None,
        eager: bool = False,
        defer: Callable[[Event], None] | None = None,
    ) -> None:
        self.id = client
        self.inline_limit = INLINE_LIMIT
        """Bytes up to which an encoded value or the arguments of a call are to travel with messages."""
        self._inline_limits = {False: INLINE_LIMIT, True: CROWDED_INLINE_LIMIT}
        self._post = post
        self._blocking = blocking
        self.lend: Callable[[], Callable[[], None]] = lambda: lambda: None
        """Lends the running task's CPUs for a wait that nobody sees; what it returns takes them back."""
        self.hear: Callable[[Waiter, float | None], bool] = lambda waiter, timeout: acquire(
            waiter.lock, timeout
        )
        """Blocks until a wait is over; returns whether that was within the seconds. It may hear the head in
        this thread until then; otherwise another one hears it, and wakes this one."""
        self._limit = limit
        self._eager = eager
        self._defer = defer or post
        self.post_added = post
        """Takes news of references that were read. They may wait for the next event: whatever keeps their
        objects until then is given up by a later one."""
        self._ids = itertools.count((client << CLIENT_BITS) + 1)
        self._lock = threading.Lock()
        self._entries: dict[ObjectId, Entry] = {}
        self._waiters: dict[Waiter, None] = {}
        self._listeners: dict[Entry, list[Listener]] = {}
        self._answers: dict[ActorId, Answer] = {}
        # Handles die at any moment, in any thread, even in one that holds the lock: they are only noted.
        self._dropped: deque[Entry] = deque()
        self._deaf: deque[tuple[Iterable[Entry], Listener]] = deque()
        """Subscriptions that are to be forgotten, as above."""
        self._end: Failed | None = None

    # --- references ----------------------------------------------------------------------------------------

    def new_id(self) -> ObjectId:
        """Return an identity that no other object of the pool has."""
        return next(self._ids)

    def send_values(self) -> None:
        """Let all that this process puts travel with messages: nobody can read its host's store."""
        self._inline_limits = dict.fromkeys(self._inline_limits, sys.maxsize)
        self.inline_limit = sys.maxsize

    def refer(self, object_id: ObjectId) -> Entry:
        """Return the entry of an object whose reference was just read; one more handle stands for it."""
        with self._lock:
            return self._refer(object_id)

    def _refer(self, object_id: ObjectId) -> Entry:
        entry = self._entries.get(object_id)
        if entry is not None:
            entry.handles += 1
            return entry
        entry = self._entries[object_id] = Entry(object_id, self._end)
        # Under the lock, so that no release of the same object can overtake it. A value may hold many.
        self.post_added(RefsAdded((object_id,)))
        return entry

    def drop(self, entry: Entry) -> None:
        """Note that a handle of `entry` is gone; safe in a finalizer."""
        self._dropped.append(entry)

    def flush(self) -> None:
        """Tell the head of what was dropped. Not for finalizers: they may run within this object."""
        if self._dropped or self._deaf:
            with self._lock:
                self._flush()

    def _flush_if_free(self) -> None:
        # Finalizers may submit and put, in a thread that holds the lock, which would wait for itself.
        if self._lock.acquire(blocking=False):
            try:
                self._flush()
            finally:
                self._lock.release()

    def _flush(self) -> None:
        self._forget_listeners()
        released: list[ObjectId] = []
        abandoned: list[ObjectId] = []
        while self._dropped:
            entry = self._dropped.popleft()
            entry.handles -= 1
            if entry.handles:
                continue
            self._entries.pop(entry.id, None)
            released.append(entry.id)
            if isinstance(entry, StreamEntry):
                released += [item.id for item in entry.items]
                for item in entry.items:
                    self._entries.pop(item.id, None)
                if entry.outcome is None:
                    abandoned.append(entry.id)
        for task in abandoned:
            self._post(TaskCancelled(task))
        if released:
            self._defer(RefsReleased(tuple(released)))

    # --- what is asked for ---------------------------------------------------------------------------------

    def submit(self, spec: TaskSpec, blob: bytes) -> Entry:
        """Ask for a task; return the entry of its result. Blocks while the driver's limit is reached.

        Raises `PoolClosedError`.
        """
        if self._limit is not None:
            if self._limit.full and self._may_wait():
                self._limit.wait_for_room()
            self._limit.count(len(spec.args))
        self._check_open()
        entry = StreamEntry(spec.id) if spec.streaming else Entry(spec.id)
        entry.wanted = self._eager or spec.streaming
        self._entries[spec.id] = entry
        if self._dropped:
            self._flush_if_free()
        self._post(TaskSubmitted(spec, blob, entry.wanted))
        if self._end is not None:
            self._end_entry(entry, self._end)  # `close` may have come before the entry was there
        return entry

    def _may_wait(self) -> bool:
        """Whether this thread isn't within this object, as a finalizer may be: the head would wait for it."""
        if not self._lock.acquire(blocking=False):
            return False
        self._lock.release()
        return True

    def fail(self, object_id: ObjectId) -> Entry:
        """Return the entry of a result that there won't be, since the pool has ended."""
        return Entry(object_id, self._end)

    def put(self, object_id: ObjectId, outcome: Value) -> Entry:
        """Tell of a value that was kept; return its entry."""
        self._check_open()
        entry = self._entries[object_id] = Entry(object_id, outcome)
        if self._dropped:
            self._flush_if_free()
        self._post(ObjectPut(object_id, outcome))
        return entry

    def create_actor(self, spec: ActorSpec, blob: bytes) -> tuple[Entry, bytes] | Failed:
        """Ask for an actor; return its entry (another's, with `get_if_exists`), or why there is none.

        With the entry come the `methods` that the found actor's creator has written; empty: it is a new one.
        Blocks for a named one until the head has answered; nothing but a new one can come of others.
        """
        self._check_open()
        if not spec.name:
            entry = self._entries[spec.id] = Entry(spec.id)
            self._post(ActorSubmitted(spec, blob))
            return entry, b""
        waiting = Answer()
        with self._lock:
            self._check_open()
            self._answers[spec.id] = waiting
        self._post(ActorSubmitted(spec, blob))
        try:
            with self._blocking(waiting.arrived.set):
                waiting.arrived.wait()
        finally:
            with self._lock:
                # An answer that comes later is for nobody, and what it tells of is released.
                del self._answers[spec.id]
        if waiting.result is None:
            raise PoolClosedError(self._end.name if self._end else "the pool")
        return waiting.result if isinstance(waiting.result, Failed) else (waiting.result, waiting.methods)

    def cancel(self, entry: Entry, *, force: bool) -> None:
        """Ask for a task to be cancelled."""
        self._check_open()
        self._post(TaskCancelled(entry.id, force))

    def kill_actor(self, entry: Entry) -> None:
        """Ask for an actor to be ended for good."""
        self._check_open()
        self._post(KillActor(entry.id))

    @property
    def end(self) -> Failed | None:
        """The outcome of all that hadn't ended when the pool did; None while it goes on."""
        return self._end

    def _check_open(self) -> None:
        if self._end is not None:
            raise PoolClosedError(self._end.name)

    # --- waiting -------------------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether a thread or a listener of this process waits for what the head says, just now."""
        return bool(self._waiters or self._listeners or self._answers)

    def wait(self, entries: Iterable[Entry], needed: int, timeout: float | None = None) -> bool:
        """Block until `needed` of `entries` are ready; return whether it came to that.

        `timeout` is in seconds; None: as long as it takes.
        """
        with self._lock:
            self._flush()
            # Little for each: who takes one result after the other waits for all that are left each time.
            distinct = dict.fromkeys(entries)
            pending = [entry for entry in distinct if not entry.ready]
            missing = min(needed, len(distinct)) - (len(distinct) - len(pending))
            if missing <= 0:
                return True
            self._check_open()
            self._want(pending)
            if timeout is not None and timeout <= 0:
                return False
            waiter = Waiter(set(pending), missing)
            self._waiters[waiter] = None
        try:
            with self._blocking(lambda: self._wake(waiter)):
                return self.hear(waiter, timeout)
        finally:
            with self._lock:
                del self._waiters[waiter]

    def subscribe(self, entries: Sequence[Entry], listener: Listener) -> None:
        """Call `listener` with each of the entries once it is ready, or the pool has ended.

        It is called with this object locked: it must only take note.
        """
        with self._lock:
            self._flush()
            pending = [] if self._end is not None else [entry for entry in entries if not entry.ready]
            for entry in pending:
                self._listeners.setdefault(entry, []).append(listener)
            self._want(pending)
        if len(pending) < len(entries):
            known = set(pending)
            for entry in entries:
                if entry not in known:
                    listener(entry)

    def unsubscribe(self, entries: Iterable[Entry], listener: Listener) -> None:
        """Forget a subscription of each of the entries; safe in a finalizer."""
        self._deaf.append((entries, listener))

    def _forget_listeners(self) -> None:
        while self._deaf:
            entries, listener = self._deaf.popleft()
            for entry in entries:
                listeners = self._listeners.get(entry, [])
                if listener in listeners:
                    listeners.remove(listener)
                    if not listeners:
                        del self._listeners[entry]

    def _want(self, pending: Iterable[Entry]) -> None:
        wanted = [entry for entry in pending if not entry.wanted]
        for entry in wanted:
            entry.wanted = True
        if wanted:
            self._post(ObjectsWanted(tuple(entry.id for entry in wanted)))

    def blocking(self, wake: Callable[[], None]) -> AbstractContextManager[object]:
        """Return what a thread is within while it waits; `wake` is called, by another thread, to end that."""
        self.flush()
        return self._blocking(wake)

    def _wake(self, waiter: Waiter) -> None:
        with self._lock:
            waiter.end()

    def await_outcome(self, entry: Entry, timeout: float | None, name: str) -> Outcome:
        """Return the outcome of an object, blocking until it's there; `end` if the pool ends first.

        Raises `GetTimeoutError` after `timeout` seconds.
        """
        outcome = entry.outcome
        if outcome is None:
            if not self.wait((entry,), 1, timeout):
                raise GetTimeoutError(name, timeout or 0.0)
            outcome = entry.outcome
        if outcome is None:  # another thread has found it unreadable, or this one was asked to end its wait
            self._check_open()
            return self.await_outcome(entry, timeout, name)
        return outcome

    def reject(self, entry: Entry, outcome: Stored, reason: str) -> None:
        """Tell that an object couldn't be read where `outcome` says; it's waited for anew."""
        with self._lock:
            if entry.outcome is outcome:
                entry.outcome, entry.ready, entry.wanted = None, False, True
                if self._end is not None:
                    self._end_entry(entry, self._end)
                self._post(FetchFailed(entry.id, outcome.host, reason))

    def next_item(self, stream: StreamEntry, timeout: float | None = None) -> Entry | None:
        """Return the next item of a generator with one handle of it, or None at its end (see `outcome`).

        Raises `GetTimeoutError` after `timeout` seconds.
        """
        while True:
            with self._lock:
                if stream.items:
                    item = stream.items.popleft()
                    stream.consumed += 1
                    stream.ready = bool(stream.items) or stream.outcome is not None
                    enough = ACKNOWLEDGED_TOGETHER if stream.items else ACKNOWLEDGED_BEFORE_WAITING
                    several = stream.consumed - stream.acknowledged >= enough
                    # Nobody makes more of them once they have ended.
                    if stream.outcome is None and (several or type(item.outcome) is Stored):
                        stream.acknowledged = stream.consumed
                        self._post(ItemsConsumed(stream.id, stream.consumed))
                    return item
                if stream.outcome is not None:
                    return None
            if not self.wait((stream,), 1, timeout):
                raise GetTimeoutError("the generator's next item", timeout or 0.0)

    # --- what the head says --------------------------------------------------------------------------------

    def deliver(self, news: Sequence[Deliver | DeliverItems | AnswerActor | LimitInline]) -> None:
        """Take what the head tells this client; called by one thread, in the head's order."""
        with self._lock:
            for message in news:
                kind = type(message)
                if kind is Deliver:
                    self._take(message)  # type: ignore[arg-type]
                elif kind is DeliverItems:
                    self._take_items(message)  # type: ignore[arg-type]
                elif kind is LimitInline:
                    self.inline_limit = self._inline_limits[message.crowded]  # type: ignore[union-attr]
                else:
                    self._take_answer(message)  # type: ignore[arg-type]

    def _take(self, message: Deliver) -> None:
        entry = self._entries.get(message.id)
        if entry is None or entry.outcome is not None:
            return  # dropped, or sent twice because it was asked for anew
        entry.outcome = message.outcome
        entry.wanted = False
        entry.ready = True
        self._note(entry)

    def _take_items(self, message: DeliverItems) -> None:
        stream = self._entries.get(message.task)
        if not isinstance(stream, StreamEntry):
            self._post(RefsReleased(tuple(object_id for object_id, _ in message.items)))
            return
        for object_id, outcome in message.items:
            item = self._entries[object_id] = Entry(object_id, outcome)
            stream.items.append(item)
        stream.ready = True
        self._note(stream)

    def _take_answer(self, message: AnswerActor) -> None:
        waiting = self._answers.get(message.asked)
        if waiting is None:
            if message.error is None and message.actor not in self._entries:
                self._post(RefsReleased((message.actor,)))
            return
        # At once: a release of the same actor by another thread would undo what the head has counted.
        waiting.methods = message.methods
        waiting.result = message.error or self._refer(message.actor)
        waiting.arrived.set()

    def _note(self, entry: Entry) -> None:
        for waiter in self._waiters:
            waiter.note(entry)
        for listener in self._listeners.pop(entry, ()):
            listener(entry)

    def close(self, what: str = "the pool") -> None:
        """End all waiting: the head is gone. What is known stays known; what isn't has failed.

        `what` has ended, in words, as in `PoolClosedError`; the first call's counts.
        """
        with self._lock:
            if self._end is None:
                self._end = Failed(b"", PoolClosedError.__name__, what)
            for entry in list(self._entries.values()):  # `submit` adds to it without the lock
                self._end_entry(entry, self._end)
            for waiter in self._waiters:
                waiter.end()
            for entry, listeners in self._listeners.items():
                for listener in listeners:
                    listener(entry)
            self._listeners.clear()
            for waiting in self._answers.values():
                waiting.arrived.set()
        if self._limit is not None:
            self._limit.close()

    def close_in_fork(self) -> None:
        """Close, in a forked child: the lock may be held by a thread that only the parent has."""
        self._lock = threading.Lock()
        self._limit = None
        self._listeners.clear()
        self._answers.clear()
        self.close("the parent process's pool")

    def _end_entry(self, entry: Entry, end: Failed) -> None:
        if entry.outcome is None:
            entry.outcome, entry.ready = end, True
