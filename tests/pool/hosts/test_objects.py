"""Values that were made on one host and are read on another."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

from fray.job.defaults import get_job_context
from fray.job.pool_engine import PoolEngine
from tests.pool.hosts.pools import Hosts, on, store, wait_until

SIZE = 50_000_000
SMALL = 4_000_000


def make(seed: int, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def total(array: np.ndarray) -> int:
    return int(array.sum())


def put(seed: int) -> list[object]:
    return [get_job_context().put(make(seed))]


def add(array: np.ndarray, number: int) -> np.ndarray:
    return array + np.uint8(number)


def test_an_array_goes_from_host_to_host_and_not_through_the_head(hosts: Hosts) -> None:
    context = hosts.context
    array = context.run(make, 1, options=on("a"))
    assert hosts.get(context.run(total, array, options=on("b"))) == total(make(1))
    assert 0 < hosts.bytes_of_head() < SIZE / 50


def test_the_driver_reads_what_lies_elsewhere_and_others_read_what_it_has_put(hosts: Hosts) -> None:
    context = hosts.context
    mine = context.put(make(1))
    made = context.run(add, mine, 1, options=on("a"))
    assert np.array_equal(hosts.get(made), make(1) + np.uint8(1))
    assert hosts.get(context.run(total, made, options=on("driver"))) == total(hosts.get(made))
    [theirs] = hosts.get(context.run(put, 2, options=on("b")))
    assert np.array_equal(hosts.get(theirs), make(2))
    assert hosts.bytes_of_head() < SIZE / 50


def test_the_pages_of_a_freed_object_are_given_back_after_a_while(hosts: Hosts) -> None:
    made = hosts.context.run(make, 1, options=on("a"))
    place = hosts.get(hosts.context.run(store, options=on("a")))
    hosts.context.wait([made])
    del made
    wait_until((place / "spare").exists)
    wait_until(lambda: not (place / "spare").exists())


def sizes(place: Path) -> list[int]:
    """Return the sizes of the files of a store, which other processes may be removing."""
    found = []
    for file in place.iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(file.stat().st_size)
    return found


def test_all_copies_go_when_nobody_refers_to_an_object_any_more(hosts: Hosts) -> None:
    context = hosts.context
    array = context.run(make, 1, options=on("a"))
    places = [hosts.get(context.run(store, options=on(name))) for name in ("a", "b", "driver")]
    for name in ("b", "driver"):
        hosts.get(context.run(total, array, options=on(name)))

    def kept() -> list[bool]:
        return [any(size >= SIZE for size in sizes(place)) for place in places]

    assert kept() == [True, True, True]
    del array
    wait_until(lambda: kept() == [False, False, False])


def test_a_reader_that_is_killed_amid_a_transfer_is_replaced_and_reads_it(hosts: Hosts) -> None:
    context = hosts.context
    size = 400_000_000
    array = context.run(make, 1, size, options=on("a"))
    there: Path = hosts.get(context.run(store, options=on("b")))
    result = context.run(total, array, options=on("b", retries=1))
    for writer in hosts.await_transfer(there, result):
        os.kill(writer, signal.SIGKILL)
    assert hosts.get(result) == total(make(1, size))
    # What the killed one had written doesn't stay, and the server doesn't go on sending.
    assert not list(there.glob("*.part"))
    assert "socket.send() raised" not in hosts.complaints.read_text()


def test_a_host_whose_server_of_objects_is_killed_amid_a_transfer_is_lost(hosts: Hosts) -> None:
    context = hosts.context
    size = 400_000_000
    number = hosts.number("a")
    array = context.run(make, 1, size, options=on("a"))
    there: Path = hosts.get(context.run(store, options=on("b")))
    result = context.run(total, array, options=on("b"))
    hosts.await_transfer(there, result)
    os.kill(hosts.object_server("a"), signal.SIGKILL)
    # Made again there, once the host has come back.
    assert hosts.get(result) == total(make(1, size))
    assert hosts.await_host("a", other_than=number) > number


def make_and_note(path: str) -> bytes:
    with Path(path).open("a") as file:
        file.write("ran\n")
    return bytes(SMALL)


def lose_sight_of(number: int) -> None:
    """Let this worker reach that host no more, though all others do."""
    engine = get_job_context()._engine
    assert isinstance(engine, PoolEngine)
    fetch: Any = engine._objects._fetch
    address_of = fetch._address_of
    fetch._address_of = lambda host: None if host == number else address_of(host)


def test_a_reader_that_cannot_reach_a_host_gets_the_value_by_another_way(
    hosts: Hosts, tmp_path: Path
) -> None:
    context = hosts.context
    hosts.get(context.run(lose_sight_of, hosts.number("a"), options=on("b")))
    made = context.run(make_and_note, str(tmp_path / "runs"), options=on("a", retries=1))
    assert hosts.get(context.run(len, made, options=on("b"))) == SMALL
    assert hosts.get(context.run(len, made, options=on("a"))) == SMALL
    assert (tmp_path / "runs").read_text() == "ran\n"


def test_a_reader_without_room_costs_nobody_a_value(driver: Hosts, tmp_path: Path) -> None:
    driver.start("a", store_limit=SMALL * 3)
    driver.await_host("a")
    context = driver.context
    made = context.run(make_and_note, str(tmp_path / "runs"), options=on("driver"))
    values = [context.put(bytes(SMALL)) for _ in range(8)]
    for value in (*values, made):
        assert driver.get(context.run(len, value, options=on("a"))) == SMALL
    assert (tmp_path / "runs").read_text() == "ran\n"
    place = driver.get(context.run(store, options=on("a")))
    copies = [size for size in sizes(place) if size >= SMALL]
    assert 0 < len(copies) <= 2  # others have gone where room was needed


def test_what_was_copied_survives_the_host_that_made_it(hosts: Hosts) -> None:
    context = hosts.context
    [made] = hosts.get(context.run(put, 3, options=on("a")))
    assert hosts.get(context.run(total, made, options=on("b"))) == total(make(3))
    hosts.kill("a")
    hosts.await_host("a", there=False)
    assert np.array_equal(hosts.get(made), make(3))


def total_together(array: list[Any], meeting: str, count: int) -> int:
    """Read an array once so many tasks are at it."""
    (Path(meeting) / str(os.getpid())).touch()
    wait_until(lambda: len(list(Path(meeting).iterdir())) == count)
    return total(get_job_context().get(array[0]))


def test_a_value_that_all_hosts_read_at_once_comes_from_one_to_the_other(
    hosts: Hosts, tmp_path: Path
) -> None:
    names = ["a", "b", "c", "d", "e"]
    for name in names[2:]:
        hosts.start(name)
    for name in names:
        hosts.await_host(name)
    context = hosts.context
    array = context.put(make(1))
    meeting = str(tmp_path)
    sums = [context.run(total_together, [array], meeting, len(names), options=on(name)) for name in names]
    assert [hosts.get(each) for each in sums] == [total(make(1))] * len(names)
    wait_until(lambda: sum(host.copies > 0 for host in hosts.pool.stats().hosts.values()) == len(names))


def test_values_are_read_of_a_host_that_has_moved_them_to_disk_while_others_have_room(
    driver: Hosts,
) -> None:
    driver.start("a", store_limit=SMALL * 3)
    driver.start("b")
    for name in ("a", "b"):
        driver.await_host(name)
    context = driver.context
    values = [context.run(make, seed, SMALL, options=on("a")) for seed in range(8)]
    theirs = context.run(make, 8, SMALL, options=on("b"))
    context.wait([*values, theirs], num_returns=9)

    def spilled(name: str) -> int:
        return next(host.spilled for host in driver.pool.stats().hosts.values() if host.name == name)

    wait_until(lambda: spilled("a") >= 5 * SMALL)
    assert spilled("b") == 0
    for seed, value in enumerate((*values, theirs)):
        assert driver.get(context.run(total, value, options=on("b"))) == total(make(seed, SMALL))
        assert np.array_equal(driver.get(value), make(seed, SMALL))
