"""Actors of the tests."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from fray.job import ActorHandle, current_actor, lookup_endpoint, register_endpoint
from fray.runtime.api.client import ApiAccess


class Counter:
    """Counts, and does what tests of calls need."""

    def __init__(self, start: int = 0) -> None:
        self.value = start
        self.seen: list[int] = []
        self._go = threading.Event()

    def add(self, amount: int = 1) -> int:
        self.value += amount
        return self.value

    def note(self, number: int) -> None:
        self.seen.append(number)

    def noted(self) -> list[int]:
        return self.seen

    def pid(self) -> int:
        return os.getpid()

    def echo(self, value: object) -> object:
        return value

    def clock(self) -> float:
        return time.time()

    def fail(self) -> None:
        raise KeyError("no such lesson")

    def items(self, count: int) -> Iterator[int]:
        yield from range(count)

    def size(self, data: bytes) -> int:
        return len(data)

    def give(self, size: int) -> bytes:
        return bytes(size)

    def block(self) -> None:
        self._go.wait()

    def release(self) -> None:
        self._go.set()

    def end(self) -> None:
        os._exit(0)

    def block_once(self, begun: str) -> int:
        """Block in the first process that runs it, which makes a file; return the pid of a later one."""
        if not os.path.exists(begun):  # noqa: PTH110 - no import that the class would take along
            with open(begun, "x"):  # noqa: PTH123
                pass
            self._go.wait()
        return os.getpid()

    def sleep(self, seconds: float) -> str:
        time.sleep(seconds)
        return "slept"


class Parent:
    """Leaves a child behind that won't end when it is asked to."""

    def bear(self) -> int:
        stubborn = ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"]
        return subprocess.Popen(stubborn, start_new_session=True).pid

    def end(self) -> None:
        os._exit(1)


class Broken:
    """Can't be constructed."""

    def __init__(self) -> None:
        raise ValueError("no such table")

    def call(self) -> None: ...


class Leaving:
    """Ends its process in its constructor."""

    def __init__(self) -> None:
        raise SystemExit(3)

    def call(self) -> None: ...


class Late:
    """Can be constructed the third time; a file counts how often it was tried."""

    def __init__(self, tries: str) -> None:
        with open(tries, "a+") as file:  # noqa: PTH123 - as above
            file.write("x")
            file.seek(0)
            if len(file.read()) < 3:
                raise ValueError("no such table yet")

    def call(self) -> str:
        return "called"


class Meeting:
    """Lets calls meet that run at once."""

    def __init__(self) -> None:
        self._all = asyncio.Event()
        self._count = 0

    async def meet(self, others: int) -> int:
        self._count += 1
        if self._count == others:
            self._all.set()
        await self._all.wait()
        return self._count


class Pupil:
    """A member of a group that writes down what it is told, and can fail."""

    def __init__(self, path: Path) -> None:
        self._member, self._path = current_actor(), path
        self._stop = self._member.shutdown_event
        threading.Thread(target=self._study).start()

    def myself(self) -> ActorHandle[Pupil]:
        return self._member.handle

    def pid(self) -> int:
        return os.getpid()

    def graduate(self) -> str:
        self._stop.set()
        return "bye"

    def fail(self) -> None:
        self._member.fail(BufferError("out of lessons"))

    def _study(self) -> None:
        self._stop.wait()
        time.sleep(0.5)  # what an actor does that ends may take its time
        self._path.write_text("asked to end, and done")


class Mortal:
    """Leaves a mark, a file of its process's number, when it ends as it was asked to."""

    def __init__(self, marks: Path) -> None:
        self._stop, self._marks = current_actor().shutdown_event, marks
        threading.Thread(target=self._leave).start()

    def pid(self) -> int:
        return os.getpid()

    def _leave(self) -> None:
        self._stop.wait()
        (self._marks / str(os.getpid())).touch()


class Seat:
    """A member of a group that knows its place."""

    def __init__(self) -> None:
        member = current_actor()
        self.place = f"{member.group_name}/{member.index}"

    def where(self) -> str:
        return self.place

    def letters(self) -> Iterator[str]:
        yield from self.place


class Shard:
    """What is on one host of a slice: it writes down what it is told, and fails on one of them."""

    def __init__(self, broken: int | None = None) -> None:
        self.host = current_actor().host
        self.seen: list[int] = []
        self._go = threading.Event()
        if self.host == broken:
            raise ValueError("no such table")

    def place(self) -> tuple[int, int]:
        return self.host, os.getpid()

    async def note(self, number: int) -> None:
        await asyncio.sleep(0)
        self.seen.append(number)

    def write(self, folder: Path) -> int:
        (folder / str(self.host)).write_text(f"{os.getpid()} {self.seen}")
        return self.host

    def fail_on(self, host: int) -> str:
        if self.host == host:
            raise KeyError("no such lesson")
        if host == 1:
            self._go.wait()  # as a collective operation does that the other host has left
        return "done"

    def block(self) -> None:
        self._go.wait()

    def letters(self) -> Iterator[str]:
        yield from "abc"


class Server:
    """Registers where it listens, in a pod whose API server is that of a test."""

    def __init__(self, name: str, address: str) -> None:
        if "TEST_API" in os.environ:
            access = ApiAccess(os.environ["TEST_API"], "ml", Path(os.environ["TEST_TOKEN"]))
            ApiAccess.in_pod = classmethod(lambda *_: access)  # type: ignore[method-assign, assignment]
        register_endpoint(name, address)

    def register(self, name: str, address: str) -> None:
        register_endpoint(name, address)

    def look_up(self, name: str) -> str:
        return lookup_endpoint(name).address
