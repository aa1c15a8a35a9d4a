"""Who reads in a worker: frames here are lists of functions, each called by the thread that reads."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable

import pytest

from fray.runtime.pool.worker import reception as module
from fray.runtime.pool.worker.reception import Inbox, Reception
from fray.runtime.pool.worker.threads import ElasticThreads

PATIENCE = 60
Message = Callable[[], None]


class Peer:
    """A reception with its standby, and threads that serve."""

    def __init__(self) -> None:
        self.frames: queue.SimpleQueue[list[Message]] = queue.SimpleQueue()
        self.reception = Reception(self.read)
        self.threads = ElasticThreads("lane", self.reception)
        self.readers: list[threading.Thread] = []
        threading.Thread(target=self.reception.stand_by, name="standby", daemon=True).start()

    def read(self) -> None:
        frame = self.frames.get()
        self.readers.append(threading.current_thread())
        for message in frame:
            message()

    def say(self, *messages: Message) -> None:
        self.frames.put(list(messages))

    def run(self, work: Callable[[], None]) -> Message:
        return lambda: self.threads.run(work)

    def hear(self) -> threading.Thread:
        """Say something that nobody has to work for; return who has read it."""
        heard = queue.SimpleQueue[threading.Thread]()
        self.say(lambda: heard.put(threading.current_thread()))
        return heard.get(timeout=PATIENCE)

    def run_one(self) -> threading.Thread:
        """Have some work done; return by whom."""
        done = queue.SimpleQueue[threading.Thread]()
        self.say(self.run(lambda: done.put(threading.current_thread())))
        return done.get(timeout=PATIENCE)


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The standby never finds by itself that work takes long."""
    monkeypatch.setattr(module, "LOOK_SECONDS", PATIENCE * 10)


def test_who_was_given_work_reads_what_follows_and_does_it(unwatched: None, peer: Peer) -> None:
    lane = peer.run_one()
    assert lane.name == "lane"
    assert peer.hear() is lane
    assert [peer.run_one() for _ in range(3)] == [lane] * 3
    assert peer.readers[1:] == [lane] * 4


class Held:
    """What some work refers to."""

    def use(self) -> None: ...


def test_a_thread_rests_when_it_refers_to_none_of_its_work_any_more(unwatched: None, peer: Peer) -> None:
    held, gone = Held(), queue.SimpleQueue[bool]()
    seen = weakref.ref(held)
    peer.run_one()
    peer.reception.rest = lambda: gone.put(seen() is None)
    peer.say(peer.run(held.use))
    del held
    # It may also have been about to rest after the work before.
    while not gone.get(timeout=PATIENCE):
        pass


def test_others_read_while_work_takes_long(peer: Peer) -> None:
    go_on, done = threading.Event(), queue.SimpleQueue[threading.Thread]()

    def work() -> None:
        assert go_on.wait(PATIENCE)
        done.put(threading.current_thread())

    for _ in range(3):
        peer.say(peer.run(work))
        assert peer.hear().name == "standby"
        peer.run_one()
        peer.say(go_on.set)
        done.get(timeout=PATIENCE)
        go_on.clear()


def test_the_standby_wakes_for_long_work_after_it_slept(monkeypatch: pytest.MonkeyPatch, peer: Peer) -> None:
    monkeypatch.setattr(module, "IDLE_LOOKS", 1)
    peer.run_one()
    while not peer.reception._asleep:
        if peer.hear().name == "standby":
            peer.run_one()  # it reads, so it never sleeps: the work before took long on a busy machine
    go_on = threading.Event()
    peer.say(peer.run(lambda: assert_set(go_on)))
    peer.say(go_on.set)
    assert go_on.wait(PATIENCE)


def test_others_read_at_once_while_work_waits(unwatched: None, peer: Peer) -> None:
    peer.run_one()
    go_on, done = threading.Event(), threading.Event()

    def work() -> None:
        peer.reception.let_go()
        assert_set(go_on)
        done.set()

    peer.say(peer.run(work))
    assert peer.hear().name == "standby"
    peer.say(go_on.set)
    assert done.wait(PATIENCE)


