"""Tasks and actors on Ray: the same engine in the driver and in Ray's workers.

What the workers run is in `ray_tasks`, what options mean in `ray_options`, what failures become in
`ray_failures`, what is known of values and actors in `ray_values`. Where a Ray comes from is decided in
`ray`.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import ray
from ray import exceptions as ray_errors
from ray.util import get_placement_group, list_named_actors, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from fray.errors import (
    ActorDiedError,
    ActorExistsError,
    ActorNotFoundError,
    ObjectLostError,
    SerializationError,
    TaskCancelledError,
    TaskTimeoutError,
    UnschedulableError,
)
from fray.job.actor_methods import ActorMethods
from fray.job.actors import ActorHandle
from fray.job.calls import Call, MethodCall
from fray.job.context import JobContext
from fray.job.engine import END, LATE, ContextStats, EngineBase, deadline_after, time_left
from fray.job.engine_pods import holds
from fray.job.options import ActorOptions, Lifetime, TaskOptions
from fray.job.passing import list_items, refuse_generator
from fray.job.progress import FutureState
from fray.job.ray_failures import RetriedFailureError, build_failure, decode_failure
from fray.job.ray_node import read_offer_here
from fray.job.ray_options import (
    actor_arguments,
    check_fits,
    name_resources,
    resource_arguments,
    task_arguments,
)
from fray.job.ray_tasks import CONTROL, ActorHost, RayTask, raise_error, run_stream, run_task
from fray.job.ray_values import ActorCall, RayActor, RayEntry, RaySession, RayStream, is_there
from fray.job.refs import GeneratorFuture, ObjectRef
from fray.job.timeline import TaskRun
from fray.job.traits import Feature, refuse
from fray.vocabulary import ENV_WORKERS_ENGINE

__all__ = ["RayEngine", "latest_context"]

STREAM_ITEMS = 16
"""Items of a generator task that may wait for a reader; then the generator pauses, and keeps its CPU."""
GRACE_SECONDS = 5.0
"""How long a cancelled task may take to end before its worker is ended."""
LISTEN_SECONDS = 1.0
"""Between two looks of a thread that waits for values, whether anybody still wants to hear of them."""
NAME_SECONDS = 0.01
"""Between two looks whether the name of a dead actor is free."""
LEAVE_SECONDS = 0.5
"""The same at the end of a context."""
ASKING_SECONDS = 1.0
"""How long Ray's own thread may take to cancel tasks, until nobody waits for it."""


