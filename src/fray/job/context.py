"""What code inside a job calls: one class, whichever engine runs the tasks.

Engines differ in where tasks run, not in what these methods mean; the few differences stand in
docs/contexts.md and are tested. Nothing here runs anything.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    final,
    overload,
)

from fray.errors import GetTimeoutError, InvalidOptionError
from fray.job.actor_groups import ActorGroup, GroupMember
from fray.job.actors import ActorHandle
from fray.job.calls import (
    Call,
    actor_options,
    check_shared,
    read_call,
    takes_keyword,
)
from fray.job.checks import check_class, check_count, check_name
from fray.job.engine import ContextStats, Engine, deadline_after, time_left
from fray.job.mapping import ChunkSize, MapCall, start_map
from fray.job.options import ActorOptions, Lifetime, TaskOptions
from fray.job.progress import FutureState, total_of
from fray.job.progress_display import watching
from fray.job.refs import GeneratorFuture, ObjectRef, check_owned, read_ref, reader_of, submit_call
from fray.job.waiting import ReadyRefs, Rest, claim
from fray.offered_names import offer_names
from fray.settings import STATE_DIR
from fray.vocabulary import ENV_POOL_KEY, ENV_ROOT_JOB

if TYPE_CHECKING:
    from fray.job.named_actors import NamedActors

    T_co = TypeVar("T_co", covariant=True)
    R_contra = TypeVar("R_contra", bound=ObjectRef[Any], contravariant=True)

    class _TakesRefs(Protocol[R_contra, T_co]):  # noqa: PLW1641 - nobody hashes a type
        """A function whose keywords are refs, of which there is at least one.

        Where no keyword says what `R_contra` is, mypy takes what `__eq__` accepts. That is `object`, which is
        no ref, so that a call without keywords doesn't fit.
        """

        def __call__(self, *args: Any, **kwargs: Any) -> T_co: ...
        def __eq__(self, other: R_contra, /) -> bool: ...  # type: ignore[override]


__all__ = ["ContextStats", "JobContext", "context_of", "find_context"]

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound=ObjectRef[Any])
A = TypeVar("A")
B = TypeVar("B")

_DEFAULT = TaskOptions()
"""Shared, since making and checking options costs as much as encoding a small call."""


@final
class JobContext:
    """Runs tasks and actors, and holds the values they make, in the engine that it was made with.

    `create_job_ctx` makes one. Pickled, a context comes back as the same object in its own process, and as
    that process's current context elsewhere. As a context manager it is shut down at the end.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._survey = _Survey(engine)
        _contexts[engine.token] = self

    def put(self, obj: T) -> ObjectRef[T]:
        """Keep a value; return its ref. Other processes get a copy: later changes aren't seen there."""
        return ObjectRef(self._engine, self._engine.put(obj))

    @overload
    def get(self, ref: ObjectRef[T], *, timeout: float | None = None) -> T: ...
    @overload
    def get(self, ref: list[ObjectRef[T]], *, timeout: float | None = None) -> list[T]: ...
    @overload
    def get(self, ref: T, *, timeout: float | None = None) -> T: ...
    def get(self, ref: Any, *, timeout: float | None = None) -> Any:
        """Return the value of a ref, or of each ref in a list that holds at least one, in their order.

        Anything else comes back as the same object. Blocks up to `timeout` seconds (None: forever). An
        exception of the task is raised with its own type, again at each call. Arrays in a value are
        read-only where they are shared with other processes.

        Raises:
            GetTimeoutError: the value isn't there in time. Its task goes on.
            TaskError: the task gave no value: it was cancelled, lost, or took too long.
        """
        engine = self._engine
        if isinstance(ref, ObjectRef):
            return read_ref(check_owned(ref, engine), timeout, deadline_after(timeout))
        refs = [part for part in ref if isinstance(part, ObjectRef)] if isinstance(ref, list) else ()
        if not refs:
            return ref
        with watching("get", self._survey, ref):
            deadline = deadline_after(timeout)
            pending = [
                one._entry
                for one in refs
                if type(check_owned(one, engine)) is ObjectRef
                and not one._entry.ready
                and reader_of(one, engine) is engine
            ]
            if pending:
                engine.prefetch(pending, deadline)
            return [
                read_ref(part, timeout, deadline) if isinstance(part, ObjectRef) else part for part in ref
            ]

    def wait(
        self, futures: Sequence[T], num_returns: int = 1, timeout: float | None = None
    ) -> tuple[list[T], list[T]]:
        """Block until `num_returns` futures are ready (all, if there are fewer), or `timeout` seconds.

        Returns the ready ones, never more than `num_returns`, and the others: the same objects in their
        order. A future that failed is ready, and so is a generator whose next item is there or that has
        ended. Never raises what a task raised.

        Raises:
            InvalidOptionError: `num_returns` is below 1.
        """
        check_count("num_returns", num_returns, 1)
        left = claim(self._engine, futures)
        count = min(num_returns, left.length)
        ready = left.awaited.find(count)
        if len(ready) < count:
            with watching("wait", self._survey, Rest(left), count):
                ready = left.awaited.await_more(ready, count, deadline_after(timeout))
        return left.take(ready)

    def cancel(self, ref: ObjectRef[Any], *, force: bool = False) -> None:
        """Let a task that hasn't ended yield `TaskCancelledError`; one that hasn't started never runs.

        A task that runs is left alone with `force=False` where it can't be interrupted; its result is
        `TaskCancelledError` all the same. With `force`, worker processes are ended with a task that doesn't
        end. Does nothing to a value that is there. Doesn't wait until whoever runs the task has heard of it,
        so that a task which ends meanwhile keeps its value; `wait([ref])` tells when it is over.
        """
        reader_of(ref, self._engine).cancel(check_owned(ref, self._engine)._entry, force=force)

    def kill(self, actor: ActorHandle[Any]) -> None:
        """End an actor for good; its calls that have not ended raise `ActorDiedError`, and its name is free.

        It isn't constructed anew, whatever its options say. Does nothing to one that has ended.

        Raises:
            ObjectLostError: the actor belongs to another context.
            InvalidOptionError: it is no handle.
        """
        if not isinstance(actor, ActorHandle):
            raise InvalidOptionError("actor", repr(actor), "the handle of an actor")
        actor._kill(self._engine)

    @property
    def closed(self) -> bool:
        """Whether the context was shut down, or has ended otherwise."""
        return self._engine.closed

    @property
    def metrics_address(self) -> str:
        """The path of the unix socket that shows a pool's counts, as Prometheus text over HTTP.

        Raises:
            UnsupportedFeatureError: the context isn't on a pool.
            InvalidOptionError: called in a worker of a pool, whose counts are the driver's.
        """
        return self._engine.metrics_address

    def stats(self) -> ContextStats:
        """Return what the context has and did. A pool knows more (`PoolContextStats`).

        Raises:
            UnsupportedFeatureError: the context is on Ray, which counts for all its users.
            InvalidOptionError: called in a worker of a pool, whose counts are the driver's.
            PoolClosedError: the pool has ended.
        """
        return self._engine.stats()

    def shutdown(self) -> None:
        """End the context: tasks that have not ended are cancelled, actors die. May be called twice.

        In a worker of a pool it does nothing: the pool is the driver's.
        """
        self._engine.shutdown()

    # Type checkers take the first signature that fits. Python can't say "fn's parameters, or refs of them",
    # nor "and options besides": with either, arguments aren't checked. So each signature for those has a ref
    # or an option that must be given: else it would fit what the first ones refuse.
    @overload
    def run(
        self, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> ObjectRef[T]: ...
    @overload
    def run(
        self, fn: Callable[P, Iterator[T] | AsyncIterator[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> GeneratorFuture[T]: ...
    @overload
    def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> ObjectRef[T]: ...
    @overload
    def run(  # type: ignore[overload-cannot-match]
        self, fn: Callable[..., T], first: ObjectRef[Any], /, *args: Any, **kwargs: Any
    ) -> ObjectRef[T]: ...
    @overload
    def run(  # type: ignore[overload-cannot-match]
        self, fn: Callable[..., T], first: Any, second: ObjectRef[Any], /, *args: Any, **kwargs: Any
    ) -> ObjectRef[T]: ...
    @overload
    def run(  # type: ignore[overload-cannot-match]
        self,
        fn: Callable[..., T],
        first: Any,
        second: Any,
        third: ObjectRef[Any],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> ObjectRef[T]: ...
    @overload
    def run(self, fn: _TakesRefs[R, T], /, *args: Any, **kwargs: R) -> ObjectRef[T]: ...  # type: ignore[overload-cannot-match]
    @overload
    def run(  # type: ignore[overload-cannot-match]
        self,
        fn: Callable[..., T],
        /,
        *args: Any,
        options: TaskOptions | None,
        name: str | None = None,
        **kwargs: Any,
    ) -> ObjectRef[T]: ...
    @overload
    def run(self, fn: Callable[..., T], /, *args: Any, name: str | None, **kwargs: Any) -> ObjectRef[T]: ...  # type: ignore[overload-cannot-match]
    def run(  # type: ignore[misc]
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        name: str | None = None,
        options: TaskOptions | None = None,
        **kwargs: Any,
    ) -> ObjectRef[Any]:
        """Start `fn(*args, **kwargs)` as a task; return the ref of its result, at once.

        Refs among the arguments arrive as their values, after which the task starts; if one of them
        failed, the task fails with the same exception. Refs inside structures stay refs. A generator
        function gives a `GeneratorFuture`. The task sees a copy of the caller's context variables.
        `name` is for people; it wins over the name in `options`.
        """
        chosen = options or _DEFAULT
        return submit_call(
            self._engine, Call(fn, args, kwargs), replace(chosen, name=name) if name else chosen
        )

    def create_task(
        self, fn: Callable[..., T], /, *args: Any, options: TaskOptions | None = None, **kwargs: Any
    ) -> ObjectRef[T]:
        """Start a task, as `run` does; `args=` (a tuple) and `kwargs=` (a dict) are an older spelling."""
        return submit_call(self._engine, read_call(fn, args, kwargs), options or _DEFAULT)

    @overload
    def create_actor(self, cls: Callable[P, A], /, *args: P.args, **kwargs: P.kwargs) -> ActorHandle[A]: ...
    @overload
    def create_actor(  # type: ignore[overload-cannot-match]
        self,
        cls: Callable[..., A],
        /,
        *args: Any,
        name: str | None,
        get_if_exists: bool = False,
        lifetime: Lifetime | str | None = None,
        preemptible: bool = True,
        num_cpus: float | None = None,
        max_task_retries: int | None = None,
        idle_timeout: float | None = None,
        options: Any = None,
        **kwargs: Any,
    ) -> ActorHandle[A]: ...
    @overload
    def create_actor(  # type: ignore[overload-cannot-match]
        self, cls: Callable[..., A], first: ObjectRef[Any], /, *args: Any, **kwargs: Any
    ) -> ActorHandle[A]: ...
    @overload
    def create_actor(  # type: ignore[overload-cannot-match]
        self, cls: Callable[..., A], first: Any, second: ObjectRef[Any], /, *args: Any, **kwargs: Any
    ) -> ActorHandle[A]: ...
    @overload
    def create_actor(  # type: ignore[overload-cannot-match]
        self,
        cls: Callable[..., A],
        first: Any,
        second: Any,
        third: ObjectRef[Any],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> ActorHandle[A]: ...
    @overload
    def create_actor(self, cls: _TakesRefs[R, A], /, *args: Any, **kwargs: R) -> ActorHandle[A]: ...  # type: ignore[overload-cannot-match]
    @overload
    def create_actor(  # type: ignore[overload-cannot-match]
        self, cls: Callable[..., A], /, *args: Any, options: Any, **kwargs: Any
    ) -> ActorHandle[A]: ...
    @overload
    def create_actor(  # type: ignore[overload-cannot-match]
        self, cls: Callable[..., A], /, *args: Any, lifetime: Lifetime | str | None, **kwargs: Any
    ) -> ActorHandle[A]: ...
    @overload
    def create_actor(  # type: ignore[overload-cannot-match]
        self, cls: Callable[..., A], /, *args: Any, preemptible: bool, **kwargs: Any
    ) -> ActorHandle[A]: ...
    @overload
    def create_actor(  # type: ignore[overload-cannot-match]
        self, cls: Callable[..., A], /, *args: Any, num_cpus: float | None, **kwargs: Any
    ) -> ActorHandle[A]: ...
    @overload
    def create_actor(  # type: ignore[overload-cannot-match]
        self, cls: Callable[..., A], /, *args: Any, max_task_retries: int | None, **kwargs: Any
    ) -> ActorHandle[A]: ...
    @overload
    def create_actor(  # type: ignore[overload-cannot-match]
        self, cls: Callable[..., A], /, *args: Any, idle_timeout: float | None, **kwargs: Any
    ) -> ActorHandle[A]: ...
    @overload
    def create_actor(  # type: ignore[overload-cannot-match]
        self, cls: Callable[..., A], /, *, args: tuple[Any, ...], **kwargs: Any
    ) -> ActorHandle[A]: ...
    @overload
    def create_actor(  # type: ignore[overload-cannot-match]
        self, cls: Callable[..., A], /, *, kwargs: dict[str, Any], **more: Any
    ) -> ActorHandle[A]: ...
    def create_actor(  # type: ignore[misc]  # noqa: PLR0913 - the union of two APIs, all but the class by keyword
        self,
        cls: Callable[..., A],
        /,
        *args: Any,
        name: str | None = None,
        get_if_exists: bool = False,
        lifetime: Lifetime | str | None = None,
        preemptible: bool = True,
        num_cpus: float | None = None,
        max_task_retries: int | None = None,
        idle_timeout: float | None = None,
        options: Any = None,
        **kwargs: Any,
    ) -> ActorHandle[A]:
        """Make an instance of `cls` that lives in the context; return the handle to call its methods.

        Calls of one actor run in the order of their submission, `ActorOptions.max_concurrency` at once. An
        exception of a method leaves the actor alive. With `get_if_exists`, the actor that has the name is
        returned and the arguments are ignored; of several creators at once, one creates. `args=`,
        `kwargs=` and `options=` are an older spelling, as in `create_task`; `options` that is no
        `ActorOptions`, or that the class has a parameter for, is an argument of the class.
        `max_task_retries` says how often a call is made again that was lost with the actor's process: above 0
        only where each of its methods may run twice. `idle_timeout` ends an actor that is shared by jobs once
        nobody has called it for so many seconds.

        Raises:
            ActorExistsError: an actor has the name, and `get_if_exists` is false.
            ActorNotSharedError: in a job, it is named and detached; or in a job that another job launched,
                `get_if_exists` may mean an actor of that job, unless `lifetime` is "ephemeral".
        """
        check_class(cls)
        base = options if isinstance(options, ActorOptions) and not takes_keyword(cls, "options") else None
        if options is not None and base is None:
            kwargs["options"] = options
        chosen = actor_options(
            base,
            name=name,
            get_if_exists=get_if_exists,
            lifetime=lifetime,
            preemptible=preemptible,
            num_cpus=num_cpus,
            max_task_retries=max_task_retries,
            idle_timeout=idle_timeout,
        )
        environ = os.environ  # noqa: TID251 - which job a process is of
        named = _find_named_actors() if chosen.name is not None else None
        if named is not None:
            shared: ActorHandle[A] = named.create(read_call(cls, args, kwargs), chosen)
            return shared
        check_shared(chosen, own=lifetime is not None, environ=environ)
        return ActorHandle(self._engine, self._engine.create_actor(read_call(cls, args, kwargs), chosen))

    def create_actor_group(
        self,
        cls: Callable[..., A],
        /,
        *args: Any,
        name: str,
        count: int,
        get_if_exists: bool = False,
        options: ActorOptions | None = None,
        **kwargs: Any,
    ) -> ActorGroup[A]:
        """Make `count` instances of `cls`, the members of a group; return the group.

        Each is an actor by itself, whose constructor learns its index from `current_actor()`, and which
        `get_actor` finds as `{name}-{index}`. Where named actors are FrayActors, the group is one, with
        `count` replicas. With `get_if_exists` the group that has the name is returned, whose size is to be
        `count` unless it is a FrayActor. `options` are those of each member, but for `name` and
        `get_if_exists`.

        Raises:
            ActorExistsError: the group, or one of its members, has a name that is taken.
            ActorNotSharedError: as `create_actor`.
            Exception: what a constructor raises, in contexts that construct at once. After an error there is
                no member.
        """
        check_class(cls)
        check_name("name", name)
        check_count("count", count, 1)
        chosen = replace(options or ActorOptions(), name=name, get_if_exists=get_if_exists)
        if (named := _find_named_actors()) is not None:
            shared = named.create_group(Call(GroupMember(cls, name), args, kwargs), chosen, count)
            return ActorGroup(name, shared, self.kill)
        check_shared(chosen, own=True, environ=os.environ)  # noqa: TID251 - which job a process is of
        members: list[ActorHandle[A]] = []
        try:
            for index in range(count):
                call = Call(GroupMember(cls, name, index), args, kwargs)
                made = self._engine.create_actor(call, replace(chosen, name=f"{name}-{index}"))
                members.append(ActorHandle(self._engine, made))
        except BaseException:
            # Those of a group that may be there already belong to others, too.
            for each in members if not get_if_exists else ():
                self.kill(each)
            raise
        return ActorGroup(name, members, self.kill)

    def get_actor(self, name: str) -> ActorHandle[Any]:
        """Return the handle of the actor that was created under a name, in any process of the context.

        Raises:
            ActorNotFoundError: no actor of this context has the name; says which names there are.
            InvalidOptionError: it is no name.
        """
        check_name("name", name)
        if not name:
            raise InvalidOptionError("name", repr(name), "the name that an actor was created with")
        if (named := _find_named_actors()) is not None:
            shared: ActorHandle[Any] = named.find(name)
            return shared
        return ActorHandle(self._engine, self._engine.find_actor(name))

    @overload
    def map(
        self,
        fn: Callable[[A], T],
        one: Iterable[A],
        /,
        *,
        options: TaskOptions | None = None,
        ahead: int = 256,
        ordered: bool = True,
        chunksize: ChunkSize = 1,
    ) -> Iterator[T]: ...
    @overload
    def map(
        self,
        fn: Callable[[A, B], T],
        one: Iterable[A],
        two: Iterable[B],
        /,
        *,
        options: TaskOptions | None = None,
        ahead: int = 256,
        ordered: bool = True,
        chunksize: ChunkSize = 1,
    ) -> Iterator[T]: ...
    @overload
    def map(
        self,
        fn: Callable[..., T],
        one: Iterable[Any],
        two: Iterable[Any],
        three: Iterable[Any],
        /,
        *iterables: Iterable[Any],
        options: TaskOptions | None = None,
        ahead: int = 256,
        ordered: bool = True,
        chunksize: ChunkSize = 1,
    ) -> Iterator[T]: ...
    def map(
        self,
        fn: Callable[..., Any],
        /,
        *iterables: Iterable[Any],
        options: TaskOptions | None = None,
        ahead: int = 256,
        ordered: bool = True,
        chunksize: ChunkSize = 1,
    ) -> Iterator[Any]:
        """Yield `fn` of each item (of several iterables side by side), in their order, or as they are ready.

        At most `ahead` tasks are submitted whose result wasn't taken, so that an endless input is fine.
        `chunksize` items go into one task; "auto" packs as many as take some 20 ms, for functions that take
        microseconds. Items of one task fail together, `options` count for all of them, and refs among them
        stay refs.

        Raises:
            InvalidOptionError: `ahead` or `chunksize` is below 1.
        """
        single = len(iterables) == 1
        items = iter(iterables[0]) if single else zip(*iterables, strict=False)
        call = MapCall(
            fn, items, total_of(iterables), not single, options or _DEFAULT, ahead, ordered, chunksize
        )
        return start_map(self._engine, self._survey, call)

    def save_timeline(self, path: str | os.PathLike[str]) -> None:
        """Write what ran when and where as a Chrome trace, which ui.perfetto.dev and chrome://tracing show.

        One row a worker; at most the last 10,000 runs that have ended.

        Raises:
            UnsupportedFeatureError: the context is on Ray.
            OSError: the file can't be written.
        """
        from fray.job.timeline import to_json  # noqa: PLC0415 - most programs never ask for it

        Path(path).write_text(to_json(self._engine.runs()), encoding="utf-8")

    def starmap(
        self,
        fn: Callable[..., T],
        iterable: Iterable[Iterable[Any]],
        /,
        *,
        options: TaskOptions | None = None,
        ahead: int = 256,
        ordered: bool = True,
        chunksize: ChunkSize = 1,
    ) -> Iterator[T]:
        """Yield `fn(*arguments)` for each tuple of arguments; otherwise as `map`."""
        items, total = iter(iterable), total_of([iterable])
        call = MapCall(fn, items, total, True, options or _DEFAULT, ahead, ordered, chunksize)
        return start_map(self._engine, self._survey, call)

    def as_completed(
        self, refs: Iterable[ObjectRef[T]], *, timeout: float | None = None
    ) -> Iterator[ObjectRef[T]]:
        """Yield each ref when it is ready, failed ones too: `ref.result()` then doesn't block.

        Raises:
            GetTimeoutError: one isn't ready within `timeout` seconds from the first call of `next`.
        """
        own = [check_owned(ref, self._engine) for ref in refs]
        return self._yield_ready(own, timeout)

    def _yield_ready(self, refs: list[ObjectRef[T]], timeout: float | None) -> Iterator[ObjectRef[T]]:
        deadline = deadline_after(timeout)
        ready = ReadyRefs(self._engine)
        for ref in refs:
            ready.add(ref)
        refs.clear()  # so that what was yielded can go
        while len(ready):
            yield ready.next(time_left(deadline))

    @overload
    def gather(
        self, *refs: ObjectRef[T], timeout: float | None = None, return_exceptions: Literal[False] = False
    ) -> list[T]: ...
    @overload
    def gather(
        self, *refs: ObjectRef[T], timeout: float | None = None, return_exceptions: bool
    ) -> list[T | BaseException]: ...
    def gather(
        self, *refs: ObjectRef[Any], timeout: float | None = None, return_exceptions: bool = False
    ) -> list[Any]:
        """Return the values of all refs, in their order; with `return_exceptions`, those that failed as such.

        Raises:
            GetTimeoutError: not all are there within `timeout` seconds, also with `return_exceptions`.
        """
        if not return_exceptions:
            return self.get(list(refs), timeout=timeout)
        ready, rest = self.wait(refs, max(len(refs), 1), timeout)
        if rest:
            raise GetTimeoutError(repr(rest[0]), timeout or 0.0)
        return [_outcome_of(check_owned(ref, self._engine)) for ref in ready]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"<JobContext {self._engine!r}>"

    def _repr_html_(self) -> str:
        """Return one line for notebooks: what the context is, and whether it goes on."""
        import html  # noqa: PLC0415 - its table of entities takes as long as the rest of this module

        state = "closed" if self.closed else "open"
        return f"<code>JobContext</code> {html.escape(repr(self._engine))}, {state}"


def _outcome_of(ref: ObjectRef[Any]) -> Any:
    try:
        return read_ref(ref, None, None)
    except Exception as error:  # noqa: BLE001 - it was asked for as a value
        return error


class _Survey:
    """What progress is counted from; see `Surveyed`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def state_of(self, future: Any, *, whole: bool) -> FutureState:
        """Return how far a future is; anything but a ref is ready."""
        if not isinstance(future, ObjectRef):
            return "ready"
        return reader_of(future, self._engine).state_of(future._entry, whole=whole)

    def count_running(self) -> int | None:
        """Return how many tasks run; None if that can't be known."""
        return self._engine.count_running()


def _find_named_actors() -> NamedActors | None:
    """Return the named actors that all jobs share; None where names are known in this context only."""
    environ = os.environ  # noqa: TID251 - which job a process is of
    if not environ.get(ENV_ROOT_JOB) or not (environ.get(ENV_POOL_KEY) or environ.get(STATE_DIR)):
        return None
    from fray.job.named_actors import find_named_actors  # noqa: PLC0415 - pools and more, which few need

    return find_named_actors(environ)


_contexts: weakref.WeakValueDictionary[str, JobContext] = weakref.WeakValueDictionary()


def context_of(engine: Engine) -> JobContext:
    """Return the engine's context: all state is the engine's, so one that is gone is made again."""
    found = _contexts.get(engine.token)
    return JobContext(engine) if found is None else found


def find_context(token: str) -> JobContext | None:
    """Return this process's context of an engine; None if it has none."""
    return _contexts.get(token)


if TYPE_CHECKING:
    from fray.job.ray import RayContext  # noqa: F401 - an earlier API had it here

offer_names(__name__, ("fray.job", "fray.job.ray"))  # as it had `create_job_ctx` and its kin
