"""Signals whose handlers raise, at any moment of a main thread that sends to its pool and hears it."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from fray.runtime.pool.client.undisturbed import Undisturbed
from tests.pool.hosts.pools import PATIENCE, ROOT

INTERRUPTS = 300

CALLS = f"""
import os, random, signal, sys, threading, time
from fray.job import create_job_ctx
from tests.pool.clients import programs

working, interrupts = False, 0

def interrupt(number, frame):
    # What is raised within a finalizer goes no further: `working` says anew whether it is caught.
    global working, interrupts
    if working:
        working, interrupts = False, interrupts + 1
        raise InterruptedError(number)

def send_signals():
    chance = random.Random(int(sys.argv[1]))
    while interrupts < {INTERRUPTS}:
        time.sleep(chance.random() * 0.002)
        os.kill(os.getpid(), chance.choice((signal.SIGINT, signal.SIGALRM)))

signal.signal(signal.SIGINT, interrupt)
signal.signal(signal.SIGALRM, interrupt)
with create_job_ctx("pool", max_workers=1, head="process") as ctx:
    counter = ctx.create_actor(programs.Counter)
    before = ctx.get(counter.add.remote(1))
    sender = threading.Thread(target=send_signals)
    sender.start()
    while sender.is_alive():
        try:
            while sender.is_alive():
                working = True
                now = ctx.get(counter.add.remote(1))
                assert now > before, (now, before)
                before = now
            working = False
        except InterruptedError:
            pass
    # Of calls that were interrupted some were made, though nobody has read their results.
    assert before < ctx.get(counter.add.remote(1), timeout=60) <= before + 1 + {INTERRUPTS}
    assert signal.getsignal(signal.SIGINT) is interrupt is signal.getsignal(signal.SIGALRM)
    assert len(ctx.get([counter.add.remote(1) for _ in range(1000)], timeout=60)) == 1000
print("in order")
"""


def test_calls_go_on_after_any_interrupt() -> None:
    command = [sys.executable, "-c", CALLS, "20261127"]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=3 * PATIENCE, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "in order\n"), ended.stderr


class Handlers:
    """Handlers of two signals that note and raise."""

    def __init__(self) -> None:
        self.ran: list[int] = []

    def raise_interrupt(self, number: int, _frame: FrameType | None) -> None:
        self.ran.append(number)
        raise InterruptedError(number)

    def note(self, number: int, _frame: FrameType | None) -> None:
        self.ran.append(number)


@pytest.fixture
def handlers() -> Iterator[Handlers]:
    made = Handlers()
    before = {
        signal.SIGUSR1: signal.signal(signal.SIGUSR1, made.raise_interrupt),
        signal.SIGUSR2: signal.signal(signal.SIGUSR2, made.note),
    }
    yield made
    for number, handler in before.items():
        signal.signal(number, handler)


def test_handlers_wait_for_the_end_of_the_block(handlers: Handlers) -> None:
    done = []

    def work() -> None:
        with Undisturbed():
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR2)
            done.append(list(handlers.ran))

    with pytest.raises(InterruptedError):
        work()
    assert (done, handlers.ran) == ([[]], [signal.SIGUSR1, signal.SIGUSR2])
    assert signal.getsignal(signal.SIGUSR1) == handlers.raise_interrupt
    assert signal.getsignal(signal.SIGUSR2) == handlers.note


def poll_of(ready: socket.socket) -> select.poll:
    poll = select.poll()
    poll.register(ready, select.POLLIN)
    return poll


def test_a_signal_ends_the_wait_and_its_handler_runs_after_the_block(handlers: Handlers) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with Undisturbed() as here:
            threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGUSR2)).start()
            assert not here.poll(poll_of(ours), PATIENCE * 1000)
            assert (here.signalled, handlers.ran) == (True, [])
        assert handlers.ran == [signal.SIGUSR2]


def test_nothing_waits_once_a_signal_has_come(handlers: Handlers) -> None:
    ours, theirs = socket.socketpair()

    def work() -> None:
        with ours, theirs, Undisturbed() as here:
            signal.raise_signal(signal.SIGUSR1)
            assert not here.poll(poll_of(ours), PATIENCE * 1000)
            signal.raise_signal(signal.SIGUSR2)
            assert handlers.ran == []

    with pytest.raises(InterruptedError):
        work()
    assert handlers.ran == [signal.SIGUSR1, signal.SIGUSR2]


def test_handlers_may_set_others(handlers: Handlers) -> None:
    signal.signal(signal.SIGUSR1, lambda _number, _frame: signal.signal(signal.SIGUSR1, handlers.note))
    with Undisturbed():
        signal.raise_signal(signal.SIGUSR1)
    assert signal.getsignal(signal.SIGUSR1) == handlers.note


def test_a_handler_that_raises_at_once_leaves_no_handler_behind(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def set_and_raise(number: int, handler: Any) -> None:
        _signal.signal(number, handler)
        if number == signal.SIGUSR1 and handler == handlers.raise_interrupt:
            monkeypatch.undo()
            signal.raise_signal(number)

    def work() -> None:
        with Undisturbed():
            monkeypatch.setattr("fray.runtime.pool.client.undisturbed._set_handler", set_and_raise)

    with pytest.raises(InterruptedError):
        work()
    assert signal.getsignal(signal.SIGUSR1) == handlers.raise_interrupt
    assert signal.getsignal(signal.SIGUSR2) == handlers.note
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_main_thread_without_handlers_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(number: int, _handler: Any) -> None:
        raise ValueError(f"signal {number} only works in main thread of the main interpreter")

    monkeypatch.setattr("fray.runtime.pool.client.undisturbed._set_handler", refuse)
    with Undisturbed() as here:
        assert not here.signalled


def test_a_child_that_another_thread_forks_has_the_handlers_of_the_program(handlers: Handlers) -> None:
    ended: list[int] = []

    def fork() -> None:
        if child := os.fork():
            ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        else:
            os._exit(0 if signal.getsignal(signal.SIGUSR2) == handlers.note else 1)

    with Undisturbed():
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    assert ended == [0]


WAITING = """
import os, signal, threading, time
from fray.job import create_job_ctx
from tests.pool.clients import programs