class RayEngine(EngineBase):
    """Runs tasks and actors on Ray; see `Engine`.

    `stop` ends the Ray with the context, or leaves it; None: it goes on. In Ray's workers (`driver` is
    false) `shutdown` does nothing, since contexts are the driver's.
    """

    kind = "ray"
    items_are_refs = True

    def __init__(
        self, session: RaySession, *, driver: bool = False, stop: Callable[[], None] | None = None
    ) -> None:
        self.session = session
        self.token = session.token
        self.home = f"ray at {session.cluster}"
        self._driver = driver
        self._stop = stop
        self._tasks: weakref.WeakSet[RayEntry] = weakref.WeakSet()
        self._actors: weakref.WeakSet[Any] = weakref.WeakSet()
        self._named: dict[Any, Any] = {}
        """Handles of the named actors that were made here, by their ids: they live as long as the context."""
        self._killed: set[str] = set()
        """Actors that were ended for good by this process."""
        self._offer: dict[str, float] = {}
        self._subscribed = threading.local()
        self._watches: dict[object, Callable[[Any], None]] = {}
        """One for each thread that waits for values, while anybody wants to hear of them."""
        _engines[self.token] = self

    # --- values --------------------------------------------------------------------------------------------

    def put(self, value: Any) -> RayEntry:
        """Keep a copy of a value; see `Engine`."""
        self._check_open()
        with _serializing("the value"):
            return RayEntry(ray.put(value))

    def take(self, ref: Any, deadline: float | None) -> Any:
        """Return the value of a ref; see `Engine`."""
        entry: RayEntry = ref._entry
        with self._reading(entry):
            while True:
                try:
                    return ray.get(entry.ref, timeout=time_left(_earlier(deadline, entry.expires)))
                except ray_errors.GetTimeoutError:
                    if self._is_late(entry, deadline):
                        return LATE

    def next_item(self, ref: Any, deadline: float | None) -> Any:
        """Return the entry of a generator's next item; see `Engine`."""
        stream: RayStream = ref._entry
        if stream.over:
            return END
        with self._reading(stream):
            if stream.failure is None:
                while not is_there(stream.source, time_left(_earlier(deadline, stream.expires))):
                    if self._is_late(stream, deadline):
                        return LATE
                with stream.lock:
                    try:
                        stream.failure = ray.get(next(stream.source))
                        if stream.failure is None:
                            return RayEntry(next(stream.source), stream.name, stream.actor)
                    except StopIteration:
                        if stream.cancelled:  # Ray (2.60) ends it without a failure, now and then
                            raise stream.cut_off from None
                        stream.over = True
                        return END
        raise decode_failure(stream.failure)

    def prefetch(self, entries: Sequence[Any], deadline: float | None) -> None:
        """Bring values here that are taken next, all at once."""
        if ray.is_initialized():
            self._await(entries, len(entries), deadline, fetch=True)

    def _await(self, pending: Sequence[Any], wanted: int, deadline: float | None, *, fetch: bool) -> None:
        unique = list({entry.id: entry.awaited for entry in pending}.values())
        expiring = [entry.expires for entry in pending if entry.expires is not None]
        patience = time_left(_earlier(deadline, *expiring))
        ray.wait(unique, num_returns=min(wanted, len(unique)), timeout=patience, fetch_local=fetch)

    def subscribe(self, entries: Sequence[Any], listener: Callable[[Any], None]) -> None:
        """Call `listener` with each entry once it is ready; see `Engine`. Values aren't brought here."""
        if not self._driver:
            self._awaited_here().extend(entries)
        watch = object()
        self._watches[watch] = listener
        threading.Thread(target=self._listen, args=(watch, list(entries), listener), daemon=True).start()

    def unsubscribe(self, entries: Iterable[Any], listener: Callable[[Any], None]) -> None:  # noqa: ARG002
        """Forget the listener: all of its entries, since nobody hears of a part of them."""
        for watch in [watch for watch, other in list(self._watches.items()) if other == listener]:
            self._watches.pop(watch, None)

    def _listen(self, watch: object, entries: list[RayEntry], listener: Callable[[Any], None]) -> None:
        while entries and watch in self._watches:
            # An item that somebody has just taken is unknown; at Ray's end all entries are ready.
            with contextlib.suppress(Exception):
                self._await(entries, 1, deadline_after(LISTEN_SECONDS), fetch=False)
            left = []
            for entry in entries:
                if entry.ready:
                    listener(entry)
                else:
                    left.append(entry)
            entries = left
        self._watches.pop(watch, None)

    def _awaited_here(self) -> list[RayEntry]:
        entries: list[RayEntry] = vars(self._subscribed).setdefault("entries", [])
        return entries

    @contextlib.contextmanager
    def blocking(
        self,
        wake: Callable[[], None],  # noqa: ARG002 - Ray interrupts tasks itself
        deadline: float | None = None,
    ) -> Iterator[None]:
        """Wait by Ray for what this thread has subscribed to, since only then a task lends its CPUs."""
        entries = self._awaited_here()
        entries[:] = [entry for entry in entries if not entry.ready]
        if entries:
            with contextlib.suppress(ValueError):  # another thread has taken an item
                self._await(entries, 1, deadline, fetch=False)
        yield

    def lend(self) -> Callable[[], None]:
        """Do nothing: a task lends its CPUs only while it waits by Ray itself."""
        return lambda: None

    def state_of(self, entry: Any, *, whole: bool) -> FutureState:
        """Return how far an entry is; see `Engine`. Without its value nobody knows whether it failed."""
        ready = is_there(entry.ref) if whole and isinstance(entry, RayStream) else entry.ready
        return "ready" if ready else "pending"

    def release(self, entry: Any) -> None:
        """Let a generator end that nobody reads. Ray counts references itself."""
        if isinstance(entry, RayStream) and not entry.over and not self._closed and ray.is_initialized():
            with contextlib.suppress(Exception):  # a finalizer: Ray may be ending
                if entry.call is not None:
                    entry.call.end()
                else:
                    # Not waited for: the collector may run this where Ray holds a lock that its thread wants.
                    _cancel([entry])

    @contextlib.contextmanager
    def _reading(self, entry: RayEntry) -> Iterator[None]:
        if entry.ended is not None:
            raise entry.ended.with_traceback(None)
        if not ray.is_initialized():
            raise entry.cut_off
        try:
            yield
        except ray_errors.RayError as error:
            if isinstance(error, ray_errors.ActorDiedError) and entry.call is not None:
                self._free_name(entry.actor, entry.call.handle)
            failure = build_failure(error, entry.name or f"object {entry.id}", entry.actor)
            raise (entry.cut_off if self._closed else failure) from failure.__cause__

    def _free_name(self, name: str, dead: Any) -> None:
        """Free a dead actor's name, which Ray keeps where the constructor has failed; wait a while for it."""
        deadline = time.monotonic() + GRACE_SECONDS
        with contextlib.suppress(ValueError):  # nobody has the name
            ray.kill(dead)
            while ray.get_actor(name, namespace=self.session.namespace) == dead:
                if time.monotonic() > deadline:
                    return
                time.sleep(NAME_SECONDS)

    def _is_late(self, entry: RayEntry, deadline: float | None) -> bool:
        """Return whether the deadline has passed. A call whose own time is up raises `TaskTimeoutError`."""
        if entry.call is not None and entry.late:
            entry.ended = TaskTimeoutError(entry.name, entry.call.limit or 0.0)
            entry.call.end()
            raise entry.ended
        return time_left(deadline) == 0.0

    # --- tasks ---------------------------------------------------------------------------------------------

    def submit(self, call: Call, options: TaskOptions, *, streaming: bool) -> RayEntry:
        """Start a task; see `Engine`."""
        self._check_open()
        name = options.name or call.name
        wanted = name_resources({"CPU": 1.0, **(options.resources or {})})
        if options.resources is not None:
            try:
                self._check_fits(name, wanted)
            except UnschedulableError as error:
                return self._fail(error, streaming=streaming)
        args, kwargs = self._arguments(call.args, call.kwargs)
        arguments = {"name": name, **task_arguments(options), **resource_arguments(wanted)}
        if options.retry_exceptions is not False:
            arguments["retry_exceptions"] = [RetriedFailureError]
        if self.session.cpus and set(wanted) <= {"CPU"} and wanted.get("CPU", 0.0) <= self.session.cpus:
            arguments["scheduling_strategy"] = _group_of(self.token)
        remote = _remote_task(options.max_calls or 0, streaming=streaming)
        task = RayTask(name, options.timeout, options.retry_exceptions)
        with _serializing(f"the call of {name!r}"):
            made = remote.options(**arguments).remote(self, task, call.function, *args, **kwargs)
        entry = RayStream(made, name) if streaming else RayEntry(made, name)
        entry.is_task = True
        self._tasks.add(entry)
        return entry

    def _arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        named = {name: self._argument(part) for name, part in kwargs.items()}
        return [self._argument(part) for part in args], named

    def _argument(self, part: Any) -> Any:
        """Return what Ray turns into the value: its own ref."""
        if not isinstance(part, ObjectRef):
            return part
        if part._engine.home != self.home:
            raise ObjectLostError(part.id, "it belongs to another context")
        try:
            ref = list_items(self, part) if isinstance(part, GeneratorFuture) else part
        except Exception as error:  # noqa: BLE001 - the task that gets it fails with it
            return self._fail(error, streaming=False).ref
        entry: RayEntry = ref._entry
        return entry.ref if entry.ended is None else self._fail(entry.ended, streaming=False).ref

    def _fail(self, error: Exception, *, streaming: bool) -> RayEntry:
        """Start a task that fails."""
        nothing = TaskOptions(resources={"CPU": 0}, retries=0)
        return self.submit(Call(raise_error, (error,), {}), nothing, streaming=streaming)

    def _check_fits(self, name: str, wanted: Mapping[str, float]) -> None:
        """Raise `UnschedulableError` where no node that there is, or may come, could ever hold it."""
        if not wanted or not (self.session.fixed or self._find_offer()) or holds(self._offer, wanted):
            return
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        check_fits(name, wanted, [*nodes, self._offer] if self._offer else nodes)

    def _find_offer(self) -> bool:
        """Return whether it's known what each worker of the job offers that has this Ray."""
        of_job = os.environ.get(ENV_WORKERS_ENGINE) == "ray"  # noqa: TID251 - as the context was found
        if of_job and not self._offer:
            self._offer = read_offer_here()
        return bool(self._offer)

    def cancel(self, entry: Any, *, force: bool) -> None:
        """Interrupt a task where Python code runs; end its worker if that doesn't help, or by `force`."""
        if not ray.is_initialized() or is_there(entry.ref):
            return
        if entry.call is not None:
            entry.ended = TaskCancelledError(entry.name)
            entry.call.end()
        elif entry.is_task:
            _cancel([entry], force=force).wait(ASKING_SECONDS)
            if not force:
                threading.Thread(target=_insist, args=(entry,), daemon=True).start()

    # --- actors --------------------------------------------------------------------------------------------

    def create_actor(self, call: Call, options: ActorOptions) -> RayActor:
        """Start an actor; see `Engine`. Returns before the constructor has: what it raises, calls raise."""
        self._check_open()
        label = options.name or call.name
        wanted = name_resources(options.resources or {})
        self._check_fits(label, wanted)
        args, kwargs = self._arguments(call.args, call.kwargs)
        arguments = {**actor_arguments(options, self.session.namespace), **resource_arguments(wanted)}
        with _serializing(f"the constructor's call of {label!r}"):
            try:
                handle = (
                    _remote_host().options(**arguments).remote(self, label, call.function, *args, **kwargs)
                )
            except ray_errors.ActorAlreadyExistsError:
                raise ActorExistsError(label) from None
        if options.lifetime is not Lifetime.DETACHED:
            self._actors.add(handle)
            if options.name is not None:
                # A handle of an actor that was there is weak: with the first one, Ray ends the actor.
                self._named.setdefault(handle._actor_id, handle)
        methods = None if options.get_if_exists else ActorMethods.of(call.function, call.name, options.name)
        return RayActor(self.session, handle, label, methods)

    def find_actor(self, name: str) -> RayActor:
        """Return the actor that has a name; see `Engine`."""
        self._check_open()
        try:
            handle = ray.get_actor(name, namespace=self.session.namespace)
        except ValueError:
            raise ActorNotFoundError(name, self._names()) from None
        return RayActor(self.session, handle, name, None)

    def _names(self) -> tuple[str, ...]:
        known: list[Any] = list_named_actors(all_namespaces=True)
        return tuple(sorted(one["name"] for one in known if one["namespace"] == self.session.namespace))

    def call_actor(self, actor: RayActor, call: MethodCall, *, streaming: bool) -> RayEntry:
        """Call a method of an actor; see `Engine`."""
        name, options = f"{actor.label}.{call.method}", call.options
        if self._closed or actor.id in self._killed:
            # Ray ends an actor some time after it was asked to: a call in between would be carried out.
            entry = RayEntry(None, name, actor.label)
            entry.ended = entry.cut_off if self._closed else ActorDiedError(actor.label, "it was killed")
            return entry
        made = ActorCall(actor.handle, uuid.uuid4().hex, options.timeout, deadline_after(options.timeout))
        given, named = self._arguments(call.args, call.kwargs)
        how = RayTask(name, None, retry_exceptions=False)
        remote = actor.handle.stream if streaming else actor.handle.call
        chosen = {} if options.max_task_retries is None else {"max_task_retries": options.max_task_retries}
        with _serializing(f"the call of {name!r}"):
            ref = remote.options(name=name, **chosen).remote(made.id, how, call.method, *given, **named)
        entry = (RayStream if streaming else RayEntry)(ref, name, actor.label)
        entry.call = made
        return entry

    def kill(self, actor: RayActor) -> None:
        """End an actor for good; see `Engine`."""
        self._named.pop(actor.handle._actor_id, None)
        self._killed.add(actor.id)
        self._free_name(actor.label, actor.handle)

    # --- pickling ------------------------------------------------------------------------------------------

    def reduce_ref(self, ref: Any) -> tuple[Any, ...]:
        """Return what makes the ref again in any process of this Ray."""
        refuse_generator(ref)
        entry: RayEntry = ref._entry
        door = _Door(self.session, ref.name, is_actor=False)
        return _read_ref, (door, entry.ref, entry.name, entry.actor, entry.is_task)

    def reduce_handle(self, handle: Any) -> tuple[Any, ...]:
        """Return what makes the handle again in any process of this Ray."""
        actor: RayActor = handle._actor
        door = _Door(self.session, actor.label, is_actor=True)
        return _read_handle, (door, actor.handle, actor.label, actor._methods)

    def __reduce__(self) -> tuple[Any, ...]:
        return _find_engine, (self.session, self.token, False)

    # --- the engine itself ---------------------------------------------------------------------------------

    def stats(self) -> ContextStats:
        """Raise `UnsupportedFeatureError`: the counts are Ray's."""
        raise refuse("ray", Feature.STATS)

    def runs(self) -> list[TaskRun]:
        """Raise `UnsupportedFeatureError`: the counts are Ray's."""
        raise refuse("ray", Feature.TIMELINE)

    def count_running(self) -> None:
        """Return None: nobody here knows."""

    def shutdown(self) -> None:
        """See `Engine`. A Ray that was there before the context goes on, without its tasks and actors."""
        if not self._driver or self._closed:
            return
        self._closed = True
        if ray.is_initialized():
            _cancel([]).wait(ASKING_SECONDS)  # until Ray was asked for what finalizers wanted
        if self._stop is not None:
            self._stop()
        elif ray.is_initialized():
            self._leave()

    def _leave(self) -> None:
        for actor in list(self._actors):
            with contextlib.suppress(ray_errors.RayError, ValueError):  # it has ended
                ray.kill(actor)
        self._named.clear()
        running = [entry for entry in list(self._tasks) if not is_there(entry.ref)]
        if running:
            _cancel(running, recursive=True).wait(ASKING_SECONDS)
            refs = [entry.ref for entry in running]
            ray.wait(refs, num_returns=len(refs), timeout=LEAVE_SECONDS, fetch_local=False)
            stubborn = [entry for entry in running if not is_there(entry.ref)]
            _cancel(stubborn, force=True, recursive=True).wait(ASKING_SECONDS)
        if self.session.cpus:
            remove_placement_group(get_placement_group(self.token))


