"""Named actors of a job in a cluster: handles of FrayActors, which all jobs of the namespace can hold.

A handle names one member; with its first use it names one incarnation of it, for good. What it calls runs by
the pool that the member's pod is, so that refs, errors and generators are those of pools. How a process
reaches that pool is its `Reach`: in a pod directly, and elsewhere as the handle says.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from fray.errors import ActorUnavailableError, InvalidOptionError, TaskTimeoutError
from fray.job.actor_methods import ActorMethods
from fray.job.actors import ActorHandle
from fray.job.calls import Call, MethodCall
from fray.job.engine import Engine, time_left
from fray.job.member_engine import (
    MemberEngine,
    connect,
    note_deletion,
    with_read_refs,
    with_values,
)
from fray.job.options import ActorOptions, Lifetime
from fray.job.refs import ObjectRef, make_ref
from fray.job.retried_calls import calls_of
from fray.payload.callables import encode_callable
from fray.runtime.actors.identity import Member
from fray.runtime.actors.joining import PodReach, Reach
from fray.runtime.actors.local_pod import LocalReach
from fray.runtime.actors.objects import ActorObjects, NewActor, count_members, delete_actor
from fray.runtime.api.client import ApiAccess, ApiClient
from fray.settings import STATE_DIR
from fray.vocabulary import (
    ENV_ACTOR_INDEX,
    ENV_ACTOR_NAME,
    ENV_ACTOR_UID,
    ENV_ATTEMPT,
    ENV_JOB_NAME,
    ENV_POOL_KEY,
    ENV_ROOT_JOB,
)

__all__ = [
    "NamedActorHandle",
    "NamedActors",
    "build_handles",
    "end_named_actor",
    "find_named_actors",
    "find_own_handle",
]

A = TypeVar("A")
UNITS: Final = {"CPU": "cpu", "memory": "memory"}
"""Resources of actors in the words of a FrayActor."""
NO_POD: Final = "this process is in no pod of its cluster"
HEAD_NODE: Final = "head_node"
"""What an older API calls a place where nothing is preempted."""


@cache
def find_pod_reach() -> PodReach | None:
    """Return how this process reaches actors, if it is that of a pod with keys to call them with."""
    environ = os.environ  # noqa: TID251 - which pod this is
    access = ApiAccess.in_pod(environ)
    return PodReach(ApiClient(access), environ) if access is not None and environ.get(ENV_POOL_KEY) else None


class NamedActor:
    """A member, as one handle sees it; see `fray.job.engine.Actor`."""

    entry = None

    def __init__(self, member: Member, methods: ActorMethods | None, reach: Reach | None) -> None:
        self.member = member
        self.given = reach
        """How a process that is no pod reaches it."""
        self._methods = methods
        self._engine: MemberEngine | None = None
        self._lock = threading.Lock()

    @property
    def id(self) -> str:
        """Unique among all members of all actors."""
        return f"{self.member.uid}-{self.member.index}"

    @property
    def label(self) -> str:
        """What users call the actor."""
        return self.member.label

    @property
    def known(self) -> ActorMethods | None:
        """What is known of its methods without asking it."""
        return self._methods

    @property
    def methods(self) -> ActorMethods:
        """What its methods are; asks it, the first time that a handle which was looked up is used."""
        if self._methods is None:
            self.connect()
        assert self._methods is not None
        return self._methods

    @property
    def class_name(self) -> str:
        """The name of its class, if it is known."""
        return self._methods.class_name if self._methods is not None else "FrayActor"

    def problem_of(self, method: str) -> str:
        """Return in words why there is no such method; empty if there may be one.

        An actor that isn't ready is asked by the first call, which may say how long that waits for it.
        """
        if self._methods is None:
            with suppress(TimeoutError):
                self.connect(time.monotonic())
        return "" if self._methods is None else self._methods.problem_of(method)

    def streams(self, method: str) -> bool:
        """Return whether the method is a generator function."""
        return self.methods.streams(method)

    @property
    def reach(self) -> Reach:
        """How this process reaches it. Raises `ActorUnavailableError` where it can't."""
        found = find_pod_reach() or self.given
        if found is None:
            raise ActorUnavailableError(self.member.label, NO_POD)
        return found

    @property
    def engine(self) -> MemberEngine | None:
        """The connection to it, if there is one."""
        engine = self._engine
        return None if engine is None or engine.closed or engine.deleted else engine

    def connect(self, deadline: float | None = None) -> MemberEngine:
        """Return the connection to it; `deadline` is a time of `time.monotonic`.

        Raises `ActorDiedError`, `ActorUnavailableError`, and `TimeoutError` at the `deadline`.
        """
        if (engine := self.engine) is not None:
            return engine
        left = time_left(deadline)
        if not self._lock.acquire(timeout=-1 if left is None else left):
            raise TimeoutError(f"another thread waits for actor {self.label!r}")
        try:
            engine = self._engine = connect(self.member, self.reach, deadline=deadline)
            self.member = engine.member
            self._methods = engine.actor.methods
            return engine
        finally:
            self._lock.release()