def call(number, frame):
    print(ctx.get(counter.add.remote(1), timeout=60), flush=True)
    os.kill(os.getpid(), signal.SIGUSR2)
    print("interrupted:", interrupted, flush=True)

def note(number, frame):
    interrupted.append(number)

interrupted = []
signal.signal(signal.SIGUSR1, call)
signal.signal(signal.SIGUSR2, note)
with create_job_ctx("pool", max_workers=2, head="process") as ctx:
    counter = ctx.create_actor(programs.Counter)
    print(ctx.get(counter.add.remote(1)), flush=True)
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    print(ctx.get(ctx.run(time.sleep, 0.5)), flush=True)
"""


def test_handlers_may_wait_for_the_pool_and_be_interrupted() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WAITING],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.stdout == f"1\n2\ninterrupted: [{signal.SIGUSR2.value}]\nNone\n", ended.stderr


FORKING = """
import os, signal, threading, time
from fray.errors import PoolClosedError
from fray.job import create_job_ctx
from tests.pool.clients import programs

def fork(number, frame):
    global child
    child = os.fork()

signal.signal(signal.SIGUSR1, fork)
with create_job_ctx("pool", max_workers=1, head="process") as ctx:
    counter = ctx.create_actor(programs.Counter)
    ctx.get(counter.add.remote(1))
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    try:
        ctx.get(ctx.run(time.sleep, 0.5), timeout=60)
    except PoolClosedError:
        os._exit(0 if child == 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    print(ctx.get(counter.add.remote(1), timeout=60))
"""


def test_a_child_that_a_handler_forks_within_a_wait_hears_nothing() -> None:
    command = [sys.executable, "-c", FORKING]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ended.returncode, ended.stdout) == (0, "2\n"), ended.stderr


def test_blocks_within_blocks(handlers: Handlers) -> None:
    def work() -> None:
        with Undisturbed():
            with Undisturbed():
                signal.raise_signal(signal.SIGUSR1)
            assert handlers.ran == []

    with pytest.raises(InterruptedError):
        work()
    assert handlers.ran == [signal.SIGUSR1]
    assert signal.getsignal(signal.SIGUSR1) == handlers.raise_interrupt


def test_other_threads_hold_no_handlers(handlers: Handlers) -> None:
    seen: list[Callable[..., object] | int | None] = []

    def look() -> None:
        with Undisturbed():
            seen.append(signal.getsignal(signal.SIGUSR1))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [handlers.raise_interrupt]
