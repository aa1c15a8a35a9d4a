"""Many processes on one queue, killed at any moment: nothing is lost, nothing that is done comes back."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fray.queue import FileQueue, HttpQueueServer, Queue
from fray.queue.store import LocalStore

ROOT = Path(__file__).parents[2]
ITEMS = 120
KILLS = 12


@dataclass(frozen=True)
class Event:
    """A line of the log: `position` is its place; what it tells of began after the place `begun`."""

    name: str
    item: int
    position: int
    begun: int


class Crew:
    """The workers of a test and what they wrote down."""

    def __init__(self, directory: Path, queue: Queue[int]) -> None:
        self._queue = directory / "queue.pickle"
        self._queue.write_bytes(pickle.dumps(queue))
        self._log = directory / "log"
        self._log.touch()
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self, role: str, *numbers: int) -> subprocess.Popen[bytes]:
        arguments = [role, self._queue, self._log, *numbers]
        command = [sys.executable, "-m", "tests.queue.worker", *(str(part) for part in arguments)]
        worker = subprocess.Popen(command, cwd=ROOT)
        self.workers.append(worker)
        return worker

    def events(self) -> list[Event]:
        events, position = [], 0
        for line in self._log.read_text().splitlines(keepends=True):
            name, item, begun = line.split()
            events.append(Event(name, int(item), position, int(begun)))
            position += len(line)
        return events

    def items(self, name: str) -> set[int]:
        return {event.item for event in self.events() if event.name == name}

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        worker.kill()
        worker.wait()
        self.workers.remove(worker)

    def end(self) -> None:
        for worker in list(self.workers):
            self.kill(worker)


@pytest.fixture(params=["file", "http"])
def shared_queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue[Any]]:
    if request.param == "file":
        yield FileQueue(tmp_path / "queue")
        return
    with HttpQueueServer(port=0) as server:
        yield server.new_queue("q")


@pytest.fixture
def crew(tmp_path: Path, shared_queue: Queue[Any]) -> Iterator[Crew]:
    started = Crew(tmp_path, shared_queue)
    yield started
    started.end()


def test_killed_pushers_and_takers_lose_nothing(crew: Crew, shared_queue: Queue[Any], tmp_path: Path) -> None:
    chance = random.Random(7)
    pushers = {start: crew.start("push", start, ITEMS, 2) for start in (0, 1)}
    takers = [crew.start("take") for _ in range(3)]
    kills = 0
    seen = 0
    while kills < KILLS:
        # At another point of the work each time: after so many more events.
        seen = wait_for_events(crew, seen + chance.randrange(1, 25))
        if kills % 4 == 1:
            start = chance.choice(list(pushers))
            crew.kill(pushers[start])
            begun = [item for item in crew.items("pushing") if item % 2 == start]
            pushers[start] = crew.start("push", max(begun, default=start - 2) + 2, ITEMS, 2)
        else:
            crew.kill(takers.pop(chance.randrange(len(takers))))
            takers.append(crew.start("take"))
        kills += 1
    for pusher in pushers.values():
        assert pusher.wait() == 0
    while crew.items("pushed") - crew.items("ending") or shared_queue.size() or shared_queue.pending():
        assert all(taker.poll() is None for taker in takers)
        time.sleep(0.02)
    crew.end()
    assert_at_least_once(crew.events())
    if isinstance(shared_queue, FileQueue):
        store = LocalStore(tmp_path / "queue")
        shared_queue.peek()
        assert store.list("items") == []
        assert store.list("claims") == []


def wait_for_events(crew: Crew, number: int) -> int:
    """Wait for more events, or for the end of the work."""
    while True:
        events = len(crew.events())
        if events >= number or len(crew.items("done")) >= ITEMS // 2:
            return events
        time.sleep(0.005)


def assert_at_least_once(events: list[Event]) -> None:
    done: dict[int, int] = {}
    for event in events:
        if event.name == "done":
            done.setdefault(event.item, event.position)
        if event.name == "popped" and event.item in done:
            # One that was handed out before may be noted after another holder was done.
            assert event.begun <= done[event.item], f"{event.item} came back after it was done"
    pushed = {event.item for event in events if event.name == "pushed"}
    assert len(pushed) > ITEMS // 2
    assert pushed <= {event.item for event in events if event.name == "ending"}
    assert len(done) > ITEMS // 2
