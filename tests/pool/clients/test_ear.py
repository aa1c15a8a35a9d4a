"""How a thread of the client waits for an answer: after a quick one it looks, after a slow one it sleeps."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator

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


@pytest.fixture
def _all_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ear_module, "LOOK_SECONDS", 60.0)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the two ends of a connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.usefixtures("_all_is_quick")
def test_a_quick_answer_is_looked_for_after_another_one(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    ear, here = Ear(ours.fileno(), theirs.fileno()), Sleeps()
    theirs.send(b"1")
    with here:
        assert ear.await_frame(here, None)
        assert here.count == 1  # nothing is known of the first
        for _ in range(10):
            assert ear.await_frame(here, None)
        assert here.count == 1
    ear.close()


def test_what_takes_longer_is_slept_for(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    ear, here = Ear(ours.fileno(), theirs.fileno()), Sleeps()
    theirs.send(b"1")
    with here:
        assert ear.await_frame(here, None)
        ours.recv(1)
        assert not ear.await_frame(here, time.monotonic() + 0.01)
        assert here.count == 2
        theirs.send(b"1")
        assert ear.await_frame(here, None)
        assert here.count == 3  # the one before was slow
    ear.close()


@pytest.mark.usefixtures("_all_is_quick")
def test_a_signal_ends_the_look(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    ear, here = Ear(ours.fileno(), theirs.fileno()), Sleeps()
    theirs.send(b"1")
    with here:
        assert ear.await_frame(here, None)
        ours.recv(1)
        here.signalled = True
        assert not ear.await_frame(here, None)
    ear.close()


@pytest.mark.usefixtures("_all_is_quick")
def test_a_signal_comes_before_what_has_come(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    ear, here = Ear(ours.fileno(), theirs.fileno()), Sleeps()
    theirs.send(b"1")
    with here:
        assert ear.await_frame(here, None)
        here.signalled = True
        assert not ear.await_frame(here, None)
    ear.close()


@pytest.mark.usefixtures("_all_is_quick")
def test_the_time_of_a_look_is_a_part_of_the_wait(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    ear, here = Ear(ours.fileno(), theirs.fileno()), Sleeps()
    theirs.send(b"1")
    with here:
        assert ear.await_frame(here, None)
        ours.recv(1)
        assert not ear.await_frame(here, time.monotonic() + 0.01)
        assert here.timeout == 0
    ear.close()


@pytest.mark.usefixtures("_all_is_quick")
def test_after_looks_in_vain_more_and_more_quick_answers_are_slept_for(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    ear, here = Ear(ours.fileno(), theirs.fileno()), Sleeps()

    def await_look() -> int:
        """Return how many answers are slept for until one is looked for."""
        here.count = 0
        for waits in range(1000):
            assert ear.await_frame(here, None)
            if here.count == waits:
                return waits
        raise AssertionError("all are slept for")

    def look_in_vain(answers: int) -> None:
        for _ in range(answers):
            assert ear.await_frame(here, None)
        ours.recv(1)
        assert not ear.await_frame(here, time.monotonic())
        theirs.send(b"1")

    theirs.send(b"1")
    with here:
        assert await_look() == 1
        look_in_vain(0)
        look_in_vain(2)
        look_in_vain(4)
        assert await_look() == 8
        assert await_look() == 0
    ear.close()