def test_works_of_one_frame_are_done_at_the_same_time(unwatched: None, peer: Peer) -> None:
    together = threading.Barrier(4)
    for _ in range(3):
        peer.say(*[peer.run(lambda: wait_at(together)) for _ in range(3)])
        wait_at(together)
        peer.hear()


def test_work_of_others_gets_through_where_the_reader_may_have_some(unwatched: None, peer: Peer) -> None:
    inbox, done, may_read = Inbox(shared=False), queue.SimpleQueue[str](), [True]

    def serve() -> None:
        while (work := inbox.work.get()) is not None:
            work()
            peer.reception.serve(inbox, lambda: may_read[0])

    own = threading.Thread(target=serve, daemon=True)
    own.start()
    peer.say(lambda: peer.reception.give(inbox, lambda: done.put("first")))
    assert done.get(timeout=PATIENCE) == "first"
    assert peer.hear() is own
    may_read[0] = False
    peer.hear()  # it may have looked before
    assert peer.hear().name == "standby"
    peer.reception.give(inbox, lambda: done.put("second"))
    assert done.get(timeout=PATIENCE) == "second"
    inbox.work.put(None)
    own.join(PATIENCE)
    assert not own.is_alive()


def test_work_that_the_same_frame_has_for_the_next_reader_gets_through(unwatched: None, peer: Peer) -> None:
    inbox, looked, first, second = Inbox(shared=False), *(threading.Event() for _ in range(3))

    def may_read() -> bool:
        looked.set()
        return inbox.work.empty()

    def serve() -> None:
        while True:
            inbox.work.get()()  # type: ignore[misc]
            peer.reception.serve(inbox, may_read)

    def wait_for_the_next_reader() -> None:
        assert_set(first)
        looked.wait(0.2)  # it must not look before this frame's end; were it to, this lets it

    threading.Thread(target=serve, daemon=True).start()
    peer.say(
        lambda: peer.reception.give(inbox, first.set),
        wait_for_the_next_reader,
        lambda: peer.reception.give(inbox, second.set),
    )
    assert_set(second)


def test_work_from_elsewhere_gets_through_while_the_next_reader_waits_for_a_long_frame(peer: Peer) -> None:
    inbox, first, second, end = Inbox(shared=False), *(threading.Event() for _ in range(3))

    def serve() -> None:
        while True:
            inbox.work.get()()  # type: ignore[misc]
            peer.reception.serve(inbox, inbox.work.empty)

    threading.Thread(target=serve, daemon=True).start()
    peer.say(lambda: peer.reception.give(inbox, first.set), lambda: assert_set(end))
    assert_set(first)
    # The thread is to read next, and this frame doesn't end; such work is what a coroutine's end gives.
    peer.reception.give(inbox, second.set)
    try:
        assert_set(second)
    finally:
        end.set()


def test_who_resigns_reads_no_more_after_the_frame(unwatched: None, peer: Peer) -> None:
    inbox = Inbox(shared=False)
    done = threading.Event()

    def serve() -> None:
        while (work := inbox.work.get()) is not None:
            work()
            peer.reception.serve(inbox, lambda: True)

    own = threading.Thread(target=serve, daemon=True)
    own.start()
    peer.say(lambda: peer.reception.give(inbox, done.set))
    assert done.wait(PATIENCE)
    assert peer.hear() is own
    peer.reception.resign(inbox)
    inbox.work.put(None)
    peer.hear()  # by either: it may be reading already
    own.join(PATIENCE)
    assert not own.is_alive()
    assert peer.hear().name == "standby"


def assert_set(event: threading.Event) -> None:
    assert event.wait(PATIENCE)


def wait_at(barrier: threading.Barrier) -> None:
    barrier.wait(PATIENCE)
