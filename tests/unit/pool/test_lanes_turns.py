"""The queue of a worker: callers take turns, one that asks more often waits longer."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from fray.runtime.pool.worker.turns import Turns


def fill(*entries: tuple[int, str]) -> Turns[int]:
    turns: Turns[int] = Turns()
    for identity, caller in entries:
        turns.add(identity, caller, identity)
    return turns


def drain(turns: Turns[int]) -> list[int]:
    taken = []
    while (item := turns.take()) is not None:
        taken.append(item)
    return taken


def test_callers_take_turns() -> None:
    assert drain(fill((1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, "c"))) == [1, 4, 5, 2, 3]


def test_a_caller_who_comes_later_waits_for_one_task_of_each() -> None:
    turns = fill((1, "a"), (2, "a"), (3, "b"))
    assert turns.take() == 1
    turns.add(4, "c", 4)
    assert drain(turns) == [3, 2, 4]


def test_what_is_removed_is_passed_over() -> None:
    turns = fill((1, "a"), (2, "a"), (3, "b"))
    assert turns.remove(1) == 1
    assert turns.remove(1) is None
    assert len(turns) == 2
    assert drain(turns) == [2, 3]
    assert turns.take() is None


def test_the_last_that_came_are_taken_first_of_any_caller() -> None:
    turns = fill((1, "a"), (2, "b"), (3, "a"))
    assert turns.take_last(2) == [3, 2]
    assert turns.take_last(5) == [1]
    assert drain(turns) == []


@given(
    st.lists(st.tuples(st.sampled_from(["add", "take", "remove", "last"]), st.integers(0, 3)), max_size=60)
)
def test_nothing_is_lost_and_nothing_comes_twice(steps: list[tuple[str, int]]) -> None:
    turns: Turns[int] = Turns()
    inside: dict[int, int] = {}
    for identity, (step, number) in enumerate(steps):
        if step == "add":
            turns.add(identity, number, identity)
            inside[identity] = number
        elif step == "take":
            taken = turns.take()
            assert (taken is None) == (not inside)
            if taken is not None:
                # Within one caller, the order is that of arrival.
                assert taken == min(each for each in inside if inside[each] == inside[taken])
                del inside[taken]
        elif step == "remove" and inside:
            chosen = sorted(inside)[number % len(inside)]
            assert turns.remove(chosen) == chosen
            del inside[chosen]
        elif step == "last":
            for each in turns.take_last(number):
                assert each == max(inside)
                del inside[each]
        assert len(turns) == len(inside)
    assert sorted(drain(turns)) == sorted(inside)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60))
def test_nobody_waits_for_two_tasks_of_another(callers: list[int]) -> None:
    turns = Turns[int]()
    for identity, caller in enumerate(callers):
        turns.add(identity, caller, identity)
    order = [callers[identity] for identity in drain(turns)]
    for caller in set(callers):
        places = [-1, *(place for place, each in enumerate(order) if each == caller)]
        for before, after in itertools.pairwise(places):
            between = order[before + 1 : after]
            assert len(between) == len(set(between))
