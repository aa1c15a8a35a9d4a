"""What a process of a context on Dask sends to workers and gets from them: tasks, and items of generators.

Calls of actors go to the worker that has the actor, past Dask's scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fray.errors import (
    ActorDiedError,
    FrayError,
    ObjectLostError,
)
from fray.job.dask_plugin import key_of
from fray.job.dask_refs import AnyEntry, DaskRefs
from fray.job.dask_values import (
    DaskActorEntry,
    DaskEntry,
    Failure,
    Outcome,
    StreamEntry,
    read_outcome,
    until_ready,
)

__all__ = ["DaskStreams"]


class DaskStreams(DaskRefs):
    """Starts tasks and actors, reaches actors, and fetches the items of generators while they are read."""

    def _note_end(self, entry: AnyEntry, future: Any) -> None:
        super()._note_end(entry, future)
        if isinstance(entry, StreamEntry) and future.status not in ("finished", "lost"):
            self._soon(self._end_stream, entry)

    def _start(
        self,
        entry: AnyEntry,
        function: Callable[..., Any],
        spec: bytes,
        deps: Sequence[int],
        resources: dict[str, float],
    ) -> None:
        """Hand a task or an actor to Dask, unless it was cancelled before."""
        if (isinstance(entry, StreamEntry) and entry.ended) or (isinstance(entry, DaskEntry) and entry.ready):
            return
        known = {each.number: each for each in entry.holds}
        entry.future = self._client.submit(
            function,
            spec,
            *(known[number].future for number in deps),
            key=key_of(self.token, entry.number),
            pure=False,
            resources=resources or None,
            actor=isinstance(entry, DaskActorEntry),
        )
        entry.future.add_done_callback(partial(self._note_end, entry))

    async def _cancel(self, entry: AnyEntry) -> None:
        if entry.future is not None:
            key = key_of(self.token, entry.number)
            await self._client.scheduler.fray_cancel(key=key, client=self._client.id)

    # --- generators -----------------------------------------------------------------------------------------

    async def _receive(self, entry: StreamEntry) -> None:
        """Bring the items of a generator here, a batch at a time, for as long as they are read."""
        scheduler = self._client.scheduler
        where = {"token": self.token, "number": entry.number}
        while not entry.ended:
            try:
                batch = await scheduler.fray_receive(**where, client=self._client.id)
            except OSError as error:
                entry.fail(ObjectLostError(entry.name, "the Dask cluster has ended", (str(error),)))
                return
            if batch is None:
                return
            for kind, data, contained in batch:
                if kind == "item":
                    made = Failure if data[:1] == b"!" else Outcome
                    entry.add([made(self.token, bytes(data[1:]), tuple(contained))])
                elif kind == "failed":
                    self._leave(entry, "failed")
                    entry.fail(_raised(data, entry.name))
                else:
                    self._leave(entry, "succeeded")
                    entry.succeed(None)
            await entry.until_empty()

    async def _end_stream(self, entry: StreamEntry) -> None:
        """Let a generator end that nobody reads any more."""
        await self._client.scheduler.fray_close_box(token=self.token, number=entry.number)
        if entry.actor is not None:
            await self._tell_actor(entry.actor, "cancel", entry.number)
        else:
            await self._cancel(entry)

    # --- actors, where they are -----------------------------------------------------------------------------

    async def _tell_actor(self, target: DaskActorEntry, method: str, *args: Any) -> None:
        try:
            await self._execute(target, method, *args)
        except FrayError:
            return  # it has ended

    async def _execute(self, target: DaskActorEntry, method: str, *args: Any) -> Any:
        """Call a method of `ActorHost`, in the worker that has it, which needs no slot for it."""
        await until_ready(target)
        if target.error is not None:
            raise target.died or target.error
        key = key_of(self.token, target.number)
        try:
            if target.address is None:
                found = await self._client.scheduler.who_has(keys=[key])
                target.address = next(iter(found.get(key) or ()), None)
                if target.address is None:
                    raise target.died or ActorDiedError(target.name, "its worker has ended")
            worker = self._client.rpc(target.address)
            reply = await worker.actor_execute(actor=key, function=method, args=list(args))
        except OSError as error:
            died = ActorDiedError(target.name, "the connection to its worker was lost", (str(error),))
            target.died = target.died or died
            raise target.died from error
        if reply["status"] != "OK":
            raise ActorDiedError(target.name, "its worker has let it go", (repr(reply["exception"]),))
        return reply["result"]


def _raised(data: bytes, name: str) -> BaseException:
    try:
        read_outcome(Failure("", data), name)
    except BaseException as error:  # noqa: BLE001 - it is what the generator raised
        return error
    raise AssertionError
