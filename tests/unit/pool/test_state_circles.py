"""Actors that only actors like them refer to, or values that these hold: when they end, and at what cost."""

from __future__ import annotations

import pytest

from fray.runtime.pool.machine.circles import PAUSE_A_RECORD, SEARCH_SECONDS
from fray.runtime.pool.messages.commands import Command, EndActor, SetTimer, StartWorker
from fray.runtime.pool.messages.events import (
    ActorEnded,
    ActorReady,
    ActorSubmitted,
    ObjectPut,
    RefsAdded,
    RefsReleased,
    TaskDone,
    TaskSubmitted,
    TimerFired,
    WorkerJoined,
)
from fray.runtime.pool.messages.specs import DRIVER, Inline
from tests.unit.pool.state_script import ONE, A, Script, make_actor, make_call


def put(script: Script, client: int, key: int, *contained: int) -> None:
    script.tell(client, ObjectPut(key, Inline(b"1", contained)))


def ends(told: list[Command]) -> list[int]:
    """Return the actors that end."""
    return sorted(each.actor for each in told if isinstance(each, EndActor))


def end_circles(script: Script, told: list[Command]) -> list[int]:
    """Let the search for circles be made that is due after `told`; return the actors that end."""
    assert ends(told) == []
    (timer,) = [each for each in told if isinstance(each, SetTimer)]
    script.now += timer.seconds
    return ends(script.tell(DRIVER, TimerFired(timer.key)))


def search(script: Script) -> list[Command]:
    return script.tell(DRIVER, TimerFired(("circles", 0)))


def start(script: Script) -> None:
    """Have an actor live in worker 2: worker 1 is for tasks."""
    script.tell(DRIVER, ActorSubmitted(make_actor(A), b"blob"))
    script.tell(DRIVER, WorkerJoined(2))
    script.tell(2, ActorReady(A, 1))


def test_an_actor_that_only_itself_refers_to_ends() -> None:
    script = Script(1)
    start(script)
    script.tell(DRIVER, TaskSubmitted(make_call(1)._replace(holds=(A,))))
    script.tell(2, RefsAdded((A,)))
    assert script.tell(DRIVER, RefsReleased((A,))) == []
    assert ends(script.tell(2, TaskDone(1, ONE))) == [A]
    script.tell(2, ActorEnded(A, 1))
    script.tell(2, RefsReleased((A,)))
    assert script.state.stats().actors == {}


def start_pair(script: Script, holds: tuple[int, ...] = ()) -> tuple[int, int]:
    """Start two actors in processes of their own, the second with what it `holds`; return their workers."""
    workers = []
    for spec in (make_actor(A, isolated=True), make_actor(A + 1, isolated=True, holds=holds)):
        told = script.tell(DRIVER, ActorSubmitted(spec, b"blob"))
        (begun,) = [each.worker for each in told if isinstance(each, StartWorker)]
        script.tell(DRIVER, WorkerJoined(begun))
        script.tell(begun, ActorReady(spec.id, 1))
        workers.append(begun)
    return workers[0], workers[1]


@pytest.mark.parametrize("holds", [(), (A,)])
@pytest.mark.parametrize("last", [A, A + 1])
def test_actors_that_only_refer_to_each_other_end_together(holds: tuple[int, ...], last: int) -> None:
    script = Script(2)
    first, second = start_pair(script, holds)
    script.tell(first, RefsAdded((A + 1,)))
    script.tell(second, RefsAdded((A,)))
    script.tell(DRIVER, TaskSubmitted(make_call(1)))
    script.tell(DRIVER, RefsReleased((2 * A + 1 - last,)))
    assert ends(script.tell(DRIVER, RefsReleased((last,)))) == []
    told = script.tell(first, TaskDone(1, ONE))
    ended = {(each.worker, each.actor) for each in told if isinstance(each, EndActor)}
    assert ended == {(first, A), (second, A + 1)}
    for worker, actor in sorted(ended):
        script.tell(worker, ActorEnded(actor, 1))
        script.tell(worker, RefsReleased((2 * A + 1 - actor,)))
    script.tell(DRIVER, RefsReleased((1,)))
    assert script.state.stats().actors == {}
    script.state.check()