# --- engines of this process, and what finds them ----------------------------------------------------------

_engines: weakref.WeakValueDictionary[str, RayEngine] = weakref.WeakValueDictionary()
_served: dict[str, JobContext] = {}
"""Contexts that this process, a worker of Ray, was given tasks of, by their tokens."""


def latest_context() -> JobContext | None:
    """Return the context of which a worker of Ray has heard last; None elsewhere."""
    return next(reversed(_served.values()), None)


class _Door:
    """Leads to the engine where a pickled ref or handle is read, before Ray makes what it stands for.

    In a process without that Ray, reading it raises.
    """

    def __init__(self, session: RaySession, name: str, *, is_actor: bool) -> None:
        self._way = (session, name, is_actor)

    def __reduce__(self) -> tuple[Any, ...]:
        return _find_engine, self._way


def _find_engine(session: RaySession, name: str, is_actor: bool) -> RayEngine:  # noqa: FBT001 - pickle calls it
    engine = _engines.get(session.token)
    if engine is None:
        if not ray.is_initialized() or ray.get_runtime_context().gcs_address != session.cluster:
            if is_actor:
                raise ActorNotFoundError(name)
            raise ObjectLostError(name, "this process is not of the Ray that has it")
        engine = RayEngine(session)
        _served[session.token] = JobContext(engine)
    return engine


