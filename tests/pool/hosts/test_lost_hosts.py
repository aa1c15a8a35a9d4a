"""What becomes of values, tasks, generators and actors when their host is lost, and how a host comes back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fray.errors import ActorDiedError, ObjectLostError, WorkerDiedError
from fray.job.defaults import get_job_context
from fray.job.options import ActorOptions
from fray.runtime.pool.transport.addresses import Address
from tests.pool.hosts.pools import PATIENCE, Hosts, on, several_hosts, wait_until

SIZE = 1_000_000


def ones(marks: Path) -> np.ndarray:
    (marks / f"ones-{os.getpid()}").touch()
    return np.ones(SIZE, np.uint8)


def double(array: np.ndarray, marks: Path) -> np.ndarray:
    (marks / f"double-{os.getpid()}").touch()
    return array * np.uint8(2)


def runs(marks: Path, name: str) -> int:
    return len(list(marks.glob(f"{name}-*")))


def test_a_chain_of_results_is_made_again_elsewhere(driver: Hosts, tmp_path: Path) -> None:
    context = driver.context
    driver.add("a")
    first = context.run(ones, tmp_path, options=on("far"))
    second = context.run(double, first, tmp_path, options=on("far"))
    context.wait([second])
    del first
    driver.add("b")
    driver.kill("a")
    driver.await_host("a", there=False)
    assert int(driver.get(second).sum()) == 2 * SIZE
    assert (runs(tmp_path, "ones"), runs(tmp_path, "double")) == (2, 2)


def put(count: int) -> list[object]:
    return [get_job_context().put(np.zeros(count, np.uint8))]


def test_a_value_that_was_put_is_lost_with_its_host_and_the_error_says_so(hosts: Hosts) -> None:
    context = hosts.context
    [ref] = context.get(context.run(put, SIZE, options=on("a")))
    hosts.kill("a")
    hosts.await_host("a", there=False)
    for ask in (lambda: context.get(ref), lambda: context.get(context.run(len, ref, options=on("b")))):
        with pytest.raises(ObjectLostError) as lost:
            ask()
        assert "host a was lost" in lost.value.message


def wait_for(begun: Path, go_on: Path) -> str:
    begun.touch()
    while not go_on.exists():
        time.sleep(0.01)
    return "went on"


def test_a_host_that_gets_sigterm_lets_its_task_end_and_leaves_what_only_it_has(
    driver: Hosts, tmp_path: Path
) -> None:
    context = driver.context
    driver.add("a")
    [ref] = driver.get(context.run(put, SIZE, options=on("far")))
    begun, go_on = tmp_path / "begun", tmp_path / "go_on"
    result = context.run(wait_for, begun, go_on, options=on("far", retries=0))
    wait_until(begun.exists)
    leaving = driver.processes.pop("a")
    leaving.terminate()
    wait_until(lambda: driver.pool._head.call(lambda state: bool(state._tables.leaving)))
    later = context.run(os.getpid, options=on("far"))
    go_on.touch()
    assert driver.get(result) == "went on"
    assert leaving.wait(PATIENCE) == 0
    assert len(driver.get(ref)) == SIZE
    driver.add("b")
    assert driver.get(later)


def test_a_second_sigterm_ends_a_host_at_once(driver: Hosts, tmp_path: Path) -> None:
    driver.add("a", drain_seconds=PATIENCE)
    begun = tmp_path / "begun"
    result = driver.context.run(wait_for, begun, tmp_path / "never", options=on("far"))
    wait_until(begun.exists)
    leaving = driver.processes.pop("a")
    leaving.terminate()
    wait_until(lambda: driver.pool._head.call(lambda state: bool(state._tables.leaving)))
    leaving.terminate()
    assert leaving.wait(PATIENCE) == 0
    (tmp_path / "never").touch()
    driver.add("b")
    assert driver.get(result) == "went on"


def linger_first(marks: Path) -> int:
    """Never end in the first run."""
    (marks / f"linger-{os.getpid()}").touch()
    while runs(marks, "linger") == 1:
        time.sleep(0.01)
    return runs(marks, "linger")


def test_a_task_is_charged_once_for_the_loss_of_a_host_of_many_workers(driver: Hosts, tmp_path: Path) -> None:
    context = driver.context
    driver.add("a", workers=6)
    result = context.run(linger_first, tmp_path, options=on("far", retries=1))
    wait_until(lambda: runs(tmp_path, "linger") == 1)
    driver.kill("a")
    driver.await_host("a", there=False)
    driver.add("b")
    assert driver.get(result) == 2


def test_a_host_that_alone_had_what_a_task_needs_is_missed(
    driver: Hosts, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driver.add("a")
    result = driver.context.run(linger_first, tmp_path, options=on("a"))
    wait_until(lambda: runs(tmp_path, "linger") == 1)
    driver.kill("a")
    driver.await_host("a", there=False)
    assert "no other has what tasks or actors wait for (CPU: 1, a: 1): they fail in 600 s" in caplog.text
    driver.add("a")
    assert driver.get(result) == 2


def test_a_task_without_retries_fails_with_its_story(driver: Hosts, tmp_path: Path) -> None:
    driver.add("a")
    result = driver.context.run(linger_first, tmp_path, options=on("a", retries=0))
    wait_until(lambda: runs(tmp_path, "linger") == 1)
    driver.kill("a")
    with pytest.raises(WorkerDiedError) as died:
        driver.get(result)
    assert "on a was lost with its host" in died.value.story[0]


def count_up(marks: Path, count: int) -> Iterator[np.ndarray]:
    for number in range(count):
        if number == 4 and not runs(marks, "gate"):
            (marks / "reached").touch()
            while not runs(marks, "gate"):
                time.sleep(0.01)
        yield np.full(SIZE, number, np.uint8)


def test_a_generator_goes_on_elsewhere_and_only_items_there_are_lost(driver: Hosts, tmp_path: Path) -> None:
    context = driver.context
    driver.add("a")
    items = context.run(count_up, tmp_path, 8, options=on("far"))
    first = next(items)
    assert int(context.get(first)[0]) == 0  # the driver's host has a copy of this one
    wait_until((tmp_path / "reached").exists)
    driver.add("b")
    driver.kill("a")
    driver.await_host("a", there=False)
    (tmp_path / "gate-open").touch()
    rest = list(items)
    assert len(rest) == 7
    for item in rest[:3]:
        with pytest.raises(ObjectLostError, match="host a was lost"):
            driver.get(item)
    assert [int(driver.get(item)[0]) for item in rest[3:]] == [4, 5, 6, 7]


def test_a_task_is_charged_once_for_the_loss_of_the_drivers_nanny(key: Path, tmp_path: Path) -> None:
    with several_hosts(key, listen=Address(host="127.0.0.1"), workers=6) as driver:
        result = driver.context.run(linger_first, tmp_path, options=on("driver", retries=1))
        wait_until(lambda: runs(tmp_path, "linger") == 1)
        assert driver.pool._nanny is not None
        driver.pool._nanny.kill()
        assert driver.get(result) == 2


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> tuple[int, int]:
        self.count += 1
        return self.count, os.getppid()


def test_an_actor_starts_again_elsewhere_if_its_options_allow(driver: Hosts) -> None:
    context = driver.context
    driver.add("a")
    restarting = context.create_actor(Counter, options=ActorOptions(resources={"far": 1}, max_restarts=1))
    ending = context.create_actor(Counter, options=ActorOptions(resources={"far": 1}))
    _, nanny = driver.get(restarting.add.remote())
    assert driver.get(ending.add.remote()) == (1, nanny)
    driver.add("b")
    driver.kill("a")
    driver.await_host("a", there=False)
    count, other = driver.get(restarting.add.remote())
    assert count == 1
    assert other != nanny
    with pytest.raises(ActorDiedError, match="lost with its host"):
        driver.get(ending.add.remote())


def test_a_host_comes_back_as_another_when_its_nanny_is_killed(hosts: Hosts) -> None:
    number = hosts.number("a")
    os.kill(hosts.nanny("a"), signal.SIGKILL)
    later = hosts.await_host("a", other_than=number)
    assert later > number
    assert hosts.get(hosts.context.run(abs, -1, options=on("a"))) == 1


def test_what_the_driver_has_put_outlives_its_nanny(hosts: Hosts) -> None:
    context = hosts.context
    refs = [context.put(np.full(SIZE, number, np.uint8)) for number in range(5)]
    assert hosts.pool._nanny is not None
    hosts.pool._nanny.kill()
    sums = [context.run(np.sum, ref, options=on("a")) for ref in refs]
    assert hosts.get(sums) == [number * SIZE for number in range(5)]
