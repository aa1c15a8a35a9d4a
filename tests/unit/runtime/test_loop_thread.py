"""The loop that clients without one share: results, interruptions, ends and forks."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import queue
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

from fray.errors import ClusterClosedError
from fray.runtime.loop_thread import LoopThread

PATIENCE = 60.0
NAME = "test-loop"


class Farewells:
    def __init__(self) -> None:
        self.said = 0

    async def __call__(self) -> None:
        self.said += 1


def closed() -> ClusterClosedError:
    return ClusterClosedError("k8s")


@pytest.fixture
def farewells() -> Farewells:
    return Farewells()


@pytest.fixture
def loop(farewells: Farewells) -> Iterator[LoopThread]:
    thread = LoopThread(NAME, on_end=farewells, closed=closed)
    yield thread
    thread.close()
    assert not threads()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


async def add(first: int, second: int) -> int:
    await asyncio.sleep(0)
    return first + second


async def fail() -> None:
    raise ValueError("no number")


def test_threads_share_one_loop(loop: LoopThread) -> None:
    results: list[int] = []
    callers = [
        threading.Thread(target=lambda i=i: results.append(loop.run(add(i, i))))  # type: ignore[misc]
        for i in range(8)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(PATIENCE)
    assert sorted(results) == [2 * index for index in range(8)]
    assert len(threads()) == 1


def test_errors_are_raised_where_it_was_called_and_keep_nothing_alive(loop: LoopThread) -> None:
    class Argument:
        pass

    async def use(_: Argument) -> None:
        raise ValueError("no number")

    def call() -> weakref.ref[Argument]:
        argument = Argument()
        with pytest.raises(ValueError, match="no number"):
            loop.run(use(argument))
        return weakref.ref(argument)

    gc.collect()
    gc.disable()
    try:
        kept = call()
        # The loop's thread lets go of a task a moment after its result is there.
        loop.run(add(1, 1))
        loop.run(add(1, 1))
        assert kept() is None
    finally:
        gc.enable()


def test_it_ends_and_begins_anew(loop: LoopThread, farewells: Farewells) -> None:
    assert loop.run(add(1, 1)) == 2
    loop.close()
    loop.close()
    assert not threads()
    assert loop.run(add(1, 2)) == 3
    loop.close()
    assert farewells.said == 2


def test_a_call_that_is_under_way_learns_of_the_end(loop: LoopThread) -> None:
    begun = threading.Event()
    errors: list[BaseException] = []

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            loop.run(wait())
        except ClusterClosedError as error:
            errors.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    assert begun.wait(PATIENCE)
    loop.close()
    caller.join(PATIENCE)
    assert [type(error) for error in errors] == [ClusterClosedError]


def test_a_call_and_an_end_at_the_same_time_come_in_one_order(farewells: Farewells) -> None:
    """Else a call that reached a loop about to end would wait for ever."""
    closers: list[threading.Thread] = []

    class Closed(LoopThread):
        def _ensure(self) -> Any:
            running = super()._ensure()
            closers.append(threading.Thread(target=self.close))
            closers[-1].start()
            closers[-1].join(0.2)  # to be held off by the call; were it not, this would be its time
            return running

    async def answer() -> int:
        return 42

    assert Closed(NAME, on_end=farewells, closed=closed).run(answer()) == 42
    closers[0].join(PATIENCE)
    assert not threads()


def test_ctrl_c_cancels_what_was_called_and_waits_for_its_clean_up(loop: LoopThread) -> None:
    cleaned = threading.Event()

    async def wait() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    with pytest.raises(KeyboardInterrupt):
        loop.run(wait())
    assert cleaned.is_set()
    assert loop.run(add(1, 1)) == 2


async def interrupt_and_add(first: int, second: int) -> int:
    """A signal that this thread takes doesn't wake the main thread: that learns of it with the answer."""
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    return first + second


def test_what_ended_just_before_ctrl_c_is_undone(loop: LoopThread) -> None:
    undone: list[int] = []

    async def undo(value: int) -> None:
        undone.append(value)

    with pytest.raises(KeyboardInterrupt):
        loop.run(interrupt_and_add(40, 2), undo)
    assert undone == [42]