def test_an_actor_that_one_with_a_name_refers_to_stays() -> None:
    script = Script(2)
    first, _ = start_pair(script)
    script.tell(DRIVER, ActorSubmitted(make_actor(A + 2, name="known", isolated=True), b"blob"))
    third = max(script.state._tables.workers)
    script.tell(DRIVER, WorkerJoined(third))
    script.tell(third, ActorReady(A + 2, 1))
    script.tell(third, RefsAdded((A,)))
    script.tell(first, RefsAdded((A + 2,)))
    assert end_circles(script, script.tell(DRIVER, RefsReleased((A, A + 2)))) == []


def test_actors_of_one_process_that_only_refer_to_each_other_end_together() -> None:
    script = Script(1)
    start(script)
    spec = make_actor(A + 1)
    script.tell(DRIVER, ActorSubmitted(spec, b"blob"))
    script.tell(2, ActorReady(A + 1, 1))
    script.tell(2, RefsAdded((A, A + 1)))
    assert ends(script.tell(DRIVER, RefsReleased((A,)))) == []
    assert ends(script.tell(DRIVER, RefsReleased((A + 1,)))) == [A, A + 1]


@pytest.mark.parametrize("released", [(A, 7), (7, A)])
def test_an_actor_ends_that_only_a_value_of_its_own_refers_to(released: tuple[int, int]) -> None:
    script = Script(1)
    start(script)
    script.tell(DRIVER, ActorSubmitted(make_actor(A + 1), b"blob"))  # it shares the process
    script.tell(2, ActorReady(A + 1, 1))
    script.tell(2, RefsAdded((A + 1,)))
    put(script, DRIVER, 7, A)
    script.tell(2, RefsAdded((7,)))
    script.tell(DRIVER, RefsReleased((A + 1,)))
    script.tell(DRIVER, RefsReleased(released[:1]))
    assert ends(search(script)) == []
    assert end_circles(script, script.tell(DRIVER, RefsReleased(released[1:]))) == [A, A + 1]
    script.tell(2, ActorEnded(A, 1))
    script.tell(2, ActorEnded(A + 1, 1))
    script.tell(2, RefsReleased((7, A + 1)))
    assert script.state.stats().actors == {}
    assert script.state.stats().objects == 0


@pytest.mark.parametrize("released", [(7, 8, 9), (9, 8, 7)])
@pytest.mark.parametrize("held", [(9,), (7, 8, 9)])
def test_an_actor_ends_that_a_value_in_values_of_its_own_refers_to(
    released: tuple[int, ...], held: tuple[int, ...]
) -> None:
    script = Script(1)
    start(script)
    for key, value in ((7, A), (8, 7), (9, 8)):
        put(script, DRIVER, key, value)
    script.tell(2, RefsAdded(held))
    script.tell(DRIVER, RefsReleased((A,)))
    for key in released:
        assert ends(search(script)) == []
        told = script.tell(DRIVER, RefsReleased((key,)))
    assert end_circles(script, told) == [A]


def test_an_actor_stays_that_a_value_refers_to_which_a_task_needs() -> None:
    script = Script(1)
    start(script)
    put(script, DRIVER, 7, A)
    script.tell(2, RefsAdded((7,)))
    script.submit(1, holds=(7,))
    script.tell(DRIVER, RefsReleased((A, 7)))
    assert ends(search(script)) == []
    assert end_circles(script, script.tell(1, TaskDone(1, ONE))) == [A]


def test_an_actor_ends_that_a_value_refers_to_with_which_its_mate_was_made() -> None:
    script = Script(1)
    start(script)
    put(script, DRIVER, 7, A)
    script.tell(DRIVER, ActorSubmitted(make_actor(A + 1, holds=(7,)), b"blob"))
    script.tell(2, ActorReady(A + 1, 1))
    script.tell(2, RefsAdded((A + 1,)))
    told = script.tell(DRIVER, RefsReleased((A, A + 1, 7)))
    assert end_circles(script, told) == [A, A + 1]


def test_calls_of_an_actor_that_a_value_keeps_make_no_search_each() -> None:
    script = Script(1)
    start(script)
    for key in range(1_000, 2_000):
        put(script, 2, key)
    put(script, DRIVER, 7, A)
    told = script.tell(DRIVER, RefsReleased((A,)))
    assert end_circles(script, told) == []
    told = []
    for key in range(100):
        script.tell(1, RefsAdded((A,)))
        script.tell(1, TaskSubmitted(make_call(key)))
        told += script.tell(2, TaskDone(key, ONE))
        told += script.tell(1, RefsReleased((A, key)))
    (timer,) = [each for each in told if isinstance(each, SetTimer)]
    assert timer.seconds > 1_000 * PAUSE_A_RECORD + SEARCH_SECONDS  # what the last one looked at