def _read_ref(engine: RayEngine, ref: Any, name: str, actor: str, is_task: bool) -> ObjectRef[Any]:  # noqa: FBT001
    entry = RayEntry(ref, name, actor)
    entry.is_task = is_task
    return ObjectRef(engine, entry, name, actor)


def _read_handle(
    engine: RayEngine, handle: Any, label: str, methods: ActorMethods | None
) -> ActorHandle[Any]:
    return ActorHandle(engine, RayActor(engine.session, handle, label, methods))


# --- Ray itself --------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _remote_task(max_calls: int, *, streaming: bool) -> Any:
    if not streaming:
        return ray.remote(max_calls=max_calls)(run_task)
    # Two objects stand for an item.
    ahead = 2 * STREAM_ITEMS
    how: dict[str, Any] = {"num_returns": "streaming", "_generator_backpressure_num_objects": ahead}
    return ray.remote(max_calls=max_calls, **how)(run_stream)


@lru_cache(maxsize=1)
def _remote_host() -> Any:
    how: dict[str, Any] = {"concurrency_groups": {CONTROL: 1}}
    return ray.remote(**how)(ActorHost)


@lru_cache(maxsize=64)
def _group_of(token: str) -> PlacementGroupSchedulingStrategy:
    return PlacementGroupSchedulingStrategy(get_placement_group(token))


