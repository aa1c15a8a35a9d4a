"""The actors that live in a worker: their order of calls, how many run at once, and their end.

An actor with `max_concurrency` 1 has a thread of its own, so that objects bound to a thread work in it.
Methods that are coroutine functions run on the actor's event loop and need no thread. One that is `on_loop`
is constructed there too, and so run all of its methods but generators: no two of its threads meet.
"""

from __future__ import annotations

import inspect
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from fray.payload.values.texts import cut, text_of, type_name
from fray.runtime.actor_life import PROBE, ActorLife, find_method, set_current_life
from fray.runtime.pool.current import OnWait, RunningTask, TaskInterrupt
from fray.runtime.pool.messages.commands import CreateActor, EndActor, RunTask
from fray.runtime.pool.messages.events import ActorEnded, ActorReady, TaskDone
from fray.runtime.pool.messages.specs import ActorId, Failed, ObjectId, TaskSpec
from fray.runtime.pool.worker.coroutines import CoroutineLoop
from fray.runtime.pool.worker.execution import Call, Execution
from fray.runtime.pool.worker.failures import no_thread
from fray.runtime.pool.worker.functions import Function
from fray.runtime.pool.worker.threads import ElasticThreads, Inbox, Work, start_apart, threads_of_tasks

__all__ = ["ENDED_ITSELF", "IDLE_SECONDS", "SHUT_DOWN", "UNTIL_END", "ActorHost"]

ENDED_ITSELF: Final = "it has ended itself"
"""What callers learn of an actor whose own code was done."""
SHUT_DOWN: Final = "__shut_down__"
"""The method that asks an actor to end, and returns whether it cares: who doesn't can be ended at once."""
IDLE_SECONDS: Final = "__idle_seconds__"
"""The method that returns for how long nobody has called it, since its constructor returned."""
UNTIL_END: Final = "__until_end__"
"""The method that never returns: its call fails once the actor ends, and no sooner."""
APART: Final = (PROBE, SHUT_DOWN, IDLE_SECONDS, UNTIL_END)
"""Methods of this host, none of which waits for its turn or takes one, whatever the actor is busy with."""

FAILURE_TEXT: Final = 1_000
"""Characters that are told of what an actor fails with, besides the exception itself."""


class TellEnd(Protocol):
    """Sends a message; `soon`: more calls follow, so that it may wait for the next one."""

    def __call__(self, message: TaskDone | ActorReady | ActorEnded, *, soon: bool = False) -> None: ...


class _Actor:
    """One actor; the fields below `lock` are used with it held."""

    def __init__(
        self, command: CreateActor, threads: ElasticThreads, life: ActorLife, on_wait: OnWait
    ) -> None:
        spec = command.spec
        self.spec = spec
        self.incarnation = command.incarnation
        self.constructing = RunningTask(spec.id, spec.class_name, on_wait)
        self._threads = threads
        self.lock = threading.Lock()
        self.instance: object = None
        self.ready = False
        self.used = 0.0
        """When it was called last, or a call of it ended, on the clock of `time.monotonic`."""
        self.draining = False
        self.leaving = False
        """Whether it ends by its own will: more calls may come still, which aren't taken."""
        self.why = ""
        """Why it does, for its callers."""
        self.ended = False
        self.early: BaseException | None = None
        """What code of its constructor has said that it fails with."""
        self.waiting: deque[Call] = deque()
        self.running: dict[ObjectId, Call] = {}
        self.bounded: set[ObjectId] = set()
        """Generators among these that wait for their readers when they are far ahead."""
        self.loop = CoroutineLoop()
        self.life = life
        self._async: dict[str, bool] = {}
        """Which methods that were called are coroutine functions."""
        self.inbox: Inbox | None = None
        """What its own thread is to do; None: it has none."""
        if spec.max_concurrency == 1:
            inbox: Inbox = queue.SimpleQueue()
            self.inbox = inbox
            start_apart(lambda: threads.serve(inbox), f"fray-{spec.class_name}", daemon=threads.daemon)

    def run(self, work: Work) -> None:
        """Run work of this actor in its own thread, or in any."""
        if self.inbox is not None:
            self.inbox.put(work)
        else:
            self._threads.run(work)

    def end(self) -> bool:
        """Let go of the object; return whether that is the actor's end, and not only told again."""
        with self.lock:
            first, self.ended, self.ready = not self.ended, True, False
            self.instance = None
        return first

    def close(self) -> None:
        """Let the actor's code know of the end, and its threads end after what they have been given."""
        self.life.ask_to_end()
        self.loop.close(wait=False)
        if self.inbox is not None:
            self.inbox.put(None)

    def is_async(self, method: str) -> bool:
        """Whether a method is a coroutine function; seen in the class, so that no user code runs."""
        known = self._async.get(method)
        if known is None:
            found = inspect.getattr_static(type(self.instance), method, None)
            known = self._async[method] = inspect.iscoroutinefunction(found)
        return known


