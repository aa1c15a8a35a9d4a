"""An actor on all hosts of a TPU slice: each call runs on every host, in the same order.

Programs of several hosts (SPMD) wait for each other, so each host must get the same calls in the same order.
Every host has a part, which is an instance of the user's class. What callers know as the actor is a
`Lockstep`, without any user's code: it gives each call to all parts before it takes the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fray.errors import ActorDiedError, UnsupportedFeatureError
from fray.job.actor_methods import RemoteActor
from fray.job.actors import ActorHandle
from fray.job.calls import Call, MethodCall
from fray.job.context import context_of
from fray.job.options import ActorOptions
from fray.job.pool_engine import PoolEngine
from fray.job.refs import ObjectRef
from fray.runtime.actor_life import current_life
from fray.runtime.actors.identity import ACTOR, build_part_name, build_place

__all__ = ["Lockstep", "create_front", "create_part", "find_failure"]


class Lockstep:
    """Takes the calls of an actor that is on several hosts; `parts` are its instances, by host.

    `generators` are the names of the methods that give items one by one: they are refused.
    """

    def __init__(self, parts: Sequence[ActorHandle[Any]], generators: frozenset[str]) -> None:
        self._fray_parts = parts
        self._fray_generators = generators
        self._fray_life = current_life()

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """Return what calls a method of the user's class; those of this class have other names."""
        if method.startswith("_"):
            raise AttributeError(method)
        return partial(self._fray_call, method)

    def _fray_call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        if method in self._fray_generators:
            raise UnsupportedFeatureError(
                f"the generator {method!r} of an actor on several hosts",
                "a caller that stops reading would leave its hosts in different places",
                "Return a list, or give the items by several calls.",
            )
        refs = [part._submit(MethodCall(method, args, kwargs)) for part in self._fray_parts]
        failure = find_failure(refs)
        if failure is None:
            return refs[0].result()
        host, error = failure
        where = f"host {host} of {len(refs)}"
        if isinstance(error, ActorDiedError) and error.actor == build_part_name(host):
            # A part that is lost ends them all: this is no exception of the method.
            assert self._fray_life is not None
            self._fray_life.fail(ActorDiedError(where, error.reason, error.story))
        error.add_note(f"It was raised on {where}.")
        raise error


def create_part(
    engine: PoolEngine, call: Call, host: int, *, accelerators: dict[str, float]
) -> ActorHandle[Any]:
    """Begin to construct the part of a host, which holds that host's accelerators."""
    options = ActorOptions(
        name=build_part_name(host),
        resources={**build_place(host), **accelerators},
        isolation="process",
        max_concurrency=1,
    )
    return ActorHandle(engine, engine.create_actor(call, options))


def create_front(engine: PoolEngine, parts: Sequence[ActorHandle[Any]]) -> ActorHandle[Any]:
    """Begin to construct what takes the calls and gives them to the parts, on the host of part 0."""
    known = parts[0]._actor
    assert isinstance(known, RemoteActor)
    generators = known.methods.generators
    options = ActorOptions(name=ACTOR, resources=build_place(0), isolation="process", max_concurrency=1)
    front = Call(Lockstep, (list(parts), generators), {})
    return ActorHandle(engine, engine.create_actor(front, options))


def find_failure(refs: Sequence[ObjectRef[Any]]) -> tuple[int, BaseException] | None:
    """Return the first of these calls that fails, as its place and its error; None once all have ended well.

    It doesn't wait for the others: they may wait for the one that has failed.
    """
    engine = refs[0]._engine
    context, left = context_of(engine), list(refs)
    while left:
        ready, left = context.wait(left)
        for ref in ready:
            if engine.state_of(ref._entry, whole=True) == "failed":
                try:
                    ref.result()
                except BaseException as error:  # noqa: BLE001 - whatever it is, the caller is told
                    return next(place for place, each in enumerate(refs) if each is ref), error
    return None
