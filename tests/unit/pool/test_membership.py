"""What the head makes of a worker's connection that has ended, in time that passes by hand."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fray.errors import ConnectionLostError
from fray.payload.stamp import Stamp
from fray.runtime.pool.client.backpressure import SubmitLimit
from fray.runtime.pool.head.dispatcher import Dispatcher, Driver
from fray.runtime.pool.head.membership import ANSWER_SECONDS, NEWS_OF_DEATH_SECONDS, Membership
from fray.runtime.pool.head.peers import Peers
from fray.runtime.pool.message_codec import MESSAGES, STAMP, decode_messages, encode_messages
from fray.runtime.pool.messages.commands import CancelTask, Deliver, RunTask, StartWorker, StopWorker
from fray.runtime.pool.messages.events import HostJoined, TaskSubmitted, WorkerLost
from fray.runtime.pool.messages.greetings import HostAddresses, HostWelcome, NannyHello, WorkerHello
from fray.runtime.pool.messages.specs import DRIVER, Failed
from fray.runtime.pool.state import PoolState
from fray.runtime.pool.transport.refusals import RefusalCounts
from tests.unit.pool.state_script import make_task

HOST = 1
KILLED = "killed by signal 9 (SIGKILL)"


class Timers:
    """The part of an event loop that is used here."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    def call_later(self, seconds: float, callback: Callable[..., None], *args: Any) -> None:
        self._due.append((self.now + seconds, callback, args))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due = [each for each in self._due if each[0] <= self.now]
        self._due = [each for each in self._due if each[0] > self.now]
        for _, callback, args in sorted(due, key=lambda each: each[0]):
            callback(*args)


class Process:
    """The other end of a connection: says messages, and keeps those that it's sent."""

    def __init__(self, membership: Membership) -> None:
        self.peer = "a process"
        self.on_frame: Callable[[Any], None]
        self.on_lost: Callable[[Any], None]
        self.heard: list[Any] = []
        membership.on_connection(self)  # type: ignore[arg-type]

    def send(self, _kind: int, body: bytes, **_: Any) -> None:
        self.heard += decode_messages(body)

    def abort(self) -> None:
        """Nobody awaits its end."""

    def say(self, message: Any) -> None:
        self.on_frame(SimpleNamespace(kind=MESSAGES, body=encode_messages([message])))

    def heard_of(self, kind: type) -> list[Any]:
        return [message for message in self.heard if isinstance(message, kind)]


class Pool:
    """A pool of one host, whose only worker runs a task that may not be repeated."""

    def __init__(self) -> None:
        self.timers: Any = Timers()
        self.news: list[Any] = []
        self.peers = peers = Peers(HOST)
        store: Any = SimpleNamespace(free=lambda _: None)
        driver = Driver(store, SubmitLimit(), self.news.extend, lambda *_: 0)
        dispatcher = Dispatcher(self.timers, PoolState(), peers=peers, driver=driver)
        membership = Membership(self.timers, dispatcher, peers=peers, refusals=RefusalCounts())
        membership.welcome = HostWelcome(0, "pool", "")
        self.membership = membership
        peers.note_joined(HOST)
        hello = NannyHello(HOST, "here", (("CPU", 1.0),), 1, 1000, "")
        dispatcher.handle(DRIVER, HostJoined(*hello[:5]))
        self.nanny = Process(membership)
        self.nanny.say(hello)
        [start] = self.nanny.heard_of(StartWorker)
        self.number = start.worker
        self.worker = Process(membership)
        self.worker.say(WorkerHello(self.number, 4711))
        dispatcher.handle(DRIVER, TaskSubmitted(make_task(1, retries=0), b"blob", wanted=True))
        dispatcher.flush()
        assert self.worker.heard_of(RunTask)

    def add_host(self, objects: str) -> Process:
        """Let a host join that has no room for tasks; return its nanny."""
        nanny = Process(self.membership)
        nanny.on_frame(SimpleNamespace(kind=STAMP, body=Stamp.here().to_json().encode()))
        nanny.say(NannyHello(0, "other", (("CPU", 0.0),), 0, 1000, objects))
        return nanny

    def tell_worker(self, message: Any) -> None:
        self.peers.send(self.peers.workers[self.number], message)
        self.peers.flush()

    def cut_worker(self) -> None:
        self.worker.on_lost(ConnectionLostError("a process", "the peer closed it"))

    def story(self) -> str:
        """Return why the task failed; empty: it hasn't, as far as the driver knows."""
        outcomes = [news.outcome for news in self.news if isinstance(news, Deliver)]
        assert all(isinstance(outcome, Failed) for outcome in outcomes)
        return " ".join(line for outcome in outcomes for line in outcome.story)


@pytest.fixture
def pool() -> Pool:
    return Pool()


def test_the_nanny_says_why(pool: Pool) -> None:
    pool.cut_worker()
    assert pool.story() == ""
    pool.nanny.say(WorkerLost(pool.number, KILLED))
    assert KILLED in pool.story()


def test_the_nannys_word_counts_however_late_it_comes(pool: Pool) -> None:
    """A machine may stand still just then, or the nanny alone: the reason is the same."""
    pool.cut_worker()
    pool.timers.pass_time(NEWS_OF_DEATH_SECONDS)
    assert pool.story() == ""
    assert [stop.worker for stop in pool.nanny.heard_of(StopWorker)] == [pool.number]
    pool.nanny.say(WorkerLost(pool.number, KILLED))
    assert KILLED in pool.story()
    pool.timers.pass_time(ANSWER_SECONDS)
    assert len(pool.nanny.heard_of(StopWorker)) == 1


def test_a_nanny_that_says_nothing_at_all_is_not_waited_for(pool: Pool) -> None:
    pool.cut_worker()
    pool.timers.pass_time(NEWS_OF_DEATH_SECONDS)
    pool.timers.pass_time(ANSWER_SECONDS)
    assert "its connection ended: the connection to a process ended" in pool.story()


def test_of_new_hosts_a_worker_hears_with_the_next_message_and_of_lost_ones_at_once(pool: Pool) -> None:
    """A thousand hosts that join would be a million messages."""
    before = len(pool.worker.heard)
    first, second = pool.add_host("tcp:10.0.0.2:1"), pool.add_host("tcp:10.0.0.3:1")
    assert pool.worker.heard[before:] == []
    pool.tell_worker(cancel := CancelTask(pool.number, 1))
    joined = HostAddresses(((2, "tcp:10.0.0.2:1"), (3, "tcp:10.0.0.3:1")))
    assert pool.worker.heard[before:] == [joined, cancel]
    first.on_lost(ConnectionLostError("a process", "the peer closed it"))
    assert pool.worker.heard[before + 2 :] == [HostAddresses(((2, ""),))]
    pool.tell_worker(cancel)
    assert pool.worker.heard[before + 3 :] == [cancel]
    assert not second.heard_of(HostAddresses), "nannies read no objects"


def test_what_is_known_of_addresses_follows_the_changes() -> None:
    known = {1: "tcp:a:1", 2: "tcp:b:1"}
    HostAddresses(((2, ""), (3, "tcp:c:1"), (1, "tcp:a:2"), (9, ""))).update(known)
    assert known == {1: "tcp:a:2", 3: "tcp:c:1"}
