"""The work queue: each key with one worker at a time, none forgotten, failures ever more rarely."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from fray.backoff import Backoff
from fray_operator.queue import REST_SECONDS, WorkQueue
from tests.unit.controller.virtual_time import run


def now() -> float:
    return asyncio.get_running_loop().time()


async def is_empty(queue: WorkQueue[str]) -> bool:
    """Whether nothing is due at this moment."""
    try:
        async with asyncio.timeout(0):
            key = await queue.get()
    except TimeoutError:
        return True
    raise AssertionError(f"{key} is due")


def test_keys_come_in_the_order_in_which_they_became_due_and_once() -> None:
    async def main() -> list[str]:
        queue: WorkQueue[str] = WorkQueue()
        for key in ("a", "b", "a", "c", "b"):
            queue.add(key)
        assert len(queue) == 3
        taken = [await queue.get() for _ in range(3)]
        assert await is_empty(queue)
        return taken

    assert run(main()) == ["a", "b", "c"]


def test_a_key_that_is_added_while_it_is_worked_on_becomes_due_once_when_it_has_rested() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        await queue.get()
        queue.add("a")
        queue.add("a")
        assert await is_empty(queue)
        queue.done("a")
        assert (await queue.get(), now()) == ("a", REST_SECONDS)
        queue.done("a")
        assert await is_empty(queue)
        assert len(queue) == 0

    run(main())


def test_what_is_added_while_a_key_rests_is_one_piece_of_work_and_others_do_not_wait_for_it() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        queue.done(await queue.get())
        for _ in range(3):
            await asyncio.sleep(REST_SECONDS / 4)
            queue.add("a")
            queue.add("b")
        queue.add_after("a", 0)
        assert (await queue.get(), now()) == ("b", REST_SECONDS * 3 / 4)
        assert (await queue.get(), now()) == ("a", REST_SECONDS)
        queue.done("a")
        await asyncio.sleep(100)
        assert await is_empty(queue)
        queue.add("a")
        assert (await queue.get(), now()) == ("a", REST_SECONDS + 100)

    run(main())


def test_a_waiting_worker_is_woken() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        workers = [asyncio.create_task(queue.get()) for _ in range(3)]
        await asyncio.sleep(1)
        for key in ("a", "b", "c"):
            queue.add(key)
        assert sorted(await asyncio.gather(*workers)) == ["a", "b", "c"]

    run(main())


def test_a_delayed_key_becomes_due_at_its_time_and_not_twice() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 10)
        queue.add_after("a", 30)
        assert await queue.get() == "a"
        assert now() == 10
        queue.done("a")
        await asyncio.sleep(100)
        assert await is_empty(queue)

    run(main())


def test_an_earlier_time_replaces_a_later_one_and_now_replaces_both() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 30)
        queue.add_after("a", 10)
        assert (await queue.get(), now()) == ("a", 10)
        queue.done("a")
        queue.add_after("a", 50)
        queue.add("a")
        assert (await queue.get(), now()) == ("a", 10 + REST_SECONDS)
        queue.done("a")
        await asyncio.sleep(100)
        assert await is_empty(queue)

    run(main())


def test_failures_in_a_row_wait_twice_as_long_each_time_up_to_a_cap_and_success_forgets_them() -> None:
    async def main() -> list[float]:
        queue: WorkQueue[str] = WorkQueue(backoff=Backoff(0.1, 60))
        queue.add("a")
        pauses = []
        for _ in range(12):
            await queue.get()
            before = now()
            pauses.append(queue.failed("a"))
            queue.add_after("a", 3600)  # anything later must not matter
            key = await queue.get()
            assert abs(now() - before - pauses[-1]) < 1e-6
            queue.done(key) if len(pauses) == 11 else queue.failed(key)
            queue.add(key)
        return pauses

    pauses = run(main())
    assert pauses[:4] == [0.1, 0.4, 1.6, 6.4]  # every second failure
    assert pauses[5:11] == [60.0] * 6
    assert pauses[11] == 0.1


def test_a_server_that_asks_for_a_pause_gets_it_whatever_is_seen_during_the_pass() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        await queue.get()
        queue.add("a")
        assert queue.failed("a", at_least=20) == 20
        assert (await queue.get(), now()) == ("a", 20)

    run(main())


def test_a_change_ends_the_pause_after_a_failure() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(backoff=Backoff(60, 60))
        queue.add("a")
        queue.failed(await queue.get())
        queue.add("a")
        assert (await queue.get(), now()) == ("a", 0)

    run(main())


def test_a_forgotten_key_is_not_tried_again_and_starts_anew() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(backoff=Backoff(1, 60))
        queue.add("a")
        queue.failed(await queue.get())
        queue.forget("a")
        await asyncio.sleep(100)
        assert await is_empty(queue)
        queue.add("a")
        assert queue.failed(await queue.get()) == 1
        queue.forget("a")
        queue.add("a")
        queue.done(await queue.get())
        queue.forget("a")
        queue.add("a")
        assert (await queue.get(), now()) == ("a", 100)

    run(main())


def test_a_clock_can_be_given() -> None:
    async def main() -> None:
        clock = [100.0]
        queue: WorkQueue[str] = WorkQueue(clock=lambda: clock[0])
        queue.add_after("a", 5)
        clock[0] = 104.9
        assert await is_empty(queue)
        clock[0] = 105.0
        assert await queue.get() == "a"

    run(main())


def test_what_is_waited_for_is_not_kept_for_long_after_it_was_replaced() -> None:
    async def main() -> int:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("sooner", 3_600)
        for _ in range(10_000):
            queue.add_after("a", 86_400)
            queue.add("a")
            queue.done(await queue.get())
        kept = len(queue._later)
        assert (await queue.get(), now()) == ("sooner", 3_600)
        return kept

    assert run(main()) < 1000


operations = st.lists(
    st.tuples(
        st.sampled_from(["add", "add_after", "forget"]),
        st.sampled_from("abcd"),
        st.floats(0, 5, allow_nan=False),
        st.floats(0, 3, allow_nan=False),
    ),
    max_size=30,
)


@given(operations, st.lists(st.sampled_from(["done", "failed", "again"]), max_size=40), st.integers(1, 4))
@settings(max_examples=150)
def test_no_key_is_ever_with_two_workers_and_none_is_lost(
    steps: list[tuple[str, str, float, float]], outcomes: list[str], workers: int
) -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(backoff=Backoff(0.5, 4))
        active: Counter[str] = Counter()
        owed: set[str] = set()  # added since it was last taken
        left = list(outcomes)

        async def work() -> None:
            while True:
                key = await queue.get()
                active[key] += 1
                assert active[key] == 1
                owed.discard(key)
                await asyncio.sleep(0.3)
                active[key] -= 1
                outcome = left.pop() if left else "done"
                if outcome == "failed":
                    queue.failed(key)
                else:
                    queue.done(key)
                    if outcome == "again":
                        queue.add_after(key, 1.0)

        tasks = [asyncio.create_task(work()) for _ in range(workers)]
        for operation, key, delay, pause in steps:
            if operation == "add":
                owed.add(key)
                queue.add(key)
            elif operation == "add_after":
                owed.add(key)
                queue.add_after(key, delay)
            else:
                queue.forget(key)
                owed.discard(key)
            await asyncio.sleep(pause)
        await asyncio.sleep(1000)
        assert not owed
        assert not any(task.done() for task in tasks), [task.exception() for task in tasks if task.done()]
        assert len(queue) == 0
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(main())


class CountedQueue(WorkQueue[str]):
    """Counts how often anybody looks what is due."""

    looks = 0

    def _collect(self) -> float | None:
        self.looks += 1
        return super()._collect()


def test_a_key_wakes_one_of_those_that_wait_for_one() -> None:
    async def main() -> int:
        queue = CountedQueue()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(queue.get()) for _ in range(20)]
            await asyncio.sleep(1.0)
            before = queue.looks
            queue.add("a")
            await asyncio.sleep(1.0)
            looks = queue.looks - before
            assert [task.result() for task in tasks if task.done()] == ["a"]
            for task in tasks:
                task.cancel()
        return looks

    # The one that takes it, and the one that waits after it.
    assert run(main()) == 2
