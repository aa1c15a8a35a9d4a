"""Connections of a process to members of named actors: one to each incarnation, which its handles share."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import Any

from fray.errors import ActorDiedError, ObjectLostError, PoolClosedError
from fray.job.calls import MethodCall
from fray.job.engine import ANYWHERE
from fray.job.pool_engine import PoolEngine, PoolSession
from fray.job.refs import ObjectRef
from fray.runtime.actors.identity import ACTOR, Member
from fray.runtime.actors.joining import Reach, describe_end, describe_loss, join_member
from fray.runtime.api.client import ObjectApi
from fray.runtime.pool.joined_pool import JoinedPool

__all__ = ["MemberEngine", "connect", "with_values"]


class MemberEngine(PoolEngine):
    """The connection of this process to one incarnation of a member; all its contexts read its refs."""

    def __init__(self, pool: JoinedPool, member: Member, api: ObjectApi) -> None:
        super().__init__(PoolSession(pool.token, pool.client, pool.objects))
        self.home = ANYWHERE
        self.member = member
        self._api = api
        self._end: ActorDiedError | None = None
        """What all calls learn, once one has learnt of the member's end."""
        self.actor = self.find_actor(ACTOR)

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
        raise ObjectLostError(repr(ref), "it is the result of a named actor, which this process alone reads")

    def _death(self, died: ActorDiedError) -> ActorDiedError:
        """Return the error for what the member's head told of its end, by the actor's name in there."""
        if died.actor != ACTOR:
            return died  # one that the method itself has raised, of another actor
        if self._end is None:
            self._end = describe_end(self._api, self.member, died)
        return ActorDiedError(self._end.actor, self._end.reason, self._end.story)

    def _loss(self, error: PoolClosedError) -> Exception:
        if not self.closed:
            return error  # one that the method itself has raised
        return describe_loss(self._api, self.member)


_lock = threading.Lock()
_engines: dict[tuple[int, str], MemberEngine] = {}
"""The connections of this process, by its pid and the incarnation: all its handles share them."""


def connect(member: Member, reach: Reach, *, over: str = "") -> MemberEngine:
    """Return this process's connection to a member; waits until it's ready, unless an incarnation is named.

    `over` is an incarnation that has ended, although the member's record may not say so yet.

    Raises `ActorDiedError` and `ActorUnavailableError`.
    """
    if (engine := _find(member.incarnation)) is not None:
        return engine
    pool = join_member(reach, member, over=over)
    with _lock:
        engine = _find(pool.token)
        if engine is None:
            try:
                engine = MemberEngine(pool, replace(member, incarnation=pool.token), reach.api)
            except PoolClosedError:
                raise describe_loss(reach.api, member) from None
            _engines[os.getpid(), pool.token] = engine
            return engine
    pool.stop()  # another thread was quicker
    return engine


def _find(incarnation: str) -> MemberEngine | None:
    engine = _engines.get((os.getpid(), incarnation))
    return None if engine is None or engine.closed else engine


def with_values(call: MethodCall, engine: MemberEngine | None) -> MethodCall:
    """Return a call whose arguments the actor's pool can take: refs of other contexts as their values."""

    def value_of(part: Any) -> Any:
        return part.result() if isinstance(part, ObjectRef) and part._engine is not engine else part

    kwargs = {name: value_of(part) for name, part in call.kwargs.items()}
    return call._replace(args=tuple(map(value_of, call.args)), kwargs=kwargs)