class NamedActorHandle(ActorHandle[A]):
    """Stands for a named actor; small, and valid in each pod of the namespace.

    With a `reach` it is valid in processes outside of the cluster, too.
    """

    __slots__ = ()
    _actor: NamedActor

    def __init__(
        self, member: Member, methods: ActorMethods | None = None, reach: Reach | None = None
    ) -> None:
        self._actor = NamedActor(member, methods, reach)

    def _submit(self, call: MethodCall) -> ObjectRef[Any]:
        """Call a method; see `ActorHandle`. The first call waits until the actor is ready, or its time is up.

        A call that may be made again goes to the incarnation that there is; others to this handle's alone.
        """
        actor, label, retries = self._actor, self._actor.label, call.options.max_task_retries
        if retries is None:
            retries = actor.member.max_task_retries
        if actor.known is None:
            _, call = self._connect(call)
            if problem := actor.problem_of(call.method):
                raise AttributeError(problem, name=call.method, obj=self)
        streaming = actor.streams(call.method)
        if retries and not streaming:
            return calls_of(actor.member, actor.reach).submit(call, retries)
        engine, call = self._connect(call)
        if call.args or call.kwargs:
            call = with_values(call, engine)
        entry = engine.call_actor(engine.actor, call, streaming=streaming)
        return make_ref(engine, entry, f"{label}.{call.method}", label, streaming=streaming)

    def _connect(self, call: MethodCall) -> tuple[MemberEngine, MethodCall]:
        """Return the connection to the actor, and the call with what this leaves of its `timeout`.

        Raises `ActorDiedError`, `ActorUnavailableError` and `TaskTimeoutError`.
        """
        actor, timeout = self._actor, call.options.timeout
        if (engine := actor.engine) is not None:
            return engine, call
        if timeout is None:
            return actor.connect(), call
        name, deadline = f"{actor.label}.{call.method}", time.monotonic() + timeout
        try:
            engine = actor.connect(deadline)
        except TimeoutError as late:
            raise TaskTimeoutError(name, timeout, (str(late),)) from late
        if not (left := time_left(deadline)):
            raise TaskTimeoutError(name, timeout)
        return engine, call._replace(options=replace(call.options, timeout=left))

    def __repr__(self) -> str:
        return f"ActorHandle({self._actor.class_name} {self._actor.label}, {self._actor.id})"

    def _kill(self, engine: Engine) -> None:  # noqa: ARG002 - each context of the namespace may
        """End the actor."""
        self._end()

    def _end(self) -> None:
        """Delete the FrayActor; one that is gone is fine."""
        delete_actor(self._actor.reach.api, self._actor.member)
        note_deletion(self._actor.member)

    def __del__(self) -> None:
        """Do nothing: an actor with a name lives on."""

    def __reduce__(self) -> tuple[Any, ...]:
        return NamedActorHandle, (self._actor.member, self._actor.known, self._actor.given)


def build_handles(
    member: Member, count: int, made_by: Call | None, reach: Reach | None = None
) -> list[NamedActorHandle[Any]]:
    """Return the handles of a FrayActor's members; its methods are known where this process has made it."""
    methods = None if made_by is None else ActorMethods.of(made_by.function, made_by.name, member.label)
    return [NamedActorHandle(replace(member, index=index), methods, reach) for index in range(count)]


