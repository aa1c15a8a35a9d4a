"""What a head shows of its pool as JSON, and what becomes of it where it is read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fray.runtime.pool.machine.functions import MOST_NAMES, NAME_LENGTH, OTHER_NAMES
from fray.runtime.pool.machine.snapshot import MOST_SHAPES
from fray.runtime.pool.messages.events import ActorSubmitted, TaskDone, TaskSubmitted
from fray.runtime.pool.messages.specs import DRIVER, Failed, Outcome
from fray.runtime.pool.state import PoolState
from fray.runtime.pool.view import RATE_SECONDS, PoolView, RateMeter
from tests.unit.pool.state_script import ONE, Script, make_actor, make_task


def a_view(script: Script) -> PoolView:
    return PoolView.build(
        script.state.stats(), job="words", seconds=61.23, rates={"submitted": 1.5, "ended": 1.0}
    )


def run_named(script: Script, number: int, name: str, outcome: Outcome, seconds: float) -> None:
    """Submit a task of a function of that name, which ends so after so long."""
    script.tell(DRIVER, TaskSubmitted(make_task(number)._replace(name=name), b"blob"))
    script.tell(1, TaskDone(number, outcome, began=5.0, seconds=seconds))


def test_what_is_read_is_what_was_shown() -> None:
    script = Script(2)
    script.submit(1)
    script.submit(2)
    script.tell(1, TaskDone(1, ONE, began=5.0, seconds=0.5))
    view = a_view(script)
    assert PoolView.from_json(view.to_json()) == view
    shown = json.loads(view.to_json())
    assert (shown["job"], shown["seconds"], shown["tasks"]["running"]) == ("words", 61.2, 1)
    assert shown["hosts"][0]["name"] == "host-1"
    assert shown["hosts"][0]["offered"]["CPU"] == 2.0
    assert shown["functions"] == [{"name": "task 1", "done": 1, "failed": 0, "seconds": 0.5, "longest": 0.5}]


def test_fields_of_later_versions_are_left_out_and_those_that_earlier_ones_lack_are_empty() -> None:
    view = a_view(Script(1))
    shown = json.loads(view.to_json())
    shown["hosts"][0]["colour"] = shown["weather"] = "new"
    del shown["demand"]
    assert PoolView.from_json(json.dumps(shown)) == view


def test_what_waits_for_room_is_shown_by_its_shape() -> None:
    script = Script()
    script.join_host(1, 1, memory=1000.0)
    script.submit(1)  # it runs
    for number in range(2, 6):
        script.submit(number, shape=(("CPU", 0.5), ("memory", 100.0)))
    script.submit(6)
    script.tell(DRIVER, ActorSubmitted(make_actor(9, shape=(("CPU", 1.0),)), b"blob"))
    view = a_view(script)
    assert PoolView.from_json(view.to_json()) == view
    assert json.loads(view.to_json())["demand"] == [
        {"shape": {"CPU": 0.5, "memory": 100.0}, "count": 4},
        {"shape": {"CPU": 1.0}, "count": 2},
    ]


def test_shapes_that_are_new_for_each_task_take_a_bounded_room() -> None:
    script = Script()
    script.state = PoolState(None)
    for number in range(1, MOST_SHAPES + 20):
        script.submit(number, shape=(("GPU", float(number)),))
    assert len(a_view(script).demand) == MOST_SHAPES


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"hosts": 3}', '{"hosts": [{}]}', "<html>", "\xff"])
def test_what_is_no_such_page_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        PoolView.from_json(text)


def test_runs_of_a_function_are_counted_with_their_times() -> None:
    script = Script(1)
    for number, (outcome, seconds) in enumerate([(ONE, 0.5), (Failed(b"x"), 2.0), (ONE, float("inf"))], 1):
        run_named(script, number, "score", outcome, seconds)
    (function,) = script.state.stats().functions
    assert (function.name, function.done, function.failed) == ("score", 2, 1)
    assert (function.seconds, function.longest) == (2.5, 2.0)


def test_names_that_are_new_for_each_task_take_a_bounded_room() -> None:
    script = Script(1)
    for number in range(1, MOST_NAMES + 100):
        run_named(script, number, f"{number} {'x' * 1000}", ONE, 0.5)
    functions = {each.name: each for each in script.state.stats().functions}
    assert len(functions) == MOST_NAMES + 1
    assert functions[OTHER_NAMES].done == 99
    assert max(map(len, functions)) <= NAME_LENGTH


def test_rates_are_those_of_the_last_seconds() -> None:
    counters = {"submitted": 0, "done": 0, "failed": 0, "cancelled": 0}
    meter = RateMeter(100.0)
    assert meter.rates(counters, 100.0) == {"submitted": 0.0, "ended": 0.0}
    counters |= {"submitted": 30, "done": 8, "failed": 2}
    assert meter.rates(counters, 102.0) == {"submitted": 15.0, "ended": 5.0}
    for second in range(3, 61):
        meter.note(counters, 100.0 + second)
        meter.note(counters, 100.2 + second)  # too early for another
    assert meter.rates(counters, 160.0) == {"submitted": 0.0, "ended": 0.0}
    counters |= {"cancelled": 1}
    assert meter.rates(counters, 160.0)["ended"] == round(1 / RATE_SECONDS, 2)


def test_nothing_is_written_that_is_no_json() -> None:
    with pytest.raises(ValueError, match="JSON"):
        replace(a_view(Script(1)), seconds=float("nan")).to_json()
