"""What a context on Dask keeps in the cluster, and what a process knows of it: outcomes, entries, messages.

Values are encoded, as in a pool: their readers share no memory, and Dask never looks into them. Nothing here
imports `distributed`, so that refs can be unpickled where it is missing.
"""

from __future__ import annotations

import asyncio
import itertools
import pickle
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from fray.errors import ActorDiedError, SerializationError
from fray.job.cells import Cell, Waitable
from fray.job.numbered_refs import find_engine
from fray.job.streams import BufferedStream
from fray.payload.values.exceptions import decode_error, encode_error, raisable
from fray.runtime.pool.objects.values import decode, encode

__all__ = [
    "ActorSpec",
    "CallEntry",
    "CallSpec",
    "DaskEntry",
    "Failure",
    "Outcome",
    "StreamEntry",
    "TaskSpec",
    "failure_of",
    "outcome_of",
    "read_outcome",
    "until_ready",
]


class Outcome:
    """A value in the memory of a Dask worker, as bytes; `contained` are the numbers of the refs inside.

    As long as it lies somewhere, `held` keeps what these refs stand for.
    """

    __slots__ = ("contained", "data", "held", "token")

    def __init__(self, token: str, data: Any, contained: tuple[int, ...] = ()) -> None:
        self.token = token
        self.data = data
        self.contained = contained
        engine = find_engine(token) if contained else None
        self.held = [engine.refer(number) for number in contained] if engine is not None else []

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # Out of the pickle where that is possible, so that large ones aren't copied.
        data = pickle.PickleBuffer(self.data) if protocol >= 5 else bytes(self.data)
        return type(self), (self.token, data, self.contained)

    def __sizeof__(self) -> int:
        return len(self.data) + 100


class Failure(Outcome):
    """What a task raised, in place of its value."""

    __slots__ = ()


def outcome_of(token: str, value: object) -> Outcome:
    """Return a value as its outcome; where it can't be pickled, the failure that says so."""
    try:
        encoded = encode(value)
    except SerializationError as error:
        return failure_of(token, error)
    return Outcome(token, encoded.to_bytes(), encoded.contained)


def failure_of(token: str, error: BaseException) -> Failure:
    """Return an exception as the outcome of the task that raised it."""
    return Failure(token, encode_error(error))


def read_outcome(outcome: Outcome, name: str) -> Any:
    """Return the value, or raise the exception of the task with this name: a new one each time."""
    if isinstance(outcome, Failure):
        raise raisable(decode_error(outcome.data), name)
    return decode(outcome.data)


class DaskEntry(Cell):
    """A value that a worker has or will have, as one process knows it.

    It settles when the task has ended: with the outcome, if that is here already, else with None. `future`
    keeps the value in the cluster. `holds` is kept until the task has ended: what its arguments refer to.
    """

    def __init__(self, number: int, name: str) -> None:
        super().__init__(str(number))
        self.number = number
        self.name = name
        self.future: Any = None
        self.outcome: Outcome | None = None
        self.holds: list[DaskEntry] = []


class CallEntry(DaskEntry):
    """The result of an actor's call: the caller gets it, and gives it to the cluster if others need it."""

    def __init__(self, number: int, name: str, actor: DaskActorEntry) -> None:
        super().__init__(number, name)
        self.actor = actor


class DaskActorEntry(DaskEntry):
    """An actor: settles when it was constructed. `calls` numbers this process's calls of it.

    `caller` names this process to the actor, which starts its calls in the order of their numbers.
    """

    def __init__(self, number: int, name: str) -> None:
        super().__init__(number, name)
        self.calls = itertools.count()
        self.caller = uuid.uuid4().hex
        self.address: str | None = None
        self.died: ActorDiedError | None = None


class StreamEntry(BufferedStream):
    """The items of a generator, on their way to the process that started it."""

    def __init__(self, number: int, name: str, actor: DaskActorEntry | None) -> None:
        super().__init__(None, str(number))
        self.number = number
        self.name = name
        self.actor = actor
        self.future: Any = None
        self.holds: list[DaskEntry] = []
        self._emptied: Callable[[], None] | None = None

    def add(self, items: list[Outcome]) -> None:
        """Let these items wait for their reader."""
        for item in items:
            self._put(item)

    def take(self, deadline: float | None) -> Any:
        """Return the next item or `END`; see `ItemStream`."""
        item = super().take(deadline)
        with self._lock:
            emptied = None if self._items else self._emptied
        if emptied is not None:
            emptied()
        return item

    async def until_empty(self) -> None:
        """Return once the reader has taken all items, or wants no more."""
        loop, empty = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            if self._ended or not self._items:
                return
            self._emptied = partial(_wake, loop, empty)
        await empty.wait()
        self._emptied = None

    def abandon(self) -> None:
        """Wake up who brings further items: nobody reads them."""
        super().abandon()
        emptied = self._emptied
        if emptied is not None:
            emptied()


class TaskSpec(NamedTuple):
    """A task, as it travels to its worker: pickled, so that no scheduler reads it."""

    token: str
    roles: bool
    number: int
    name: str
    function: bytes
    args: bytes
    options: bytes
    holds: tuple[int, ...]
    reader: str
    """The client that takes the items of a generator; empty: it is none."""


class ActorSpec(NamedTuple):
    """An actor, as it travels to its worker."""

    token: str
    roles: bool
    number: int
    name: str
    label: str
    function: bytes
    args: bytes
    holds: tuple[int, ...]
    max_concurrency: int


class CallSpec(NamedTuple):
    """A call of an actor, as it travels there."""

    caller: str
    order: int
    client: str
    number: int
    name: str
    method: str
    args: bytes
    deps: tuple[int, ...]
    holds: tuple[int, ...]
    timeout: float | None
    streaming: bool


def _wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event, _: object = None) -> None:
    loop.call_soon_threadsafe(event.set)


async def until_ready(waitable: Waitable) -> None:
    """Return once it is ready."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()

    wake = partial(_wake, loop, ready)
    waitable.subscribe(wake)
    try:
        await ready.wait()
    finally:
        waitable.unsubscribe(wake)
