"""Interrupting a task: where it may come, where it must not, and what is told of a task that waits."""

from __future__ import annotations

import contextlib
import contextvars
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fray.runtime.pool.current import RunningTask, TaskInterrupt, current_task, set_current_task, shielded
from fray.runtime.pool.outbox import Outbox


class Told:
    """Keeps what is told of waiting."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def blocked(self, _task: RunningTask) -> None:
        self.lines.append("blocked")

    def unblocked(self, _task: RunningTask) -> None:
        self.lines.append("unblocked")


class Connection:
    """Takes what is sent."""

    def send(self, _kind: int, body: bytes) -> None:
        """Take a frame."""


def spin() -> None:
    """Run bytecode, in which a pending interrupt comes."""
    for _ in range(10_000):
        pass


def as_task(running: RunningTask, function: Callable[[], Any]) -> Any:
    """Run a function as the code of a task."""

    def run() -> Any:
        set_current_task(running)
        try:
            running.enter()
            return function()
        finally:
            running.leave()

    return contextvars.Context().run(run)


def test_an_interrupt_comes_within_the_task_and_not_after_it() -> None:
    running = RunningTask(1, "t")

    def interrupted() -> None:
        running.interrupt()
        spin()
        pytest.fail("it goes on")

    with pytest.raises(TaskInterrupt):
        as_task(running, interrupted)
    running.interrupt()
    spin()


def test_an_interrupt_at_the_very_end_of_a_task_is_lost() -> None:
    for _ in range(200):
        running = RunningTask(1, "t")
        try:
            as_task(running, running.interrupt)
        except TaskInterrupt:
            continue
        spin()


def test_other_code_can_be_traced_after_an_interrupt() -> None:
    running = RunningTask(1, "t")
    with pytest.raises(TaskInterrupt):
        as_task(running, lambda: (running.interrupt(), spin()))
    lines = 0

    def trace(_frame: object, event: str, _arg: object) -> object:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        spin()
    finally:
        sys.settrace(before)
    assert lines > 10_000


def test_a_task_that_was_interrupted_before_never_begins() -> None:
    running = RunningTask(1, "t")
    running.interrupt()
    with pytest.raises(TaskInterrupt):
        as_task(running, lambda: pytest.fail("it began"))


def test_a_shielded_block_is_whole_and_the_interrupt_follows_it() -> None:
    running = RunningTask(1, "t")
    steps = []

    def shield() -> None:
        with shielded():
            running.interrupt()
            spin()
            steps.append("whole")
        steps.append("after")

    with pytest.raises(TaskInterrupt):
        as_task(running, shield)
    assert steps == ["whole"]


def test_a_frame_is_sent_whole() -> None:
    running = RunningTask(1, "t")
    sent = []

    class Interrupting:
        def send(self, _kind: int, body: bytes) -> None:
            running.interrupt()
            spin()
            sent.append(body)

    outbox = Outbox(Interrupting(), lambda: None)
    with pytest.raises(TaskInterrupt):
        as_task(running, lambda: outbox.send("message"))
    assert len(sent) == 1


def test_who_wakes_the_sender_of_small_messages_is_not_interrupted_at_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would never wake again, and the last message wait for ever."""
    running = RunningTask(1, "t")
    woken = []

    def wake(_: Outbox) -> None:
        running.interrupt()
        spin()
        woken.append(1)

    monkeypatch.setattr(Outbox, "_wake_flusher", wake)
    outbox = Outbox(Connection(), lambda: None)
    outbox.send("message")
    with pytest.raises(TaskInterrupt):
        as_task(running, lambda: [outbox.send_soon("message") for _ in range(1000)])
    assert woken == [1]


def test_a_task_that_starts_threads_is_interrupted_itself() -> None:
    def start_many() -> None:
        while not given_up.is_set():
            threading.Thread(target=int).start()

    given_up, ended = threading.Event(), []

    def run(running: RunningTask, begun: threading.Event) -> None:
        with contextlib.suppress(TaskInterrupt):
            as_task(running, lambda: begun.set() or start_many())
        ended.append(running)

    for number in range(100):
        running, begun = RunningTask(number, "t"), threading.Event()
        thread = threading.Thread(target=run, args=(running, begun), daemon=True)
        thread.start()
        assert begun.wait(60)
        running.interrupt()
        thread.join(60)
        assert ended[-1:] == [running], "the thread that it was starting was ended in its place"


def test_waiting_is_told_once_however_many_threads_wait() -> None:
    told = Told()
    running = RunningTask(1, "t", told)
    with running.waiting(lambda: None), running.waiting(lambda: None):
        assert told.lines == ["blocked"]
    assert told.lines == ["blocked", "unblocked"]


def test_who_waits_is_woken_and_interrupted_and_what_it_lent_is_taken_back() -> None:
    told = Told()
    running = RunningTask(1, "t", told)
    woken = threading.Event()

    def wait() -> None:
        with running.waiting(woken.set):
            threading.Thread(target=running.interrupt).start()
            assert woken.wait(60)
        pytest.fail("it goes on")

    with pytest.raises(TaskInterrupt):
        as_task(running, wait)
    assert told.lines == ["blocked", "unblocked"]


def test_what_a_task_lent_is_taken_back_whole() -> None:
    class Interrupting(Told):
        def unblocked(self, task: RunningTask) -> None:
            task.interrupt()
            spin()
            super().unblocked(task)

    told = Interrupting()
    running = RunningTask(1, "t", told)

    def wait() -> None:
        with running.waiting(lambda: None):
            pass

    with pytest.raises(TaskInterrupt):
        as_task(running, wait)
    assert told.lines == ["blocked", "unblocked"]


def test_other_code_runs_in_no_task() -> None:
    running = RunningTask(1, "t")
    assert as_task(running, current_task) is running
    assert current_task() is None
    with shielded():
        spin()
