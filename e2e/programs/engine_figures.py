"""Figures of one engine, each in its own idiom, from rank 0 of a job with three workers of one slot each.

Run in the pod of rank 0 as `python3 -c SOURCE ENGINE SHUFFLED...`. Prints a line of JSON: figures by name.
Each result is compared with what it must be, so an engine that answers wrong has no figures.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import statistics
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import getitem
from typing import Any

WORKERS = 3
BATCH = 500
SECONDS = 3.0
"""How long each rate and each latency is measured, at least one batch and `LEAST_TRIPS`."""
LEAST_TRIPS = 20
LARGE = 100_000_000
TRANSFERS = 3
PAGE = 4096
VALUES = 100
"""In each part of a shuffle."""


def give_back(number: int) -> int:
    """The smallest task."""
    return number


def give_parts(parts: int) -> Iterator[list[int]]:
    """One map task of a shuffle: a list for each reduce task."""
    for part in range(parts):
        yield [part] * VALUES


def list_parts(parts: int) -> list[list[int]]:
    """The same for engines whose tasks don't yield."""
    return list(give_parts(parts))


def sum_parts(*parts: list[int]) -> int:
    """One reduce task."""
    return sum(map(sum, parts))


def find_host(_number: int) -> str:
    """The name of the pod."""
    return socket.gethostname()


class Tally:
    """The actor that is measured."""

    def __init__(self) -> None:
        self._count = 0

    def increment(self) -> int:
        """Add one, and return the count."""
        self._count += 1
        return self._count


