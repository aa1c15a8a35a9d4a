"""What the scheduler of a Dask cluster keeps for contexts: names of actors, and items on their way.

It never reads values. All methods run in the scheduler's event loop, so that each is done as a whole up to
its next `await`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.scheduler import Scheduler

__all__ = ["FrayPlugin", "key_of"]

PATIENCE = 10.0
"""Seconds that something is waited for which another client has submitted: graphs come in a thread's turn."""


def key_of(token: str, number: int) -> str:
    """Return the key of a value or an actor in Dask."""
    return f"{token}-{number}"


@dataclass
class _Named:
    """A name that is taken; `made` is set once the actor is known to the scheduler, or the name is free."""

    number: int
    methods: bytes = field(repr=False)
    creator: str
    made: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class _Box:
    """Items of one generator on their way: at most one batch waits."""

    batch: list[Any] | None = None
    closed: bool = False
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)


@dataclass
class _Context:
    owner: str
    names: dict[str, _Named] = field(default_factory=dict)
    boxes: dict[int, _Box] = field(default_factory=dict)
    ended: deque[int] = field(default_factory=lambda: deque(maxlen=10_000))
    """Generators whose reader has gone, the last of them."""


class FrayPlugin(SchedulerPlugin):
    """Serves all contexts of a Dask cluster; a context ends with the client that made it."""

    name = "fray"
    idempotent = True

    def __init__(self) -> None:
        self._contexts: dict[str, _Context] = {}

    async def start(self, scheduler: Scheduler) -> None:
        """Serve calls of clients; see `SchedulerPlugin`."""
        self._scheduler = scheduler
        self._submitted = asyncio.Condition()
        self._background: set[asyncio.Task[None]] = set()
        served = (self.open, self.close_context, self.claim, self.made, self.find, self.forget)
        items = (self.send, self.receive, self.close_box, self.desire, self.cancel)
        scheduler.handlers.update({f"fray_{each.__name__}": each for each in (*served, *items)})

    def update_graph(self, scheduler: Scheduler, **_: Any) -> None:  # noqa: ARG002 - see SchedulerPlugin
        """Wake up who waits for something to be submitted."""
        task = asyncio.get_running_loop().create_task(_notify(self._submitted))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def remove_client(self, scheduler: Scheduler, client: str) -> None:  # noqa: ARG002 - see SchedulerPlugin
        """End the contexts of a client that has gone, and free the names that it was about to use."""
        for token, context in list(self._contexts.items()):
            if context.owner == client:
                self.close_context(token)
            for name, named in list(context.names.items()):
                if named.creator == client and not named.made.is_set():
                    self.forget(token, name, named.number)

    def open(self, token: str, client: str) -> None:
        """Begin a context, which ends with this client."""
        self._contexts[token] = _Context(client)

    def close_context(self, token: str) -> None:
        """End a context: its actors may go, and who waits for items wakes up."""
        context = self._contexts.pop(token, None)
        if context is None:
            return
        for name, named in list(context.names.items()):
            self._free(token, context, name, named)
        for box in context.boxes.values():
            box.closed = True
            task = asyncio.get_running_loop().create_task(_notify(box.changed))
            self._background.add(task)
            task.add_done_callback(self._background.discard)
        if token in self._scheduler.clients:
            self._scheduler.remove_client(token)

    # --- names of actors -----------------------------------------------------------------------------------

    async def claim(
        self, token: str, name: str, number: int, methods: bytes, client: str, *, share: bool
    ) -> list[Any] | bool:
        """Return the number and methods of the actor that has a name; True: the caller is to make it now.

        False: another has it, and it isn't to be shared.
        """
        while True:
            context = self._contexts[token]
            named = context.names.get(name)
            if named is None:
                context.names[name] = _Named(number, methods, client)
                return True
            if not share:
                return False
            await named.made.wait()
            if self._contexts[token].names.get(name) is named:
                return [named.number, named.methods]

    def made(self, token: str, name: str, number: int) -> None:
        """Keep a named actor, which is being constructed, and let others find it."""
        context = self._contexts.get(token)
        named = context.names.get(name) if context is not None else None
        if named is not None and named.number == number:
            self._scheduler.client_desires_keys([key_of(token, number)], token)
            named.made.set()

    async def find(self, token: str, name: str) -> list[Any]:
        """Return the number and methods of the actor that has a name; None and the names that there are."""
        context = self._contexts[token]
        named = context.names.get(name)
        if named is not None:
            await named.made.wait()
            if context.names.get(name) is named:
                return [named.number, named.methods]
        return [None, sorted(context.names)]

    def forget(self, token: str, name: str, number: int) -> None:
        """Let a name be free, if the actor with this number has it."""
        context = self._contexts.get(token)
        named = context.names.get(name) if context is not None else None
        if context is not None and named is not None and named.number == number:
            self._free(token, context, name, named)

    def _free(self, token: str, context: _Context, name: str, named: _Named) -> None:
        del context.names[name]
        if named.made.is_set():
            self._scheduler.client_releases_keys([key_of(token, named.number)], token)
        named.made.set()

    # --- items of generators -------------------------------------------------------------------------------

    async def send(self, token: str, number: int, batch: list[Any]) -> bool:
        """Take items of a generator, once the reader has those before; False: nobody reads them."""
        await self._until_known(_keys(token, batch))
        context = self._contexts.get(token)
        if context is None or number in context.ended:
            return False
        box = context.boxes.setdefault(number, _Box())
        async with box.changed:
            await box.changed.wait_for(lambda: box.batch is None or box.closed)
            if box.closed:
                return False
            box.batch = batch
            self._scheduler.client_desires_keys(_keys(token, batch), token)
            box.changed.notify_all()
        return True

    async def receive(self, token: str, number: int, client: str) -> list[Any] | None:
        """Give the next items of a generator to their reader; None: there will be none."""
        context = self._contexts.get(token)
        if context is None or number in context.ended:
            return None
        box = context.boxes.setdefault(number, _Box())
        async with box.changed:
            await box.changed.wait_for(lambda: box.batch is not None or box.closed)
            batch, box.batch = box.batch, None
            if batch is not None:
                self._hand_over(token, batch, client)
            box.changed.notify_all()
        return batch

    async def close_box(self, token: str, number: int) -> None:
        """Let a generator know that nobody reads its items any more."""
        context = self._contexts.get(token)
        if context is None:
            return
        context.ended.append(number)
        box = context.boxes.pop(number, None)
        if box is not None:
            async with box.changed:
                box.closed = True
                if box.batch is not None:
                    self._scheduler.client_releases_keys(_keys(token, box.batch), token)
                box.changed.notify_all()

    def _hand_over(self, token: str, batch: list[Any], client: str) -> None:
        keys = _keys(token, batch)
        if keys:
            if client in self._scheduler.clients:
                self._scheduler.client_desires_keys(keys, client)
            self._scheduler.client_releases_keys(keys, token)

    # --- values --------------------------------------------------------------------------------------------

    async def desire(self, keys: Sequence[str], client: str) -> list[str]:
        """Keep values for a client; return those that there are none of."""
        await self._until_known(keys)
        known = [key for key in keys if key in self._scheduler.tasks]
        if client in self._scheduler.clients:
            self._scheduler.client_desires_keys(known, client)
        return [key for key in keys if key not in self._scheduler.tasks]

    async def cancel(self, key: str, client: str) -> None:
        """End a task for all who want its value, also one that is on its way to the scheduler."""
        await self._until_known([key])
        task = self._scheduler.tasks.get(key)
        if task is not None and task.who_wants:
            self._scheduler.stimulus_cancel([key], client=client, force=True, reason="cancelled", msg="")

    async def _until_known(self, keys: Sequence[str]) -> None:
        tasks = self._scheduler.tasks
        if all(key in tasks for key in keys):
            return
        try:
            async with asyncio.timeout(PATIENCE), self._submitted:
                await self._submitted.wait_for(lambda: all(key in tasks for key in keys))
        except TimeoutError:
            return  # what isn't known by now has gone


def _keys(token: str, batch: list[Any]) -> list[str]:
    return [key_of(token, number) for _, _, contained in batch for number in contained]


async def _notify(condition: asyncio.Condition) -> None:
    async with condition:
        condition.notify_all()
