"""Connections of a process to members of named actors: one to each incarnation, which its handles share."""

from __future__ import annotations

import os
import threading
import time
import weakref
from dataclasses import replace
from typing import Any, Final

from fray.errors import ActorDiedError, ActorUnavailableError, ObjectLostError, PoolClosedError
from fray.job.actor_methods import RemoteActor
from fray.job.calls import Call, MethodCall
from fray.job.engine import ANYWHERE
from fray.job.pool_engine import PoolEngine, PoolSession
from fray.job.refs import ObjectRef
from fray.runtime.actors.identity import ACTOR, Member
from fray.runtime.actors.joining import Reach, describe_end, describe_loss, join_member
from fray.runtime.api.client import ObjectApi
from fray.runtime.pool.joined_pool import JoinedPool
from fray.runtime.pool.worker.threads import start_apart

__all__ = ["READ_HERE", "MemberEngine", "connect", "note_deletion", "with_read_refs", "with_values"]

READ_HERE: Final = (
    "it is the result of a named actor, which this process alone reads; pass what result() returns instead"
)
"""Why such a ref can't go elsewhere as a part of something; one that is a whole argument Fray reads."""
LOOK_SECONDS: Final = 1.0
"""How long what was learnt of a member's end is told to all calls, before it is looked for more."""


class MemberEngine(PoolEngine):
    """The connection of this process to one incarnation of a member; all its contexts read its refs."""

    def __init__(self, pool: JoinedPool, member: Member, api: ObjectApi) -> None:
        super().__init__(PoolSession(pool.token, pool.client, pool.objects))
        self.home = ANYWHERE
        self.member = member
        self._api = api
        self._died: ActorDiedError | None = None
        """What the member's head has told of its end."""
        self._end: ActorDiedError | ActorUnavailableError | None = None
        """What all calls learn, once one has learnt of the member's end."""
        self._look_at = 0.0
        found = self.find_actor(ACTOR)
        # By the name that its users know: errors of its calls say it.
        self.actor = RemoteActor(self.token, found.entry, found.methods._replace(label=member.label))
        self.deleted = False
        """Whether this process has deleted the actor: no further call goes to it, while its pod ends."""

    @property
    def died(self) -> bool:
        """Whether this process knows that the actor has ended, although its server may be there still."""
        return self._died is not None

    def take(self, ref: Any, deadline: float | None) -> Any:
        """Return the value of a ref; see `Engine`. Raises what became of the member, where it was lost."""
        try:
            return super().take(ref, deadline)
        except PoolClosedError as error:
            raise self._loss(error) from None
        except ActorDiedError as error:
            raise self._death(error) from error.__cause__

    def next_item(self, ref: Any, deadline: float | None) -> Any:
        """Return the entry of a generator's next item; see `Engine` and `take`."""
        try:
            return super().next_item(ref, deadline)
        except PoolClosedError as error:
            raise self._loss(error) from None
        except ActorDiedError as error:
            raise self._death(error) from error.__cause__

    def reduce_ref(self, ref: Any) -> tuple[Any, ...]:
        """Raise `ObjectLostError`: only the process that made a call can read what it returns."""
        raise ObjectLostError(repr(ref), READ_HERE)

    def _death(self, died: ActorDiedError) -> Exception:
        """Return the error for what the member's head told of its end, by the actor's name in there."""
        if died.actor != ACTOR:
            return died  # one that the method itself has raised, of another actor
        self._died = self._died or died
        return self._describe()

    def _loss(self, error: PoolClosedError) -> Exception:
        return self._describe() if self.closed else error  # one that the method itself has raised

    def _describe(self) -> Exception:
        """Return what is known by now of the member's end.

        Calls fail before its pod, or the operator, can tell why: who reads one later learns that too.
        """
        end, now = self._end, time.monotonic()
        if end is None or now >= self._look_at:
            if self._died is not None:
                end = describe_end(self._api, self.member, self._died)
            else:
                end = describe_loss(self._api, self.member)
            self._end, self._look_at = end, now + LOOK_SECONDS
        return type(end)(end.actor, end.reason, end.story)


_lock = threading.Lock()
_engines: dict[tuple[int, str], MemberEngine] = {}
"""The connections of this process, by its pid and the incarnation: all its handles share them."""


def connect(member: Member, reach: Reach, *, over: str = "", deadline: float | None = None) -> MemberEngine:
    """Return this process's connection to a member; waits until it's ready, unless an incarnation is named.

    `over` is an incarnation that has ended, although the member's record may not say so yet. `deadline` is a
    time of `time.monotonic`.

    Raises `ActorDiedError`, `ActorUnavailableError`, and `TimeoutError` at the `deadline`.
    """
    if (engine := _find(member.incarnation)) is not None:
        return engine

    def is_over(incarnation: str) -> bool:
        known = _find(incarnation)
        return incarnation == over or (known is not None and known.died)

    pool = join_member(reach, member, is_over=is_over, find=_find, deadline=deadline)
    if isinstance(pool, MemberEngine):
        return pool
    with _lock:
        engine = _find(pool.token)
        if engine is None:
            try:
                engine = MemberEngine(pool, replace(member, incarnation=pool.token), reach.api)
            except PoolClosedError:
                raise describe_loss(reach.api, member) from None
            _forget_closed()
            _engines[os.getpid(), pool.token] = engine
            # Refs may still be read that have come before the member's end.
            weakref.finalize(engine, start_apart, pool.stop, "fray-member-end", daemon=True).atexit = False
            return engine
    pool.stop()  # another thread was quicker
    return engine


def _find(incarnation: str) -> MemberEngine | None:
    engine = _engines.get((os.getpid(), incarnation))
    return None if engine is None or engine.closed or engine.deleted else engine


def _forget_closed() -> None:
    """Let go of the connections to incarnations that have ended: refs and handles hold what they need."""
    for key in [key for key, engine in _engines.items() if engine.closed]:
        del _engines[key]


def note_deletion(member: Member) -> None:
    """Send no further call to an actor that this process has deleted; those that it has may end."""
    with _lock:
        for engine in _engines.values():
            engine.deleted |= engine.member.uid == member.uid


def with_values(call: MethodCall, engine: MemberEngine | None) -> MethodCall:
    """Return a call whose arguments the actor's pool can take: refs of other contexts as their values."""
    args, kwargs = _read_refs(call, engine)
    return call._replace(args=args, kwargs=kwargs)


def with_read_refs(call: Call) -> Call:
    """Return a constructor's call with values in place of refs."""
    args, kwargs = _read_refs(call, None)
    return replace(call, args=args, kwargs=kwargs)


def _read_refs(
    call: Call | MethodCall, engine: MemberEngine | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:

    def value_of(part: Any) -> Any:
        return part.result() if isinstance(part, ObjectRef) and part._engine is not engine else part

    kwargs = {name: value_of(part) for name, part in call.kwargs.items()}
    return tuple(map(value_of, call.args)), kwargs
