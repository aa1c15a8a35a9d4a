"""Groups of actors: members that are created together, each with an index, and how they fare.

A group is a list of handles, whatever context has the actors: it asks each member by a call, as users do.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Generic, TypeVar

from fray.errors import GetTimeoutError, InvalidOptionError, NotInActorError
from fray.job.actors import ActorHandle
from fray.job.calls import MethodCall
from fray.job.checks import check_count
from fray.job.current import current_engine
from fray.job.engine import Engine, deadline_after, time_left
from fray.job.refs import read_ref
from fray.runtime.actor_life import PROBE, ActorLife, current_life
from fray.runtime.actors.identity import is_own_label, read_host
from fray.vocabulary import ENV_ACTOR_INDEX, ENV_ACTOR_LABEL, ENV_ACTOR_UID

__all__ = ["ActorContext", "ActorGroup", "GroupMember", "MemberState", "constructing", "current_actor"]

A = TypeVar("A")


class MemberState(StrEnum):
    """How a member of a group fares, as it was seen last."""

    STARTING = "starting"
    READY = "ready"
    """Its constructor has returned."""
    FAILED = "failed"
    """Its constructor has raised, or it has ended."""


@dataclass(frozen=True)
class ActorContext:
    """Which actor is being constructed; to be kept by it, for what its code does later."""

    index: int
    """Which member of its group it is, from 0; 0 for one that is in none."""
    group_name: str
    """The name of its group, or of the actor; that of its class where it has no name."""
    _life: ActorLife = field(repr=False, compare=False)
    _find_handle: Callable[[], ActorHandle[Any]] = field(repr=False, compare=False)
    host: int = 0
    """Which host of its TPU slice this is, from 0; 0 where it is on one host."""

    @property
    def handle(self) -> ActorHandle[Any]:
        """The actor's own handle, to be passed to others. Its calls wait until the constructor has returned.

        Raises:
            ActorNotFoundError: the actor has ended; or it has no name, by which a process of a pool or of
                Ray or Dask finds it.
        """
        return self._find_handle()

    @property
    def shutdown_event(self) -> threading.Event:
        """Is set once the actor was asked to end: what it does may end within its time of grace.

        Code of the actor may set it: the actor then ends for good, after the calls that it has got.
        """
        return self._life.shutdown_event

    def fail(self, error: BaseException) -> None:
        """End this incarnation, from any thread: its calls raise `ActorDiedError`, which says why.

        The actor is constructed anew, as after the loss of its process, where its `max_restarts` allow. In
        the constructor it is as if that had raised `error`. The code that calls this is to return.

        Raises:
            InvalidOptionError: `error` is no exception.
        """
        if not isinstance(error, BaseException):
            raise InvalidOptionError("error", repr(error), "an exception, such as RuntimeError('...')")
        self._life.fail(error)


_current: ContextVar[ActorContext | None] = ContextVar("fray_current_actor", default=None)


def current_actor() -> ActorContext:
    """Return which actor this is, or which member of a group, within its constructor.

    Raises:
        NotInActorError: no actor is being constructed here.
    """
    life, found = current_life(), _current.get()
    if life is None:
        raise NotInActorError
    if found is not None and found._life is life:
        return found
    environ, engine = os.environ, current_engine()  # noqa: TID251 - which member this pod is
    if ENV_ACTOR_UID in environ and is_own_label(life.label):
        name, index, host = environ[ENV_ACTOR_LABEL], int(environ[ENV_ACTOR_INDEX]), read_host(environ)
        return ActorContext(index, name, life, lambda: _find_own_handle(name), host)
    return ActorContext(0, life.label, life, partial(_find_handle, life, engine, life.label))


@contextlib.contextmanager
def constructing(group: str, index: int, find_handle: Callable[[], ActorHandle[Any]]) -> Iterator[None]:
    """Let the code within the block construct this member, as `current_actor` tells it."""
    life = current_life()
    assert life is not None
    environ = os.environ  # noqa: TID251 - which host this pod is
    host = read_host(environ) if ENV_ACTOR_UID in environ and is_own_label(life.label) else 0
    token = _current.set(ActorContext(index, group, life, find_handle, host))
    try:
        yield
    finally:
        _current.reset(token)


def _find_handle(life: ActorLife, engine: Engine | None, label: str) -> ActorHandle[Any]:
    assert engine is not None
    return life.find_handle() or ActorHandle(engine, engine.find_actor(label))


def _find_own_handle(label: str) -> ActorHandle[Any]:
    from fray.job.named_actors import find_own_handle  # noqa: PLC0415 - pools and more, which few need

    return find_own_handle(label)


@dataclass(frozen=True)
class GroupMember:
    """Constructs a member of a group: an instance of `func`, which can ask `current_actor`.

    Without an `index` it is the one of the pod in which this runs.
    """

    func: Callable[..., Any]
    group: str
    index: int | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the instance."""
        index, life, engine = self.index, current_life(), current_engine()
        assert life is not None
        if index is None:
            index = int(os.environ[ENV_ACTOR_INDEX])  # noqa: TID251 - which pod this is
        label = f"{self.group}-{index}"

        def find_handle() -> ActorHandle[Any]:
            if self.index is None:
                return _find_own_handle(label)
            return _find_handle(life, engine, label)

        with constructing(self.group, index, find_handle):
            return self.func(*args, **kwargs)


