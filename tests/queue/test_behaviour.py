"""What every lease queue promises, the same for all of them."""

from __future__ import annotations

import math
import pickle
import threading
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fray.errors import LeaseLostError, QueueArgumentError
from fray.queue import Lease, Queue
from tests.queue.clocks import Clock


def pop(queue: Queue[Any], lease_timeout: float = 60.0) -> Lease[Any]:
    lease = queue.pop(lease_timeout)
    assert lease is not None
    return lease


def drain(queue: Queue[Any]) -> list[Any]:
    items = []
    while (lease := queue.pop()) is not None:
        items.append(lease.item)
        queue.done(lease)
    return items


def test_is_a_queue(queue: Queue[Any]) -> None:
    assert isinstance(queue, Queue)


def test_an_empty_queue_hands_out_nothing(queue: Queue[Any]) -> None:
    assert queue.pop() is None
    assert queue.peek() is None
    assert (queue.size(), queue.pending()) == (0, 0)


def test_items_come_in_the_order_they_were_pushed_in(queue: Queue[Any]) -> None:
    for number in range(20):
        queue.push(number)
    assert drain(queue) == list(range(20))


@pytest.mark.parametrize(
    "item", [None, 0, "", b"\0" * 70_000, {"a": [1, (2.5, None)]}], ids=lambda i: str(i)[:9]
)
def test_an_item_arrives_as_it_was(queue: Queue[Any], item: object) -> None:
    queue.push(item)
    lease = pop(queue)
    assert lease.item == item
    assert type(lease.item) is type(item)


def test_peek_shows_the_next_item_and_leaves_it(queue: Queue[Any]) -> None:
    queue.push("a")
    queue.push("b")
    assert (queue.peek(), queue.peek()) == ("a", "a")
    assert pop(queue).item == "a"
    assert queue.peek() == "b"


def test_size_counts_what_waits_and_pending_what_is_leased(queue: Queue[Any], clock: Clock) -> None:
    for number in range(3):
        queue.push(number)
    assert (queue.size(), queue.pending()) == (3, 0)
    first = pop(queue, 10)
    second = pop(queue, 20)
    assert (queue.size(), queue.pending()) == (1, 2)
    queue.done(second)
    assert (queue.size(), queue.pending()) == (1, 1)
    clock.advance(10)
    assert (queue.size(), queue.pending()) == (2, 0)
    queue.done(first)
    assert (queue.size(), queue.pending()) == (1, 0)


def test_a_leased_item_is_invisible(queue: Queue[Any]) -> None:
    queue.push("a")
    pop(queue)
    assert queue.pop() is None
    assert queue.peek() is None


def test_a_done_item_never_comes_back(queue: Queue[Any], clock: Clock) -> None:
    queue.push("a")
    queue.done(pop(queue))
    clock.advance(1_000_000)
    assert queue.pop() is None
    assert queue.size() == 0


def test_a_released_item_comes_back_at_the_front(queue: Queue[Any]) -> None:
    for item in "abc":
        queue.push(item)
    queue.release(pop(queue))
    assert queue.pending() == 0
    assert drain(queue) == ["a", "b", "c"]


def test_an_expired_item_comes_back_at_the_front(queue: Queue[Any], clock: Clock) -> None:
    for item in "abc":
        queue.push(item)
    pop(queue, 5)
    clock.advance(4.9)
    assert queue.peek() == "b"
    clock.advance(0.1)
    assert queue.peek() == "a"
    assert drain(queue) == ["a", "b", "c"]


def test_returned_items_are_in_their_old_order_whatever_the_order_of_their_return(
    queue: Queue[Any], clock: Clock
) -> None:
    for item in "abcd":
        queue.push(item)
    pop(queue, 20)
    second, third = pop(queue), pop(queue)
    queue.release(third)
    queue.release(second)
    clock.advance(20)
    assert drain(queue) == ["a", "b", "c", "d"]


def test_a_lease_ends_in_its_own_time_only(queue: Queue[Any], clock: Clock) -> None:
    queue.push("short")
    queue.push("long")
    pop(queue, 5)
    pop(queue, 50)
    clock.advance(10)
    assert drain(queue) == ["short"]
    clock.advance(40)
    assert drain(queue) == ["long"]


def test_a_renewed_lease_lasts_from_the_renewal_on(queue: Queue[Any], clock: Clock) -> None:
    queue.push("a")
    lease = pop(queue, 10)
    for _ in range(3):
        clock.advance(9)
        queue.renew(lease, 10)
        assert queue.pop() is None
    clock.advance(10)
    assert pop(queue).item == "a"


def test_a_lease_can_be_renewed_to_end_sooner(queue: Queue[Any], clock: Clock) -> None:
    queue.push("a")
    queue.renew(pop(queue, 1000), 1)
    clock.advance(1)
    assert pop(queue).item == "a"


def test_who_is_late_may_still_finish_while_nobody_else_has_the_item(queue: Queue[Any], clock: Clock) -> None:
    queue.push("a")
    lease = pop(queue, 1)
    clock.advance(5)
    assert queue.peek() == "a"
    queue.done(lease)
    assert queue.pop() is None
    assert queue.size() == 0


def test_a_late_renewal_takes_the_item_back(queue: Queue[Any], clock: Clock) -> None:
    queue.push("a")
    lease = pop(queue, 1)
    clock.advance(5)
    queue.renew(lease, 10)
    assert queue.pop() is None
    assert (queue.size(), queue.pending()) == (0, 1)
    queue.release(lease)
    assert drain(queue) == ["a"]