def end_named_actor(handle: ActorHandle[Any]) -> None:
    """Delete the FrayActor of a handle; one that is gone is fine."""
    assert isinstance(handle, NamedActorHandle)
    handle._end()


class NamedActors:
    """The named actors that a job sees; handles keep `reach`, for processes that are no pods."""

    def __init__(self, objects: ActorObjects, reach: Reach | None = None) -> None:
        self._objects = objects
        self._reach = reach

    def create(self, call: Call, options: ActorOptions) -> NamedActorHandle[Any]:
        """Create an actor, or find the one that lives; see `JobContext.create_actor`.

        Raises `ActorExistsError`, `InvalidOptionError` and `SerializationError`.
        """
        return self.create_group(call, options, 1)[0]

    def create_group(self, call: Call, options: ActorOptions, count: int) -> list[NamedActorHandle[Any]]:
        """Create a group; return the handles of its members. See `create` and `JobContext`."""
        if options.name is None:
            raise InvalidOptionError("name", "None", "what others find the actor by")
        resources = dict(options.resources or {})
        preemptible = not resources.pop(HEAD_NODE, 0)
        unknown = sorted(set(resources) - set(UNITS))
        if unknown or options.env:
            what = f"resources {', '.join(unknown)}" if unknown else "env"
            raise InvalidOptionError(
                "an option of a named actor", what, "CPU and memory; its job's environment"
            )
        call = with_read_refs(call)
        new = NewActor(
            options.name,
            encode_callable(call.function, call.args, call.kwargs),
            detached=options.lifetime is Lifetime.DETACHED,
            max_concurrency=options.max_concurrency,
            max_restarts=options.max_restarts,
            max_task_retries=options.max_task_retries or None,
            resources={UNITS[name]: _quantity(amount) for name, amount in resources.items() if amount},
            preemptible=preemptible,
            idle_timeout=options.idle_timeout,
            replicas=count,
        )
        member, own = self._objects.create(new, get_if_exists=options.get_if_exists)
        if not own and count > 1:
            count = count_members(self._objects.api, member)
        return build_handles(member, count, call if own else None, self._reach)

    def find(self, name: str) -> NamedActorHandle[Any]:
        """Return the actor of a name, or the member `INDEX` of a group for `GROUP-INDEX`.

        Raises `ActorNotFoundError`.
        """
        return NamedActorHandle(self._objects.find(name), reach=self._reach)


def _quantity(amount: float) -> str:
    """Return an amount as Kubernetes reads it, which has thousandths at the least."""
    return str(int(amount)) if amount == int(amount) else f"{max(amount, 0.001):.3f}"


def find_own_handle(label: str) -> NamedActorHandle[Any]:
    """Return the handle of the actor whose member this process is; users call it `label`."""
    environ = os.environ  # noqa: TID251 - which member this is
    member = Member(label, environ[ENV_ACTOR_NAME], environ[ENV_ACTOR_UID], int(environ[ENV_ACTOR_INDEX]))
    return NamedActorHandle(member, reach=_find_given(environ))


def find_named_actors(environ: Mapping[str, str]) -> NamedActors | None:
    """Return the named actors of this process's job; None where names are known in one process and its pool.

    That is so outside of jobs, and in pods that have no keys (`FRAY_POOL_KEY`) to call an actor with.
    """
    objects = find_objects(environ)
    return None if objects is None else NamedActors(objects, _find_given(environ))


def _find_given(environ: Mapping[str, str]) -> LocalReach | None:
    """Return by what the process of a job on this machine reaches actors; None: by its pod."""
    state = environ.get(STATE_DIR)
    return LocalReach(Path(state)) if state and find_pod_reach() is None else None


def find_objects(environ: Mapping[str, str]) -> ActorObjects | None:
    """Return the FrayActors that this process's job sees; None as with `find_named_actors`."""
    root, reach = environ.get(ENV_ROOT_JOB), find_pod_reach() or _find_given(environ)
    if not root or reach is None:
        return None
    number = environ.get(ENV_ATTEMPT, "")
    attempt = int(number) if number.isascii() and number.isdigit() else 0
    return ActorObjects(reach.api, job=environ.get(ENV_JOB_NAME) or root, root=root, attempt=attempt)
