"""The connection that the threads of a process share: opened for a loop, and closed with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.session import Session
from fray.errors import ClusterClosedError

PATIENCE = 60.0
OWNER = "k8s?namespace=ml"


class Opener:
    """Opens accesses that know the loop which they belong to; `farewell` is awaited by each one's end."""

    def __init__(self) -> None:
        self.opened: list[tuple[Access, asyncio.AbstractEventLoop]] = []
        self.closed: list[Access] = []
        self.farewell: Callable[[], Any] | None = None

    async def __call__(self) -> Access:
        async def close() -> None:
            assert asyncio.get_running_loop() is loop
            self.closed.append(access)
            if self.farewell is not None:
                await asyncio.to_thread(self.farewell)

        loop = asyncio.get_running_loop()
        access = Access(cast("Any", None), "https://server", "ml", close)
        self.opened.append((access, loop))
        return access


@pytest.fixture
def opener() -> Opener:
    return Opener()


@pytest.fixture
def session(opener: Opener) -> Iterator[Session]:
    made = Session(opener, owner=OWNER)
    yield made
    made.close()
    assert opener.closed == [access for access, _ in opener.opened]


async def say(access: Access) -> tuple[Access, asyncio.AbstractEventLoop]:
    return access, asyncio.get_running_loop()


def in_thread(act: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Begin a call in a thread; the list gets what it returns or raises."""
    told: list[Any] = []

    def run() -> None:
        try:
            told.append(act())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            told.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, told


def test_calls_share_a_connection_until_it_is_closed(session: Session, opener: Opener) -> None:
    assert session.ask(say) == session.ask(say) == opener.opened[0]
    session.close()
    assert session.ask(say) == opener.opened[1]


def test_a_call_that_begins_while_it_is_closed_has_a_connection_of_its_own(
    session: Session, opener: Opener
) -> None:
    """That of the loop that ends would never answer on another."""
    closing, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        closing.set()
        assert go_on.wait(PATIENCE)

    session.ask(say)
    opener.farewell = hold
    closer, _ = in_thread(session.close)
    assert closing.wait(PATIENCE)
    caller, told = in_thread(lambda: session.ask(say))
    caller.join(PATIENCE)
    go_on.set()
    closer.join(PATIENCE)
    assert told == [opener.opened[1]]


def test_calls_under_way_end_when_it_is_closed(session: Session, opener: Opener) -> None:
    begun = threading.Barrier(4)

    async def stay(_: Access) -> None:
        await asyncio.to_thread(begun.wait, PATIENCE)
        await asyncio.Event().wait()

    calls = [in_thread(lambda: session.ask(stay)) for _ in range(3)]
    begun.wait(PATIENCE)
    session.close()
    for caller, told in calls:
        caller.join(PATIENCE)
        assert [type(each) for each in told] == [ClusterClosedError]
        assert told[0].cluster == OWNER


@asynccontextmanager
async def noting(ended: list[str]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        ended.append("clean-up")


def test_what_was_started_hears_of_its_end_and_is_not_asked_on_another_loop(session: Session) -> None:
    ended: list[Any] = []

    async def stay(_: Access) -> None:
        async with noting(ended):
            begun.set()
            await asyncio.Event().wait()

    begun = threading.Event()
    started = session.start(stay, ended.append)
    assert begun.wait(PATIENCE)
    session.close()
    assert ended[0] == "clean-up"
    assert isinstance(ended[1], ClusterClosedError)

    async def ask_on() -> None:
        pytest.fail("its loop has ended")

    with pytest.raises(ClusterClosedError):
        started.run(ask_on())
    session.ask(say)  # a new loop, on which it has no place either
    with pytest.raises(ClusterClosedError):
        started.run(ask_on())


def test_what_was_cancelled_before_it_began_hears_of_its_end(session: Session) -> None:
    ended: list[Any] = []
    holding, go_on = threading.Event(), threading.Event()

    async def hold(_: Access) -> None:
        holding.set()
        assert go_on.wait(PATIENCE)

    caller, _ = in_thread(lambda: session.ask(hold))
    assert holding.wait(PATIENCE)

    async def never(_: Access) -> None:
        pytest.fail("it was cancelled before")

    session.start(never, ended.append).cancel()
    go_on.set()
    caller.join(PATIENCE)
    session.ask(say)
    assert [type(each) for each in ended] == [ClusterClosedError]
