"""An actor alone in its process, whose own thread hears its calls: what else comes, and for whom."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from fray.errors import TaskCancelledError
from fray.runtime.pool.messages.commands import CancelTask
from fray.runtime.pool.messages.events import ActorReady
from fray.runtime.pool.worker import hearing
from tests.pool.worker.gates import Gate, arrive
from tests.pool.worker.scripted_head import PATIENCE, Pool


class Lone:
    """No reader of its process takes the turn to hear from its thread."""

    def __init__(self) -> None:
        hearing.LOOK_SECONDS = PATIENCE
        self.blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})

    def found_blocked(self) -> bool:
        return signal.SIGUSR1 in self.blocked

    def pass_gate(self, path: Path) -> str:
        return arrive(path)


def start(pool: Pool, worker: int) -> int:
    command = pool.actor(worker, Lone)
    pool.tell(worker, command)
    assert pool.head.take(ActorReady) == (command.spec.id, 1)
    return command.spec.id


def test_a_call_that_was_cancelled_while_the_one_before_it_ran_does_not_run(pool: Pool) -> None:
    worker = pool.start_worker()
    actor = start(pool, worker)
    gates = [Gate(pool.folder, name) for name in "abc"]
    first, second, third = (pool.method(worker, actor, "pass_gate", gate.path) for gate in gates)
    pool.tell(worker, first)
    with gates[0].path.open("wb"):  # it runs
        for message in (second, third, CancelTask(worker, third.spec.id)):
            pool.tell(worker, message)
        pool.head.turn()
    with pytest.raises(TaskCancelledError):
        pool.value_of(third)
    gates[1].open()
    assert pool.value_of(second) == "b"


def test_the_thread_of_another_actor_inherits_nothing_of_the_first_ones(pool: Pool) -> None:
    worker = pool.start_worker()
    actor = start(pool, worker)
    pool.tell(worker, call := pool.method(worker, actor, "found_blocked"))
    assert not pool.value_of(call)
    other = start(pool, worker)
    pool.tell(worker, call := pool.method(worker, other, "found_blocked"))
    assert not pool.value_of(call)
