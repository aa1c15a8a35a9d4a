"""Calls of named actors that are made again when they were lost with their member.

Only calls whose creator, or whose actor's, has said that a second run does no harm come here. They are not
bound to the incarnation that a handle has met first: each try goes to the one that there is.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

from fray.errors import (
    ActorDiedError,
    FrayError,
    ObjectLostError,
    PoolClosedError,
    TaskCancelledError,
    TaskTimeoutError,
)
from fray.job.calls import MethodCall
from fray.job.cells import Cell, WaitableEngine
from fray.job.engine import ANYWHERE, LATE, Engine, deadline_after, time_left
from fray.job.member_engine import READ_HERE, MemberEngine, connect, with_values
from fray.job.options import CallOptions
from fray.job.progress import FutureState
from fray.job.refs import ObjectRef
from fray.runtime.actors.identity import Member
from fray.runtime.actors.joining import Reach
from fray.runtime.pool.client.backpressure import MAX_BYTES
from fray.runtime.pool.messages.specs import Failed
from fray.runtime.pool.objects.values import INLINE_LIMIT

__all__ = ["RetriedCalls", "calls_of"]

MAX_WAITING: Final = MAX_BYTES // INLINE_LIMIT
"""Calls that wait for a member that is away, beyond which threads that make more wait: arguments that travel
with messages are no more than a member that is there lets wait. It may be away for minutes."""


class RetriedCall(Cell):
    """A call; its value is the ref of its last try, once that has ended.

    It is made again up to `retries` times when it was lost; -1: without limit. `name` is for people.
    """

    def __init__(self, number: int, name: str, request: MethodCall, retries: int) -> None:
        super().__init__(f"{name}-{number}")
        self.number = number
        self.name = name
        self.request = request
        self.deadline = deadline_after(request.options.timeout)
        self.left = retries
        self.ref: ObjectRef[Any] | None = None
        """Its present try, or its last one."""
        self.timer: threading.Timer | None = None
        """Ends it in time, while it waits for its next try."""

    def build_timeout(self, *story: str) -> TaskTimeoutError:
        """Return the error of its end when its time is up."""
        return TaskTimeoutError(self.name, self.request.options.timeout or 0.0, story)


class RetriedCalls(WaitableEngine):
    """The calls of this process to one member that may be made again, and the engine of their refs.

    Parameters: the `member`, whose incarnation doesn't matter; how this process can `reach` it.
    """

    home = ANYWHERE
    items_are_refs = False
    closed = False

    def __init__(self, member: Member, reach: Reach) -> None:
        self.token = f"retried-{member.uid}-{member.index}"
        self._member = replace(member, incarnation="")
        self._reach = reach
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._engine: MemberEngine | None = None
        self._over = ""
        """The incarnation whose end was met last: no call goes there any more."""
        self._lost: list[RetriedCall] = []
        self._repeating: threading.Thread | None = None
        """The thread that makes lost calls again: until it has, new ones wait behind them."""

    def submit(self, request: MethodCall, retries: int) -> ObjectRef[Any]:
        """Make a call; return its ref.

        Waits for the refs of other contexts among the arguments, and until the member is ready, unless
        earlier calls are being made again: then it waits only while too many wait with them.

        Raises `ActorDiedError`, `ActorUnavailableError` and `TaskTimeoutError`, and what those refs raise.
        """
        engine = self._engine
        # Here, not in the thread that makes lost calls again: it would wait for one that only it can make.
        given, name = with_values(request, engine), f"{self._member.label}.{request.method}"
        call = RetriedCall(next(self._numbers), name, given, retries)
        with self._lock:
            if not self._room.wait_for(self._has_room, time_left(call.deadline)):
                raise call.build_timeout()
            waits = self._repeating is not None
            if waits:
                self._await_repeat(call)
        if not waits:
            self._send(call)
        return ObjectRef(cast("Engine", self), call, name, self._member.label)

    # --- making calls --------------------------------------------------------------------------------------

    def _connect(self, deadline: float | None = None) -> MemberEngine:
        with self._lock:
            engine, over = self._engine, self._over
        if engine is None or engine.closed or engine.deleted or engine.member.incarnation == over:
            engine = connect(self._member, self._reach, over=over, deadline=deadline)
            with self._lock:
                self._engine = engine
        return engine

    def _send(self, call: RetriedCall) -> None:
        """Make a call, once. Raises what `submit` does, and what refs among its arguments raise."""
        try:
            engine = self._connect(call.deadline)
        except TimeoutError as late:
            raise call.build_timeout(str(late)) from late
        if call.timer is not None:
            call.timer.cancel()
        left = time_left(call.deadline)
        if left == 0:
            raise call.build_timeout()
        once = call.request._replace(options=CallOptions(timeout=left, max_task_retries=0))
        entry = engine.call_actor(engine.actor, with_values(once, engine), streaming=False)
        ref: ObjectRef[Any] = ObjectRef(engine, entry, call.name, self._member.label)
        with self._lock:
            call.ref = ref
        if call.ready:  # it was cancelled, or its time was up, before it was there to be cancelled
            engine.cancel(entry, force=False)
        engine.subscribe((entry,), partial(self._end_try, call, ref, engine))

    def _end_try(self, call: RetriedCall, ref: ObjectRef[Any], engine: MemberEngine, entry: Any) -> None:
        """Take note that a try has ended: it is the last one, or is made again by another thread."""
        outcome = entry.outcome
        kind = outcome.kind if type(outcome) is Failed else ""
        starts: threading.Thread | None = None
        with self._lock:
            if kind == ActorDiedError.__name__ and engine is self._engine:
                self._over = engine.member.incarnation
            lost = kind in (ActorDiedError.__name__, PoolClosedError.__name__) and not call.ready
            again = lost and call.left != 0
            if again:
                call.left -= call.left > 0
                if self._repeating is None:
                    name = f"fray-retries {self._member.label}"
                    starts = threading.Thread(target=self._repeat, name=name, daemon=True)
                    self._repeating = starts
                self._await_repeat(call)
        if starts is not None:
            starts.start()
        elif not again:
            call.succeed(ref)

    def _has_room(self) -> bool:
        """Return whether a further call may wait; in the thread that makes room always, for finalizers."""
        return len(self._lost) < MAX_WAITING or self._repeating in (None, threading.current_thread())

    def _await_repeat(self, call: RetriedCall) -> None:
        """Let a call wait for the thread that makes lost ones again. The lock is held."""
        self._lost.append(call)
        if (left := time_left(call.deadline)) is not None:
            call.timer = threading.Timer(left, call.fail, (call.build_timeout(),))
            call.timer.daemon = True
            call.timer.start()

    def _repeat(self) -> None:
        """Make lost calls again, in the order in which they were made first, until there is none."""
        while True:
            with self._lock:
                if not self._lost:
                    self._repeating = None
                    return
            failure: FrayError | None = None
            try:
                self._connect()  # for all of them, also those that come meanwhile: it may take minutes
            except FrayError as error:
                failure = error
            with self._lock:
                calls, self._lost = sorted(self._lost, key=lambda call: call.number), []
                self._room.notify_all()
            for call in calls:
                if failure is not None:
                    call.fail(failure)
                elif not call.ready:
                    self._repeat_one(call)

    def _repeat_one(self, call: RetriedCall) -> None:
        try:
            self._send(call)
        except Exception as error:  # noqa: BLE001 - such as what a ref among its arguments raises
            call.fail(error)

    # --- as the engine of refs -----------------------------------------------------------------------------

    def take(self, ref: Any, deadline: float | None) -> Any:
        """Return the value of a ref; see `Engine`."""
        last = ref._entry.take(deadline)
        return last if last is LATE else last._take(deadline)

    def prefetch(self, entries: Sequence[Any], deadline: float | None) -> None:
        """Do nothing: values come with their calls' ends, but for large ones."""

    def state_of(self, entry: RetriedCall, *, whole: bool) -> FutureState:
        """Return how far a call is; see `Engine`."""
        if not entry.ready:
            return "pending"
        if entry.error is not None or entry.ref is None:
            return "failed"
        return entry.ref._engine.state_of(entry.ref._entry, whole=whole)

    def cancel(self, entry: RetriedCall, *, force: bool) -> None:
        """Let a call that hasn't ended yield `TaskCancelledError`; it is not made again."""
        if entry.fail(TaskCancelledError(entry.name)):
            with self._lock:
                ref = entry.ref
            if ref is not None:
                ref._engine.cancel(ref._entry, force=force)

    def release(self, entry: Any) -> None:
        """Do nothing: a call goes on that nobody waits for."""

    def wire_id(self, entry: RetriedCall) -> int:
        """Raise `ObjectLostError`: results of named actors have no number in other pools."""
        raise ObjectLostError(entry.id, READ_HERE)

    def reduce_ref(self, ref: Any) -> tuple[Any, ...]:
        """Raise `ObjectLostError`: only the process that made a call can read what it returns."""
        raise ObjectLostError(repr(ref), READ_HERE)


_lock = threading.Lock()
_all: dict[tuple[int, str], RetriedCalls] = {}
"""Those of this process, by its pid and the member: its handles share them, so that calls keep an order."""


def calls_of(member: Member, reach: Reach) -> RetriedCalls:
    """Return the calls of this process to a member that may be made again."""
    key = os.getpid(), f"{member.uid}-{member.index}"
    with _lock:
        if key not in _all:
            _all[key] = RetriedCalls(member, reach)
        return _all[key]