@pytest.mark.parametrize("method", ["done", "release", "renew"])
def test_a_lease_is_lost_once_another_has_the_item(queue: Queue[Any], clock: Clock, method: str) -> None:
    queue.push("a")
    late = pop(queue, 1)
    clock.advance(1)
    holder = pop(queue, 60)
    with pytest.raises(LeaseLostError) as caught:
        getattr(queue, method)(late)
    assert caught.value.lease_id == late.lease_id
    assert queue.pending() == 1
    queue.done(holder)
    assert queue.size() == 0


@pytest.mark.parametrize("method", ["done", "release", "renew"])
@pytest.mark.parametrize("ending", ["done", "release"])
def test_an_ended_lease_is_lost(queue: Queue[Any], ending: str, method: str) -> None:
    queue.push("a")
    lease = pop(queue)
    getattr(queue, ending)(lease)
    with pytest.raises(ValueError, match="Invalid lease"):
        getattr(queue, method)(lease)
    assert drain(queue) == ([] if ending == "done" else ["a"])


@pytest.mark.parametrize("lease_id", ["", "x", "0" * 32, "../items/x", "a/b/c", f"{0:020d}-{'0' * 32}/x"])
@pytest.mark.parametrize("method", ["done", "release", "renew"])
def test_a_lease_that_never_was_is_refused(queue: Queue[Any], lease_id: str, method: str) -> None:
    queue.push("a")
    with pytest.raises(LeaseLostError):
        getattr(queue, method)(Lease("a", lease_id, 0.0))
    assert drain(queue) == ["a"]


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, True, None, "a"])
def test_a_lease_needs_a_length(queue: Queue[Any], seconds: Any) -> None:
    queue.push("a")
    with pytest.raises(QueueArgumentError, match="lease_timeout"):
        queue.pop(seconds)
    lease = pop(queue)
    with pytest.raises(QueueArgumentError, match="lease_timeout"):
        queue.renew(lease, seconds)


def test_a_pickled_queue_is_the_same_queue(queue: Queue[Any]) -> None:
    queue.push("a")
    other: Queue[Any] = pickle.loads(pickle.dumps(queue))
    lease = pop(other)
    assert queue.pop() is None
    other.push("b")
    queue.done(pickle.loads(pickle.dumps(lease)))
    assert drain(queue) == ["b"]


def test_threads_share_the_items_without_a_loss_or_a_repetition(queue: Queue[Any]) -> None:
    pushed, taken = [list(range(start, 60, 3)) for start in range(3)], [[] for _ in range(3)]
    errors: list[BaseException] = []
    pushers_left = threading.Semaphore(0)

    def push(items: list[int]) -> None:
        for item in items:
            queue.push(item)
        pushers_left.release()

    def take(items: list[int]) -> None:
        try:
            while True:
                ended = all_pushed.is_set()
                lease = queue.pop()
                if lease is not None:
                    items.append(lease.item)
                    queue.done(lease)
                elif ended:
                    return
        except BaseException as error:
            errors.append(error)
            raise

    all_pushed = threading.Event()
    threads = [threading.Thread(target=push, args=(items,)) for items in pushed]
    threads += [threading.Thread(target=take, args=(items,)) for items in taken]
    for thread in threads:
        thread.start()
    for _ in pushed:
        pushers_left.acquire()
    all_pushed.set()
    for thread in threads:
        thread.join()
    assert not errors
    assert Counter(item for items in taken for item in items) == Counter(range(60))
    assert (queue.size(), queue.pending()) == (0, 0)


ACTIONS = st.lists(
    st.one_of(
        st.just(("push", 0)),
        st.just(("pop", 0)),
        st.tuples(st.sampled_from(["done", "release", "renew"]), st.integers(0, 6)),
        st.tuples(st.just("advance"), st.sampled_from([3, 7, 11])),
    ),
    max_size=30,
)


class Model:
    """The promise of the queue, as simply as can be: a list of items with holder and end."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []

    def waiting(self, now: float) -> list[dict[str, Any]]:
        return [item for item in self.items if item["until"] <= now]

    def held_by(self, lease: str) -> dict[str, Any] | None:
        return next((item for item in self.items if item["lease"] == lease), None)


@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(actions=ACTIONS)
def test_any_order_of_calls_does_what_the_model_does(
    queue: Queue[Any], clock: Clock, actions: list[tuple[str, int]]
) -> None:
    # One queue serves all examples: each begins with it empty and an hour later.
    clock.advance(3600)
    drain(queue)
    model, leases = Model(), []
    for number, (action, value) in enumerate(actions):
        if action == "push":
            queue.push(number)
            model.items.append({"item": number, "lease": "", "until": 0.0})
        elif action == "advance":
            clock.advance(value)
        elif action == "pop":
            lease, expected = queue.pop(10), next(iter(model.waiting(clock.now)), None)
            assert (lease and lease.item) == (expected and expected["item"])
            if lease is not None and expected is not None:
                leases.append(lease)
                expected.update(lease=lease.lease_id, until=clock.now + 10)
        elif leases:
            end(queue, model, leases[value % len(leases)], action, clock.now)
        assert queue.size() == len(model.waiting(clock.now))
        assert queue.pending() == len(model.items) - len(model.waiting(clock.now))
    clock.advance(3600)
    assert drain(queue) == [item["item"] for item in model.items]


def end(queue: Queue[Any], model: Model, lease: Lease[Any], action: str, now: float) -> None:
    """Use a lease as it is used in the model."""
    held = model.held_by(lease.lease_id)
    if held is None:
        with pytest.raises(LeaseLostError):
            getattr(queue, action)(lease)
        return
    if action == "renew":
        queue.renew(lease, 10)
        held["until"] = now + 10
    elif action == "release":
        queue.release(lease)
        held.update(lease="", until=0.0)
    else:
        queue.done(lease)
        model.items.remove(held)