class ActorHost:
    """The actors of one worker.

    Parameters: `execution` of calls; `threads` to run them on; `on_wait` is called when a call waits; `tell`
    sends messages; `on_idle` is called when a call or an actor has ended; `unbound` lets a generator go ahead
    of its reader by any number.
    """

    def __init__(
        self,
        execution: Execution,
        threads: ElasticThreads,
        *,
        on_wait: OnWait,
        tell: TellEnd,
        on_idle: Callable[[], None],
        unbound: Callable[[ObjectId], None],
    ) -> None:
        self._execution = execution
        self._threads = threads
        self._on_wait = on_wait
        self._tell = tell
        self._on_idle = on_idle
        self._unbound = unbound
        self._lock = threading.Lock()
        self._actors: dict[ActorId, _Actor] = {}
        self._callees: dict[ObjectId, _Actor] = {}
        """Actors by the calls that they haven't ended."""

    @property
    def idle(self) -> bool:
        """Whether no call runs or waits."""
        with self._lock:
            return not self._callees

    def borrow(self) -> RunningTask | None:
        """Return what lends an actor's CPUs for a thread that none of its calls runs.

        None where there are several actors: those that share a process hold no CPUs.
        """
        with self._lock:
            lone = next(iter(self._actors.values())) if len(self._actors) == 1 else None
        return None if lone is None else lone.constructing

    def find_idle_inbox(self) -> Inbox | None:
        """Return what the only actor's own thread is to do; None: it has none, or calls wait."""
        actors = tuple(self._actors.values())
        if len(actors) != 1:
            return None
        (actor,) = actors
        with actor.lock:  # a call that another thread starts just now is in the inbox afterwards
            return None if actor.waiting else actor.inbox

    def create(self, command: CreateActor, function: Function) -> None:
        """Begin to construct an actor; ActorReady or ActorEnded tell how that went."""
        spec = command.spec

        def end(error: BaseException | None) -> None:
            self._end_itself(actor, error)

        try:
            life = ActorLife(end, label=spec.name or spec.class_name)
            actor = _Actor(command, self._threads, life, self._on_wait)
        except RuntimeError as error:
            failure = no_thread(spec.name or spec.class_name, error)
            self._tell(ActorEnded(spec.id, command.incarnation, failure))
            return
        with self._lock:
            self._actors[spec.id] = actor
        if command.spec.on_loop:
            construct = self._construct_on_loop(actor, command, function)
            actor.loop.start(construct, context=self._execution.new_context())
        else:
            actor.run(lambda: self._construct(actor, command, function))

    def call(self, command: RunTask, consume: Callable[[Call, object], object]) -> None:
        """Let a call of a method wait for its turn."""
        spec = command.spec
        with self._lock:
            actor = self._actors.get(spec.actor)
            if actor is not None and spec.method not in APART:
                self._callees[spec.id] = actor
        if actor is None:
            story = (f"actor {spec.actor:x} is not in this worker",)
            self._tell(TaskDone(spec.id, Failed(b"", "ActorDiedError", spec.name, story=story)))
            return
        if spec.method in APART:
            self._answer(actor, spec)
            return
        running = RunningTask(spec.id, spec.name, self._on_wait)
        call = Call(running, command, lambda: find_method(actor.instance, spec.method), consume, actor.loop)
        with actor.lock:
            ends = actor.leaving
            if not ends:
                actor.used = time.monotonic()
                actor.waiting.append(call)
                self._start_waiting(actor)
        if ends:  # the head fails all calls that it has sent, once it hears of the end
            with self._lock:
                self._callees.pop(spec.id, None)

    def cancel(self, id: ObjectId) -> None:  # noqa: A002
        """Take a call from what waits and tell its end, or interrupt it."""
        with self._lock:
            actor = self._callees.get(id)
        if actor is None:
            return
        with actor.lock:
            dropped = next((call for call in actor.waiting if call.running.id == id), None)
            if dropped is not None:
                actor.waiting.remove(dropped)
            under_way = actor.running.get(id)
        if under_way is not None:
            under_way.running.interrupt()
        elif dropped is not None:
            with self._lock:
                self._callees.pop(id, None)
            self._tell(TaskDone(id, self._execution.cancelled(dropped.running.name)))
            self._check_end(actor)

    def end(self, command: EndActor) -> None:
        """Drop an actor, at once or after its calls; an earlier incarnation is gone already."""
        with self._lock:
            actor = self._actors.get(command.actor)
        if actor is None or actor.incarnation != command.incarnation:
            return
        with actor.lock:
            actor.draining = True
            self._unbound_generators(actor)
            dropped = [] if command.drain else list(actor.waiting)
            under_way = [] if command.drain else list(actor.running.values())
            if not command.drain:
                actor.waiting.clear()
        with self._lock:
            for call in (*dropped, *under_way):  # nobody waits for what may hang
                self._callees.pop(call.running.id, None)
        actor.life.ask_to_end()
        if command.drain:
            self._check_end(actor)
            return
        actor.constructing.interrupt()
        for call in under_way:
            call.running.interrupt()
        self._end(actor, None)

    def ask_to_end(self) -> None:
        """Let all actors know that their process is to end."""
        with self._lock:
            actors = tuple(self._actors.values())
        for actor in actors:
            actor.life.ask_to_end()

    def close(self) -> None:
        """Let go of all actors, and let their threads end after what these run: the head is told nothing."""
        with self._lock:
            actors = tuple(self._actors.values())
            self._actors.clear()
        for actor in actors:
            if actor.end():
                actor.close()

    def _let_leave(self, actor: _Actor, why: str) -> None:
        """End an actor after the calls that it has got."""
        with actor.lock:
            actor.leaving = actor.draining = True
            actor.why = actor.why or why
            self._unbound_generators(actor)
        self._check_end(actor)

    def _answer(self, actor: _Actor, call: TaskSpec) -> None:
        """Carry out a call of one of the methods `APART`."""
        if call.method == UNTIL_END or (call.method == PROBE and actor.leaving):
            return  # the head fails all calls that it has sent, once it hears of the end
        if call.method == PROBE:
            self._tell(TaskDone(call.id, self._execution.keep(call.id, None)))
            return
        if call.method == IDLE_SECONDS:
            with actor.lock:
                seconds = 0.0 if actor.waiting or actor.running else time.monotonic() - actor.used
            self._tell(TaskDone(call.id, self._execution.keep(call.id, seconds)))
            return
        self._tell(TaskDone(call.id, self._execution.keep(call.id, actor.life.watched)))
        if actor.life.watched:
            actor.life.ask_to_end()
            self._let_leave(actor, "it was asked to end")

    def _end_itself(self, actor: _Actor, error: BaseException | None) -> None:
        """End an actor as its own code says: after its calls, or at once with what it fails with."""
        if error is None:
            self._let_leave(actor, ENDED_ITSELF)
            return
        name = actor.spec.name or actor.spec.class_name
        failure, why = self._execution.error(error, name), f"{type_name(error)}: {text_of(error)}"
        with actor.lock:
            if not actor.ready:
                actor.early = actor.early or error
                return
            actor.leaving = True
            actor.waiting.clear()
            # Those that call this are interrupted last.
            under_way = sorted(actor.running.values(), key=lambda call: call.running.runs_here())
            actor.running.clear()
        with self._lock:
            for id in [id for id, callee in self._callees.items() if callee is actor]:  # noqa: A001
                del self._callees[id]
        self._end(actor, failure, cut(why, FAILURE_TEXT))
        for call in under_way:
            call.running.interrupt()

    async def _construct_on_loop(self, actor: _Actor, command: CreateActor, function: Function) -> None:
        self._construct(actor, command, function)

    def _construct(self, actor: _Actor, command: CreateActor, function: Function) -> None:
        def resolve() -> Callable[..., Any]:
            set_current_life(actor.life)
            made_by = function.resolve()

            def make(*args: Any, **kwargs: Any) -> object:
                instance = made_by(*args, **kwargs)
                if actor.early is not None:
                    raise actor.early
                return instance

            return make

        try:
            instance = self._execution.construct(actor.constructing, command, resolve)
        except TaskInterrupt:
            return  # the code that interrupted it has ended the actor
        except BaseException as error:  # noqa: BLE001 - whatever the constructor raises is the actor's end
            self._end(actor, self._execution.error(error, command.spec.name or command.spec.class_name))
            return
        with actor.lock:
            if actor.ended:
                return
            actor.instance, actor.ready, actor.used = instance, True, time.monotonic()
            self._tell(ActorReady(command.spec.id, command.incarnation))
            self._start_waiting(actor)
        self._check_end(actor)

    def _start_waiting(self, actor: _Actor) -> None:
        """Start the calls whose turn it is. The actor's lock is held, so that they start in order."""
        while actor.ready and actor.waiting and len(actor.running) < actor.spec.max_concurrency:
            call = actor.waiting.popleft()
            spec = call.command.spec
            actor.running[spec.id] = call
            if spec.streaming:
                actor.bounded.add(spec.id)
            try:
                if not spec.streaming and (actor.spec.on_loop or actor.is_async(spec.method)):
                    self._start_async(actor, call)
                else:
                    actor.run(partial(self._run, actor, call))
            except RuntimeError as error:  # no thread can be started for it: the others may have theirs
                del actor.running[spec.id]
                with self._lock:
                    self._callees.pop(spec.id, None)
                self._tell(TaskDone(spec.id, no_thread(spec.name, error)))
        if actor.waiting or actor.draining:
            self._unbound_generators(actor)

    def _unbound_generators(self, actor: _Actor) -> None:
        """Let generators run to their ends while calls wait for their place. The actor's lock is held.

        The call that waits may be the one whose result the generator's reader waits for.
        """
        while actor.bounded:
            self._unbound(actor.bounded.pop())

    def _run(self, actor: _Actor, call: Call) -> None:
        self._finish(actor, self._execution.run(call))

    def _start_async(self, actor: _Actor, call: Call) -> None:
        def end(error: Exception | None) -> None:
            if error is not None:  # code of the actor has cancelled it before it began
                self._finish(actor, self._execution.ended_unrun(call))

        actor.loop.start(self._run_async(actor, call), context=self._execution.new_context(), end=end)

    async def _run_async(self, actor: _Actor, call: Call) -> None:
        self._finish(actor, await self._execution.run_async(call))

    def _finish(self, actor: _Actor, done: TaskDone) -> None:
        with actor.lock:
            # An actor that has failed had told so: a word about the call would be one about its next try.
            actor.bounded.discard(done.id)
            if actor.running.pop(done.id, None) is not None:
                actor.used = time.monotonic()
                self._tell(done, soon=bool(actor.waiting))
            with self._lock:
                self._callees.pop(done.id, None)
            if actor.waiting:
                self._start_waiting(actor)
        if actor.draining:
            self._check_end(actor)
        self._on_idle()

    def _check_end(self, actor: _Actor) -> None:
        """End an actor that is to end after its calls, if it has none."""
        with actor.lock:
            over = actor.draining and actor.ready and not actor.waiting and not actor.running
        # Where threads are daemons, the process is a program's own, and so are its other threads.
        if over and actor.life.watched and not self._threads.daemon:
            start_apart(lambda: self._linger(actor), "fray-actor-end")
        elif over:
            self._end(actor, None, actor.why)

    def _linger(self, actor: _Actor) -> None:
        """End an actor that ends by its own will, once its threads have ended that a program waits for."""
        for thread in threads_of_tasks():
            thread.join()
        self._end(actor, None, actor.why)

    def _end(self, actor: _Actor, failure: Failed | None, why: str = "") -> None:
        if not actor.end():
            return
        with self._lock:
            if self._actors.get(actor.spec.id) is actor:
                del self._actors[actor.spec.id]
        self._tell(ActorEnded(actor.spec.id, actor.incarnation, failure, why))
        actor.close()
        self._on_idle()
