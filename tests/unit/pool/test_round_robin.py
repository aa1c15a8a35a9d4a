"""The queue of a worker: callers take turns, one that asks more often waits longer."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from fray.runtime.pool.worker.round_robin import RoundRobin


def fill(*entries: tuple[int, str]) -> RoundRobin[int]:
    queue: RoundRobin[int] = RoundRobin()
    for identity, caller in entries:
        queue.add(identity, caller, identity)
    return queue


def drain(queue: RoundRobin[int]) -> list[int]:
    taken = []
    while (item := queue.take()) is not None:
        taken.append(item)
    return taken


def test_callers_take_turns() -> None:
    assert drain(fill((1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, "c"))) == [1, 4, 5, 2, 3]


def test_a_caller_who_comes_later_waits_for_one_task_of_each() -> None:
    queue = fill((1, "a"), (2, "a"), (3, "b"))
    assert queue.take() == 1
    queue.add(4, "c", 4)
    assert drain(queue) == [3, 2, 4]


def test_what_is_removed_is_passed_over() -> None:
    queue = fill((1, "a"), (2, "a"), (3, "b"))
    assert queue.remove(1) == 1
    assert queue.remove(1) is None
    assert len(queue) == 2
    assert drain(queue) == [2, 3]
    assert queue.take() is None


def test_the_last_that_came_are_taken_first_of_any_caller() -> None:
    queue = fill((1, "a"), (2, "b"), (3, "a"))
    assert queue.take_last(2) == [3, 2]
    assert queue.take_last(5) == [1]
    assert drain(queue) == []


@given(
    st.lists(st.tuples(st.sampled_from(["add", "take", "remove", "last"]), st.integers(0, 3)), max_size=60)
)
def test_nothing_is_lost_and_nothing_comes_twice(steps: list[tuple[str, int]]) -> None:
    queue: RoundRobin[int] = RoundRobin()
    inside: dict[int, int] = {}
    for identity, (step, number) in enumerate(steps):
        if step == "add":
            queue.add(identity, number, identity)
            inside[identity] = number
        elif step == "take":
            taken = queue.take()
            assert (taken is None) == (not inside)
            if taken is not None:
                # Within one caller, the order is that of arrival.
                assert taken == min(each for each in inside if inside[each] == inside[taken])
                del inside[taken]
        elif step == "remove" and inside:
            chosen = sorted(inside)[number % len(inside)]
            assert queue.remove(chosen) == chosen
            del inside[chosen]
        elif step == "last":
            for each in queue.take_last(number):
                assert each == max(inside)
                del inside[each]
        assert len(queue) == len(inside)
    assert sorted(drain(queue)) == sorted(inside)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60))
def test_nobody_waits_for_two_tasks_of_another(callers: list[int]) -> None:
    queue = RoundRobin[int]()
    for identity, caller in enumerate(callers):
        queue.add(identity, caller, identity)
    order = [callers[identity] for identity in drain(queue)]
    for caller in set(callers):
        places = [-1, *(place for place, each in enumerate(order) if each == caller)]
        for before, after in itertools.pairwise(places):
            between = order[before + 1 : after]
            assert len(between) == len(set(between))