def _insist(entry: RayEntry) -> None:
    with contextlib.suppress(Exception):  # Ray has ended, and with it the task
        if not is_there(entry.ref, GRACE_SECONDS):
            _cancel([entry], force=True).wait(ASKING_SECONDS)


def _cancel(entries: Sequence[RayEntry], *, force: bool = False, recursive: bool = False) -> threading.Event:
    """Ask Ray to cancel tasks, in the thread in which Ray hears that tasks have ended.

    In any other thread, Ray (2.60) ends this process where one of them ends at that moment: its check in
    task_manager.cc fails, "Tried to complete task that was not pending". Returns what is set once Ray was
    asked, which must be before Ray ends.
    """
    ready, asked = ray.put(None), threading.Event()
    refs = [entry.ref for entry in entries]
    for entry in entries:
        entry.cancelled = True

    def cancel(_value: object, _kept: object = ready) -> None:
        for ref in refs:
            ray.cancel(ref, force=force, recursive=recursive)
        asked.set()

    ready._on_completed(cancel)  # what Ray calls because a value is there, it calls in that thread
    return asked


@contextlib.contextmanager
def _serializing(what: str) -> Iterator[None]:
    try:
        yield
    except (TypeError, pickle.PicklingError) as error:
        raise SerializationError(what, "", str(error)) from error


def _earlier(*deadlines: float | None) -> float | None:
    return min((deadline for deadline in deadlines if deadline is not None), default=None)