def test_ctrl_c_says_what_could_not_be_undone(loop: LoopThread) -> None:
    async def undo(value: int) -> None:
        raise ClusterClosedError(f"of {value}")

    with pytest.raises(KeyboardInterrupt) as caught:
        loop.run(interrupt_and_add(40, 2), undo)
    assert "of 42" in caught.value.__notes__[0]


def test_a_fork_has_a_loop_of_its_own(loop: LoopThread) -> None:
    assert loop.run(add(1, 1)) == 2
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if loop.run(add(2, 3)) == 5 else 1
            loop.close()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert loop.run(add(1, 2)) == 3


def test_what_was_started_tells_its_end(loop: LoopThread) -> None:
    ends: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    assert loop.start(add(1, 1), end=ends.put).result() == 2
    assert ends.get(timeout=PATIENCE) is None
    failing = loop.start(fail(), end=ends.put)
    with pytest.raises(ValueError, match="no number"):
        failing.result()
    assert isinstance(ends.get(timeout=PATIENCE), ValueError)
    waiting = loop.start(asyncio.Event().wait(), end=ends.put)
    waiting.cancel()
    with pytest.raises(CancelledError):
        waiting.result()
    assert isinstance(ends.get(timeout=PATIENCE), ClusterClosedError)


def test_what_is_run_beside_a_call_ends_with_its_loop(loop: LoopThread) -> None:
    begun = threading.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    waiting = loop.start(wait())
    assert begun.wait(PATIENCE)
    assert loop.run(add(1, 1), beside=waiting) == 2
    loop.close()
    assert loop.run(add(1, 1)) == 2  # another loop
    late = add(1, 1)
    with pytest.raises(ClusterClosedError):
        loop.run(late, beside=waiting)
    assert late.cr_frame is None  # closed, so that nobody is warned of it


def test_one_that_cancels_nothing_leaves_what_runs() -> None:
    thread = LoopThread(NAME, cancels=False)
    ended = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    begun = threading.Event()
    running = thread.start(wait())
    thread.call(begun.set)
    assert begun.wait(PATIENCE)
    thread.close()
    assert not threads()
    assert not ended.is_set()
    assert not running.failed


def test_it_may_be_closed_without_a_wait_from_its_own_thread() -> None:
    thread = LoopThread(NAME)

    async def close() -> threading.Thread:
        thread.close()
        return threading.current_thread()

    thread.start(close()).result().join(PATIENCE)
    assert not threads()


def test_a_loop_has_no_variables_of_who_started_it() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="nobody's")
    thread = LoopThread(NAME)

    async def read() -> str:
        return variable.get()

    token = variable.set("the caller's")
    try:
        assert thread.start(read()).result() == "the caller's"
        assert thread.start(read(), context=contextvars.Context()).result() == "nobody's"
    finally:
        variable.reset(token)
        thread.close()


@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt()])
def test_a_coroutine_that_would_end_the_process_ends_alone(loop: LoopThread, error: BaseException) -> None:
    async def leave() -> None:
        raise error

    async def wait_for_one() -> None:
        await asyncio.gather(leave(), asyncio.sleep(PATIENCE))

    opened = asyncio.Event()

    async def stay() -> int:
        await opened.wait()
        return 3

    other = loop.start(stay())
    for coroutine in (leave(), wait_for_one()):
        with pytest.raises(type(error)):
            loop.start(coroutine).result()
    loop.call(opened.set)
    assert other.result() == 3
    assert loop.run(add(1, 2)) == 3


def test_a_callback_that_would_end_the_process_is_logged_and_nothing_ends(
    loop: LoopThread, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave() -> None:
        raise SystemExit(1)

    with pytest.raises(SystemExit):
        loop.start(leave()).result()
    assert loop.run(add(1, 2)) == 3
    assert caplog.messages == []  # who awaits it knows
    loop.call(lambda: sys.exit(4))
    assert loop.run(add(1, 2)) == 3
    (told,) = caplog.messages
    assert "raised SystemExit(4); the loop goes on" in told
    assert "raise it in the coroutine" in told


def test_a_coroutine_that_exits_while_it_is_cancelled_does_not_stop_the_end(farewells: Farewells) -> None:
    loop = LoopThread(NAME, on_end=farewells, closed=closed)

    async def leave_late() -> None:
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            raise SystemExit(0)

    running = loop.start(leave_late())
    loop.run(add(1, 2))
    loop.close()
    with pytest.raises(SystemExit):
        running.result()
    assert farewells.said == 1
