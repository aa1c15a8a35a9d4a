"""How a thread of the client waits for an answer: after a quick one it looks, after a slow one it sleeps."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from fray.runtime.pool.client import ear as ear_module
from fray.runtime.pool.client.ear import Ear
from fray.runtime.pool.client.undisturbed import Undisturbed


class Sleeps(Undisturbed):
    """Notes how often the thread has slept, and the last time for how many milliseconds at most."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.timeout: float | None = None

    def poll(self, poll: select.poll, timeout: float | None) -> bool:
        self.count += 1
        self.timeout = timeout
        return super().poll(poll, timeout)


@dataclass
class Waiting:
    """A thread that waits for what the other end of its connection sends."""

    ear: Ear
    here: Sleeps
    ours: socket.socket
    theirs: socket.socket

    def send(self) -> None:
        """Let something come."""
        self.theirs.send(b"1")

    def take(self) -> None:
        """Take what has come, so that nothing is there."""
        self.ours.recv(1)

    def await_frame(self, seconds: float | None = None) -> bool:
        """Wait as a thread of the client does."""
        return self.ear.await_frame(self.here, None if seconds is None else time.monotonic() + seconds)


@pytest.fixture
def _all_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ear_module, "LOOK_SECONDS", 60.0)


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    """Yield a thread that has waited once, so that something is there, and slept for it."""
    ours, theirs = socket.socketpair()
    with ours, theirs, Sleeps() as here:
        ear = Ear(ours.fileno(), theirs.fileno())
        waiting = Waiting(ear, here, ours, theirs)
        waiting.send()
        assert waiting.await_frame()
        assert here.count == 1  # nothing was known of the first
        yield waiting
        ear.close()


@pytest.mark.usefixtures("_all_is_quick")
def test_a_quick_answer_is_looked_for_after_another_one(waiting: Waiting) -> None:
    for _ in range(10):
        assert waiting.await_frame()
    assert waiting.here.count == 1


def test_what_takes_longer_is_slept_for(waiting: Waiting) -> None:
    waiting.take()
    assert not waiting.await_frame(0.01)
    assert waiting.here.count == 2
    waiting.send()
    assert waiting.await_frame()
    assert waiting.here.count == 3  # the one before was slow


@pytest.mark.usefixtures("_all_is_quick")
def test_a_signal_ends_the_look(waiting: Waiting) -> None:
    waiting.take()
    waiting.here.signalled = True
    assert not waiting.await_frame()


@pytest.mark.usefixtures("_all_is_quick")
def test_a_signal_comes_before_what_has_come(waiting: Waiting) -> None:
    waiting.here.signalled = True
    assert not waiting.await_frame()


@pytest.mark.usefixtures("_all_is_quick")
def test_the_time_of_a_look_is_a_part_of_the_wait(waiting: Waiting) -> None:
    waiting.take()
    assert not waiting.await_frame(0.01)
    assert waiting.here.timeout == 0


@pytest.mark.usefixtures("_all_is_quick")
def test_after_looks_that_find_nothing_more_and_more_quick_answers_are_slept_for(waiting: Waiting) -> None:
    def await_look() -> int:
        """Return how many answers are slept for until one is looked for."""
        waiting.here.count = 0
        for waits in range(1000):
            assert waiting.await_frame()
            if waiting.here.count == waits:
                return waits
        raise AssertionError("all are slept for")

    def look_for_nothing(answers: int) -> None:
        for _ in range(answers):
            assert waiting.await_frame()
        waiting.take()
        assert not waiting.await_frame(0.0)
        waiting.send()

    look_for_nothing(0)
    look_for_nothing(2)
    look_for_nothing(4)
    assert await_look() == 8
    assert await_look() == 0
