"""Actors of a context on Dask: made by Dask, called in the worker that has them."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from distributed import Client

from fray.errors import (
    ActorDiedError,
    ActorExistsError,
    ActorNotFoundError,
    FrayError,
)
from fray.job.actor_methods import ActorMethods, RemoteActor
from fray.job.calls import Call, MethodCall
from fray.job.dask_refs import AnyEntry
from fray.job.dask_streams import DaskStreams
from fray.job.dask_values import (
    ActorSpec,
    CallEntry,
    CallSpec,
    DaskActorEntry,
    Failure,
    StreamEntry,
)
from fray.job.numbered_refs import only_of
from fray.job.options import ActorOptions
from fray.job.timeline import TaskRun
from fray.job.traits import Feature, refuse
from fray.runtime.pool.objects.functions import encode_function

__all__ = ["ACTORS", "TASKS", "DaskActors", "Work", "check_features", "counted_resources"]

TASKS, ACTORS = "fray-tasks", "fray-actors"
"""Resources of Dask workers that take tasks or actors alone; a cluster without them gives both to all."""
PLAIN = frozenset({"CPU", "memory", "head_node"})
"""Resources that Dask workers don't count."""


class Work(NamedTuple):
    """What an engine lets workers of Dask do: the functions of `dask_host`, which needs this file."""

    run_task: Callable[..., Any]
    make_actor: Callable[..., Any]
    cancel_task: Callable[..., None]
    count_running: Callable[..., int]
    list_runs: Callable[..., list[TaskRun]]


class DaskActors(DaskStreams):
    """Creates, finds, calls and ends actors.

    Parameters: those of `DaskRefs`; the `work`; `roles`: there are workers for tasks and others for actors.
    """

    def __init__(self, client: Client, token: str, work: Work, *, roles: bool) -> None:
        super().__init__(client, token)
        self.roles = roles
        self._work = work
        self._actors: weakref.WeakSet[DaskActorEntry] = weakref.WeakSet()

    def create_actor(self, call: Call, options: ActorOptions) -> RemoteActor:
        """Start an actor; see `Engine`. Returns before the constructor has: what it raises, calls raise."""
        self._check_open()
        check_features(
            {
                Feature.ACTOR_ENV: options.env,
                Feature.ACTOR_RESOURCES: counted_resources(options.resources),
                Feature.MAX_RESTARTS: options.max_restarts,
                Feature.MAX_TASK_RETRIES: options.max_task_retries,
            }
        )
        with only_of(self):
            function = encode_function(call.function)
            encoded, needed = self._encode(call.args, call.kwargs, function)
        number = self.new_number()
        methods = ActorMethods.of(call.function, call.name, options.name)
        if options.name:
            found = self._ask("claim", name=options.name, number=number, methods=methods.encode(),
                              client=self._client.id, share=options.get_if_exists)  # fmt: skip
            if found is False:
                raise ActorExistsError(options.name)
            if found is not True:
                return self._found(found)
        actor = ActorSpec(
            token=self.token,
            roles=self.roles,
            number=number,
            name=options.name or "",
            label=methods.label,
            function=function.blob,
            args=encoded.args,
            holds=tuple(each.number for each in needed),
            max_concurrency=options.max_concurrency or 1,
        )
        entry = DaskActorEntry(number, methods.label)
        self._note(entry)
        self._actors.add(entry)
        entry.holds = needed
        resources: dict[str, float] = {ACTORS: 1} if self.roles else {}
        start = partial(
            self._start, entry, self._work.make_actor, pickle.dumps(tuple(actor)), encoded.deps, resources
        )
        self._once_published(entry, needed, start)
        return RemoteActor(self.token, entry, methods)

    def find_actor(self, name: str) -> RemoteActor:
        """Return the actor that has a name; see `Engine`."""
        self._check_open()
        found = self._ask("find", name=name)
        if found[0] is None:
            raise ActorNotFoundError(name, tuple(found[1]))
        return self._found(found)

    def _found(self, found: Sequence[Any]) -> RemoteActor:
        methods = ActorMethods.decode(bytes(found[1]))
        return RemoteActor(self.token, self.refer_actor(found[0], methods.label), methods)

    def call_actor(self, actor: RemoteActor, call: MethodCall, *, streaming: bool) -> AnyEntry:
        """Call a method of an actor; see `Engine`."""
        check_features({Feature.MAX_TASK_RETRIES: call.options.max_task_retries})
        number, name, target = self.new_number(), f"{actor.label}.{call.method}", actor.entry
        entry: AnyEntry = StreamEntry(number, name, target) if streaming else CallEntry(number, name, target)
        died = ActorDiedError(actor.label, "its context was shut down") if self._closed else target.died
        if died is not None:
            entry.fail(died)
            return entry
        with only_of(self):
            encoded, needed = self._encode(call.args, call.kwargs, None)
        with self._lock:
            spec = CallSpec(
                caller=target.caller,
                order=next(target.calls),
                client=self._client.id,
                number=number,
                name=name,
                method=call.method,
                args=encoded.args,
                deps=encoded.deps,
                holds=tuple(each.number for each in needed),
                timeout=call.options.timeout,
                streaming=streaming,
            )
        self._enter(entry, needed)
        if streaming:
            self._soon(self._receive, entry)
        send = partial(self._soon, self._call, entry, target, pickle.dumps(tuple(spec)))
        self._once_published(entry, needed, send)
        return entry

    async def _call(self, entry: AnyEntry, target: DaskActorEntry, spec: bytes) -> None:
        """Send a call to its actor and wait for its end. Calls that were cancelled keep their turn."""
        try:
            outcome = await self._execute(target, "call", spec)
        except FrayError as error:
            self._leave(entry, "failed")
            entry.fail(error)
            return
        if isinstance(entry, CallEntry):
            self._leave(entry, "failed" if isinstance(outcome, Failure) else "succeeded")
            entry.succeed(outcome)

    def kill(self, actor: RemoteActor) -> None:
        """End an actor; code of it that runs already goes on, its result is dropped."""
        entry = actor.entry
        if entry.died is None and not self._closed:
            entry.died = ActorDiedError(actor.label, "it was killed")
            self._actors.discard(entry)
            self._ask("forget", name=actor.label, number=entry.number)
            self._client.sync(self._kill, entry)

    async def _kill(self, entry: DaskActorEntry) -> None:
        if entry.ready:
            await self._tell_actor(entry, "kill")
        else:
            entry.fail(entry.died or ActorDiedError(entry.name, "it was killed"))
        await self._cancel(entry)


def counted_resources(resources: Mapping[str, float] | None) -> dict[str, float]:
    """Return what is asked of Dask: resources that its workers count."""
    return {name: amount for name, amount in (resources or {}).items() if name not in PLAIN and amount}


def check_features(asked: Mapping[Feature, object]) -> None:
    """Raise `UnsupportedFeatureError` for the first of these features that is asked for."""
    for feature, value in asked.items():
        if value:
            raise refuse("dask", feature)