class ActorGroup(Generic[A]):
    """The members of a group, by index. `JobContext.create_actor_group` makes one; it can be pickled.

    Members fail independently. A handle stays with one start of its member: one whose process was started
    again counts as failed here, and `JobContext.get_actor` finds it anew.

    Parameters: the group's `name`; the `handles` of its members; `end` ends the actor of a handle.
    """

    def __init__(
        self, name: str, handles: Sequence[ActorHandle[A]], end: Callable[[ActorHandle[A]], object]
    ) -> None:
        self.name = name
        self.handles = tuple(handles)
        """The handles of all members, ready or not."""
        self._end = end
        self._news = threading.Condition()
        self._seen: dict[int, MemberState] = dict.fromkeys(range(len(self.handles)), MemberState.STARTING)
        self._errors: dict[int, Exception] = {}
        self._asked: set[int] = set()
        """Members whose answer is waited for."""
        self._discovered: set[ActorHandle[A]] = set()

    def __len__(self) -> int:
        """Return how many members there are."""
        return len(self.handles)

    def statuses(self) -> list[MemberState]:
        """Return how the members fare, by index, as they were seen last. Doesn't wait: it asks them anew."""
        self._ask()
        with self._news:
            return list(self._seen.values())

    @property
    def ready_count(self) -> int:
        """How many members are ready, as they were seen last."""
        return self.statuses().count(MemberState.READY)

    def is_done(self) -> bool:
        """Return whether all members have ended, as they were seen last."""
        return all(state is MemberState.FAILED for state in self.statuses())

    def wait_ready(self, count: int | None = None, timeout: float | None = 300.0) -> list[ActorHandle[A]]:
        """Return the handles of the ready members, by index, once there are `count` (None: all).

        Raises:
            InvalidOptionError: `count` isn't a number of members.
            GetTimeoutError: there aren't so many in `timeout` seconds; the members go on.
            Exception: what a member's constructor raised, or `ActorDiedError`, once so many members have
                failed that there can't be `count` ready ones.
        """
        members = len(self.handles)
        wanted = members if count is None else check_count("count", count, 0)
        if wanted > members:
            raise InvalidOptionError("count", str(wanted), f"0 to {members}, the members of the group")
        deadline = deadline_after(timeout)
        self._ask()
        with self._news:
            while len(ready := self._find_ready()) < wanted:
                if len(self.handles) - len(self._errors) < wanted:
                    raise self._errors[min(self._errors)]
                if not self._news.wait(time_left(deadline)):
                    lacking = [str(each) for each in range(members) if self.handles[each] not in ready]
                    what = f"members {', '.join(lacking)} of actor group {self.name!r}"
                    raise GetTimeoutError(what, timeout or 0.0)
            return ready

    def discover_new(self) -> list[ActorHandle[A]]:
        """Return the handles of ready members that this hasn't returned before; doesn't wait."""
        self._ask()
        with self._news:
            found = [each for each in self._find_ready() if each not in self._discovered]
            self._discovered.update(found)
            return found

    def shutdown(self) -> None:
        """End all members for good. May be called again."""
        for handle in self.handles:
            self._end(handle)

    def _ask(self) -> None:
        """Ask each member that hasn't failed whether it lives, from a thread: a first call may wait."""
        with self._news:
            for index in range(len(self.handles)):
                if index not in self._asked and index not in self._errors:
                    self._asked.add(index)
                    name = f"fray-group {self.name} {index}"
                    threading.Thread(target=self._look, args=(index,), name=name, daemon=True).start()

    def _look(self, index: int) -> None:
        """Learn from one member whether it lives."""
        error: Exception | None = None
        try:
            read_ref(self.handles[index]._submit(MethodCall(PROBE)), None, None)
        except Exception as failed:  # noqa: BLE001 - a constructor may raise anything
            error = failed
        with self._news:
            self._asked.discard(index)
            if error is None:
                self._seen[index] = MemberState.READY
            else:
                self._seen[index], self._errors[index] = MemberState.FAILED, error
            self._news.notify_all()

    def _find_ready(self) -> list[ActorHandle[A]]:
        return [self.handles[index] for index, state in self._seen.items() if state is MemberState.READY]

    def __repr__(self) -> str:
        return f"ActorGroup({self.name!r}, {len(self.handles)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ActorGroup, (self.name, self.handles, self._end)