class Block:
    """Bytes that every engine moves as it moves arrays: as a buffer of its own beside what is pickled."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Block, (pickle.PickleBuffer(self.data),)


def make_block(seed: int) -> Block:
    """A large value of bytes that don't compress."""
    return Block((bytes([seed]) + os.urandom(2**20 - 1)) * (LARGE // 2**20))


def touch(block: Block) -> int:
    """Read each page of a large value, and return its first byte."""
    data = memoryview(block.data).cast("B")
    sum(data[::PAGE])
    return data[0]


class Station:
    """An actor that keeps a worker, to run functions there."""

    def do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what the function returns."""
        return function(*arguments)


class Peer(ABC):
    """What is measured of an engine, in its own words."""

    @abstractmethod
    def run(self, function: Callable[..., Any], items: Iterable[Any]) -> list[Any]:
        """Begin a task for each item."""

    @abstractmethod
    def get(self, refs: Sequence[Any]) -> list[Any]:
        """Return the results of tasks, or of calls."""

    @abstractmethod
    def settle(self, ref: Any) -> None:
        """Wait for a result without fetching it."""

    @abstractmethod
    def put(self, value: Any) -> Any:
        """Give a value to the engine."""

    @abstractmethod
    def create(self, cls: type[Any]) -> Any:
        """Create an actor that takes the slot of a worker."""

    @abstractmethod
    def create_named(self, cls: type[Any]) -> Any:
        """Create an actor that other jobs find, and that is restarted; None where the engine has none."""

    @abstractmethod
    def end(self, actor: Any) -> None:
        """End an actor."""

    def hold_workers(self) -> None:
        """Let `call_on` know the workers: one actor on each."""
        self.stations = [self.create(Station) for _ in range(WORKERS)]

    def call_on(self, number: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """Begin a call of a function on one of the workers."""
        return self.stations[number].do(function, *arguments)

    def free_workers(self) -> None:
        """End those actors; `call_on` knows nobody any more."""
        for station in self.stations:
            self.end(station)
        self.stations = []

    @abstractmethod
    def shuffle(self, parts: int) -> list[int]:
        """As many map tasks as parts of each, and a reduce task for each part; return their results."""


class FrayPeer(Peer):
    """Fray: its context, and generators for the parts of a shuffle."""

    def __init__(self) -> None:
        from fray.job import get_default_job_ctx  # noqa: PLC0415 - one engine alone is imported

        self.context = get_default_job_ctx()

    def run(self, function: Callable[..., Any], items: Iterable[Any]) -> list[Any]:
        """`ctx.run` for each."""
        return [self.context.run(function, item) for item in items]

    def get(self, refs: Sequence[Any]) -> list[Any]:
        """`ctx.get` of the list."""
        return list(self.context.get(list(refs)))

    def settle(self, ref: Any) -> None:
        """`ctx.wait`."""
        self.context.wait([ref])

    def put(self, value: Any) -> Any:
        """`ctx.put`."""
        return self.context.put(value)

    def create(self, cls: type[Any]) -> Any:
        """`ctx.create_actor`, with a CPU."""
        return self.context.create_actor(cls, num_cpus=1)

    def create_named(self, cls: type[Any]) -> Any:
        """A FrayActor: it has a pod to itself."""
        return self.context.create_actor(cls, name=f"figures-{os.getpid()}", num_cpus=0.1)

    def end(self, actor: Any) -> None:
        """`ctx.kill`."""
        self.context.kill(actor)

    def shuffle(self, parts: int) -> list[int]:
        """Generator tasks, and the refs of their items."""
        run = self.context.run
        streams = [run(give_parts, parts) for _ in range(parts)]
        rows = [list(stream) for stream in streams]
        return self.get([run(sum_parts, *column) for column in zip(*rows, strict=True)])


class RemoteMethods:
    """An actor of Ray, whose methods are called as those of the others are."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.actor, name).remote


class RayPeer(Peer):
    """Ray: one remote function for all calls, and `num_returns` for the parts of a shuffle."""

    def __init__(self) -> None:
        import ray  # noqa: PLC0415

        self.ray = ray
        ray.init(address="auto", log_to_driver=False)

    def run(self, function: Callable[..., Any], items: Iterable[Any]) -> list[Any]:
        """`f.remote` for each."""
        remote = self.ray.remote(function).remote
        return [remote(item) for item in items]

    def get(self, refs: Sequence[Any]) -> list[Any]:
        """`ray.get` of the list."""
        return list(self.ray.get(list(refs)))

    def settle(self, ref: Any) -> None:
        """`ray.wait`, which fetches nothing."""
        self.ray.wait([ref], fetch_local=False)

    def put(self, value: Any) -> Any:
        """`ray.put`."""
        return self.ray.put(value)

    def create(self, cls: type[Any]) -> Any:
        """An actor with a CPU."""
        return RemoteMethods(self.ray.remote(cls).options(num_cpus=1).remote())

    def create_named(self, cls: type[Any]) -> Any:
        """A detached one, which is restarted in any worker."""
        known = {"name": f"figures-{os.getpid()}", "lifetime": "detached", "max_restarts": -1}
        return RemoteMethods(self.ray.remote(cls).options(num_cpus=1, **known).remote())

    def end(self, actor: Any) -> None:
        """`ray.kill`."""
        self.ray.kill(actor.actor)

    def shuffle(self, parts: int) -> list[int]:
        """`num_returns`, and the refs of all parts."""
        split = self.ray.remote(list_parts).options(num_returns=parts).remote
        add = self.ray.remote(sum_parts).remote
        rows = [split(parts) for _ in range(parts)]
        return self.get([add(*column) for column in zip(*rows, strict=True)])


class DaskPeer(Peer):
    """Dask: `map` for all tasks in one message, and `workers=` to choose where they run."""

    def __init__(self) -> None:
        from distributed import BaseActorFuture, Client, wait  # noqa: PLC0415

        self.client, self.wait, self.call = Client(), wait, BaseActorFuture

    def run(self, function: Callable[..., Any], items: Iterable[Any]) -> list[Any]:
        """`client.map`."""
        return list(self.client.map(function, list(items), pure=False))

    def get(self, refs: Sequence[Any]) -> list[Any]:
        """`client.gather`; calls of actors have futures of their own."""
        if refs and isinstance(refs[0], self.call):
            return [ref.result() for ref in refs]
        return list(self.client.gather(list(refs)))

    def settle(self, ref: Any) -> None:
        """`wait`."""
        self.wait([ref])

    def put(self, value: Any) -> Any:
        """`client.scatter`, without a look at the value to name it."""
        return self.client.scatter(value, hash=False)

    def create(self, cls: type[Any]) -> Any:
        """An actor in one of the workers."""
        return self.client.submit(cls, actor=True, pure=False).result()

    def create_named(self, _cls: type[Any]) -> None:
        """Actors of Dask end with their worker."""

    def end(self, actor: Any) -> None:
        """Nothing: an actor ends once nobody holds it."""

    def hold_workers(self) -> None:
        """All addresses."""
        self.stations = sorted(self.client.scheduler_info(n_workers=-1)["workers"])

    def call_on(self, number: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """A task that may run on one worker alone."""
        return self.client.submit(function, *arguments, workers=[self.stations[number]], pure=False)

    def shuffle(self, parts: int) -> list[int]:
        """A task for each part takes it out of a list; all of them in one message."""
        lists = self.client.map(list_parts, [parts] * parts, pure=False)
        each = [row for row in lists for _ in range(parts)]
        items = self.client.map(getitem, each, list(range(parts)) * parts, pure=False)
        columns = [items[part::parts] for part in range(parts)]
        return self.get([self.client.submit(sum_parts, *column, pure=False) for column in columns])


PEERS: dict[str, Callable[[], Peer]] = {"fray": FrayPeer, "ray": RayPeer, "dask": DaskPeer}


def expect(got: object, wanted: object) -> None:
    """Raise unless a result is what it must be."""
    if got != wanted:
        raise RuntimeError(f"got {got!r:.200}, wanted {wanted!r:.200}")


def clock(action: Callable[[], object], wanted: object) -> float:
    """Return the seconds that something takes whose result is known."""
    begun = time.perf_counter()
    got = action()
    seconds = time.perf_counter() - begun
    expect(got, wanted)
    return seconds


def measure_rate(run: Callable[[], object]) -> float:
    """Return how many calls a second there are in batches, each begun at once and then waited for."""
    begun, batches = time.perf_counter(), 0
    while not batches or time.perf_counter() - begun < SECONDS:
        run()
        batches += 1
    return batches * BATCH / (time.perf_counter() - begun)


def measure_trip(run: Callable[[], object]) -> float:
    """Return the median of the milliseconds from a call to its result, one at a time."""
    begun, trips = time.perf_counter(), list[float]()
    while len(trips) < LEAST_TRIPS or time.perf_counter() - begun < SECONDS:
        started = time.perf_counter()
        run()
        trips.append(time.perf_counter() - started)
    return statistics.median(trips) * 1000


def measure_tasks(peer: Peer) -> dict[str, float]:
    """Tasks that do nothing."""

    def run(count: int) -> None:
        expect(peer.get(peer.run(give_back, range(count))), list(range(count)))

    run(BATCH)
    return {
        "tasks_per_second": measure_rate(lambda: run(BATCH)),
        "round_trip_ms": measure_trip(lambda: run(1)),
    }


def measure_calls(peer: Peer, actor: Any, name: str) -> dict[str, float]:
    """Calls of an actor in another pod."""
    done = 0

    def run(count: int) -> None:
        nonlocal done
        done += count
        # The last of them is the highest, though some may have overtaken others, as Dask's do.
        expect(max(peer.get([actor.increment() for _ in range(count)])), done)

    run(1)
    figures = {
        f"{name}_per_second": measure_rate(lambda: run(BATCH)),
        f"{name}_ms": measure_trip(lambda: run(1)),
    }
    peer.end(actor)
    return figures


def measure_data(peer: Peer) -> dict[str, float]:
    """A large value from one worker to another, and from rank 0 to all of them."""
    peer.hold_workers()
    hosts = peer.get([peer.call_on(number, find_host, 0) for number in range(WORKERS)])
    expect(len(set(hosts) - {socket.gethostname()}), WORKERS)
    moved, spread = [], []
    for number in range(TRANSFERS):
        block = peer.call_on(number % WORKERS, make_block, number)
        peer.settle(block)
        reader = (number + 1) % WORKERS
        moved.append(clock(lambda: peer.get([peer.call_on(reader, touch, block)]), [number]))  # noqa: B023
        value = make_block(number)

        def broadcast() -> list[int]:
            ref = peer.put(value)  # noqa: B023
            return list(peer.get([peer.call_on(each, touch, ref) for each in range(WORKERS)]))

        spread.append(clock(broadcast, [number] * WORKERS))
    return {"transfer_seconds": statistics.median(moved), "broadcast_seconds": statistics.median(spread)}


def measure_shuffle(peer: Peer, shuffled: int) -> dict[str, float]:
    """A shuffle with so many tasks on each side."""
    wanted = [part * VALUES * shuffled for part in range(shuffled)]
    return {f"shuffle_{shuffled}_seconds": clock(lambda: peer.shuffle(shuffled), wanted)}


def measure(peer: Peer, first: int, *others: int) -> dict[str, float]:
    """Return all figures of an engine, with shuffles of these sizes."""
    figures = measure_tasks(peer)
    figures |= measure_calls(peer, peer.create(Tally), "calls")
    if (named := peer.create_named(Tally)) is not None:
        figures |= measure_calls(peer, named, "named_calls")
    figures |= measure_shuffle(peer, first)
    figures |= measure_data(peer)
    # Behind all else: what larger ones leave in memory changes no other figure.
    peer.free_workers()
    for shuffled in others:
        peer.shuffle(first)  # workers may have to start processes again, in place of the actors'
        figures |= measure_shuffle(peer, shuffled)
    return figures


if __name__ == "__main__":
    found = measure(PEERS[sys.argv[1]](), *map(int, sys.argv[2:]))
    print(json.dumps({name: round(value, 5) for name, value in found.items()}), flush=True)
