"""Interrupting tasks that run: the interrupt reaches the task, and nothing else."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from fray.errors import TaskCancelledError
from fray.runtime.pool.messages.commands import CancelTask
from fray.runtime.pool.messages.events import TaskDone
from tests.pool.worker.gates import Gate, arrive
from tests.pool.worker.scripted_head import Pool


def run_for_ever(path: Path) -> None:
    arrive(path)
    while True:
        time.sleep(0.001)


async def wait_for_ever(path: Path) -> None:
    arrive(path)
    await asyncio.Event().wait()


def survive(path: Path) -> str:
    try:
        arrive(path)
        while True:
            time.sleep(0.001)
    except BaseException:  # noqa: BLE001
        return "survived"


@pytest.mark.parametrize("function", [run_for_ever, wait_for_ever])
def test_a_running_task_is_interrupted(pool: Pool, function) -> None:  # type: ignore[no-untyped-def]
    worker = pool.start_worker()
    gate = Gate(pool.folder)
    command = pool.task(worker, function, gate.path)
    pool.tell(worker, command)
    gate.open()
    pool.tell(worker, CancelTask(worker, command.spec.id))
    with pytest.raises(TaskCancelledError, match=function.__name__):
        pool.value_of(command)
    assert pool.run(worker, abs, -1) == 1


def test_a_task_may_clean_up_and_even_give_a_value(pool: Pool) -> None:
    worker = pool.start_worker()
    gate = Gate(pool.folder)
    command = pool.task(worker, survive, gate.path)
    pool.tell(worker, command)
    gate.open()
    pool.tell(worker, CancelTask(worker, command.spec.id), CancelTask(worker, command.spec.id))
    assert pool.value_of(command) == "survived"


def test_interrupts_hit_no_other_task(pool: Pool) -> None:
    """Each is cancelled about when it ends: whatever comes of it, the next ones and the worker are whole."""
    worker = pool.start_worker()
    commands = [pool.task(worker, abs, -number, waits=True) for number in range(1, 301)]
    for command in commands:
        pool.tell(worker, command, CancelTask(worker, command.spec.id))
    for number, command in enumerate(commands, 1):
        try:
            assert pool.value_of(command) == number
        except TaskCancelledError:
            continue
    witnesses = [pool.task(worker, abs, -number) for number in range(20)]
    pool.tell(worker, *witnesses)
    assert [pool.value_of(command) for command in witnesses] == list(range(20))


def test_cancelling_what_has_ended_does_nothing(pool: Pool) -> None:
    worker = pool.start_worker()
    command = pool.task(worker, abs, -1)
    pool.tell(worker, command)
    assert pool.value_of(command) == 1
    pool.tell(worker, CancelTask(worker, command.spec.id))
    assert pool.run(worker, abs, -2) == 2
    assert not [message for message in pool.head.seen() if isinstance(message, TaskDone)]
