"""An actor alone in its process, whose own thread hears its calls: what else comes, and for whom."""

from __future__ import annotations

import contextvars
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.errors import TaskCancelledError
from fray.runtime.pool.messages.commands import CancelTask, Deliver
from fray.runtime.pool.messages.events import ActorReady, ObjectsWanted
from fray.runtime.pool.objects.values import encode
from fray.runtime.pool.worker import hearing
from tests.pool.worker.attached import ATTACH, get
from tests.pool.worker.gates import Gate, arrive
from tests.pool.worker.scripted_head import PATIENCE, Pool, make_pool

OBJECT = 99


class Lone:
    """No reader of its process takes the turn to hear from its thread."""

    def __init__(self) -> None:
        hearing.LOOK_SECONDS = 10 * PATIENCE
        self.blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        self.got: list[int] = []
        here = contextvars.copy_context()
        self.thread = threading.Thread(target=lambda: self.got.append(here.run(get, OBJECT)))

    def found_blocked(self) -> bool:
        return signal.SIGUSR1 in self.blocked

    def pass_gate(self, path: Path) -> str:
        return arrive(path)

    def begin_to_wait(self) -> None:
        self.thread.start()

    def join_thread(self, path: Path) -> list[int]:
        arrive(path)
        self.thread.join()
        return self.got


@pytest.fixture
def pool() -> Iterator[Pool]:
    with make_pool(attach=ATTACH) as made:
        yield made


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


def test_what_another_thread_waits_for_is_heard_while_a_method_runs(pool: Pool) -> None:
    worker = pool.start_worker()
    actor = start(pool, worker)
    pool.tell(worker, begin := pool.method(worker, actor, "begin_to_wait"))
    assert pool.value_of(begin) is None
    pool.head.take(ObjectsWanted)
    gate = Gate(pool.folder)
    pool.tell(worker, call := pool.method(worker, actor, "join_thread", gate.path))
    gate.open()
    pool.tell(worker, Deliver(worker, OBJECT, encode(7).to_bytes()))
    assert pool.value_of(call) == [7]
