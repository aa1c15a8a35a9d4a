"""Two machines: network namespaces joined by a cable that is cut and healed. The driver is in the first."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fray.errors import ObjectLostError, ObjectUnreachableError
from fray.runtime.pool.machine import copies
from fray.runtime.pool.transport.addresses import Address
from tests.pool.hosts.pools import PATIENCE, Hosts, on, several_hosts, store, wait_until
from tests.pool.hosts.test_lost_hosts import linger_first, put, runs
from tests.pool.hosts.test_objects import SIZE, make, total
from tests.pool.transport.certificates import write_key
from tests.pool.transport.namespaces import FIRST, SECOND, Namespaces, namespaces
from tests.pool.transport.test_namespaces import obstacle

pytestmark = pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "nothing is in the way")

_CLONE_NEWNET = 0x40000000
"""linux/sched.h"""
SHORT_CUT_SECONDS = 1.0
"""Much shorter than the silence after which a connection is taken for lost, also on a slow machine."""


@contextlib.contextmanager
def entered(name: str) -> Iterator[None]:
    """Let this thread, and the threads and processes that it starts, be in a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as ours, open(f"/run/netns/{name}") as theirs:  # noqa: PTH123
        assert libc.setns(theirs.fileno(), _CLONE_NEWNET) == 0
        try:
            yield
        finally:
            assert libc.setns(ours.fileno(), _CLONE_NEWNET) == 0


@dataclass
class Cable:
    """What joins the namespaces; cut, it swallows all that is sent, and nobody is told."""

    made: Namespaces

    def slow(self) -> None:
        """Let 50 MB a second through, so that a transfer can be met under way."""
        shape = ["dev", "cable0", "root", "tbf", "rate", "400mbit", "burst", "1mb", "latency", "200ms"]
        command = self.made.within(self.made.first, "tc", "qdisc", "add", *shape)
        subprocess.run(command, check=True, timeout=PATIENCE)

    def cut(self) -> None:
        # Each end sends to a hardware address that nobody has; `ip` is all that this takes.
        self._neighbours("replace", "lladdr", "02:00:00:00:00:01", "nud", "permanent")

    def heal(self) -> None:
        self._neighbours("delete")

    def _neighbours(self, action: str, *what: str) -> None:
        ends = ((self.made.first, "cable0", SECOND), (self.made.second, "cable1", FIRST))
        for namespace, end, other in ends:
            command = ["ip", "-n", namespace, "neighbour", action, other, *what, "dev", end]
            subprocess.run(command, check=True, timeout=PATIENCE)


OUT_OF_REACH = "10.213.77.3"
"""A further address of the second machine, which the first one's packets don't get to."""


@pytest.fixture
def made() -> Iterator[Namespaces]:
    with namespaces() as both:
        for name in (both.first, both.second):
            # What a machine sends to its own address goes over this.
            subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True, timeout=PATIENCE)
        yield both


@pytest.fixture
def cable(made: Namespaces) -> Cable:
    return Cable(made)


@pytest.fixture
def far(made: Namespaces, key: Path) -> Iterator[Hosts]:
    """The driver's host and `a` in the first namespace, `b` in the second."""
    with entered(made.first), several_hosts(key, listen=Address(host=FIRST)) as hosts:
        hosts.start("a", objects=f"tcp:{FIRST}:0")
        hosts.start("b", objects=f"tcp:{SECOND}:0", within=made.within(made.second), workers=2)
        for name in ("a", "b"):
            hosts.await_host(name)
        yield hosts


def test_tasks_run_on_both_machines_and_arrays_go_between_them_directly(
    far: Hosts, made: Namespaces, tmp_path: Path
) -> None:
    context = far.context
    namespace = "/proc/self/ns/net"
    first, second = (context.run(os.readlink, namespace, options=on(name)) for name in ("a", "b"))
    assert far.get(first) != far.get(second)
    for maker, reader in (("a", "b"), ("b", "a"), ("driver", "b")):
        array = context.run(make, 1, options=on(maker))
        assert far.get(context.run(total, array, options=on(reader))) == total(make(1))
    theirs = context.run(make, 2, options=on("b"))
    assert np.array_equal(far.get(theirs), make(2))
    assert 0 < far.bytes_of_head() < SIZE / 50
    stranger = far.start(
        "stranger",
        objects=f"tcp:{SECOND}:0",
        within=made.within(made.second),
        key=write_key(tmp_path / "other"),
        patience=0,
    )
    assert stranger.wait(PATIENCE) == 1
    assert far.number("stranger") == 0


def test_a_cable_that_is_soon_healed_costs_nothing_but_time(far: Hosts, cable: Cable, tmp_path: Path) -> None:
    context = far.context
    number, size = far.number("b"), 150_000_000
    cable.slow()
    array = context.run(make, 1, size, options=on("a"))
    there: Path = far.get(context.run(store, options=on("b")))
    lingering = context.run(linger_first, tmp_path, options=on("b"))
    wait_until(lambda: runs(tmp_path, "linger") == 1)
    result = context.run(total, array, options=on("b"))
    far.await_transfer(there, result)
    cable.cut()
    time.sleep(SHORT_CUT_SECONDS)  # this is how long it is cut
    cable.heal()
    assert far.get(result) == total(make(1, size))
    (tmp_path / "linger-let-go").touch()
    assert far.get(lingering) == 2
    assert far.number("b") == number


def test_a_host_behind_a_cut_cable_is_lost_and_comes_back(far: Hosts, cable: Cable, tmp_path: Path) -> None:
    context = far.context
    number, size = far.number("b"), 150_000_000
    cable.slow()
    array = context.run(make, 1, size, options=on("a"))
    behind = context.run(make, 2, options=on("b"))
    [kept] = far.get(context.run(put, SIZE, options=on("b")))
    context.wait([behind])
    there: Path = far.get(context.run(store, options=on("b")))
    lingering = context.run(linger_first, tmp_path, options=on("b", retries=1))
    wait_until(lambda: runs(tmp_path, "linger") == 1)
    result = context.run(total, array, options=on("b", retries=1))
    far.await_transfer(there, result)
    cable.cut()
    # Asked for while nobody knows yet: the driver waits for a silent host.
    with pytest.raises(ObjectLostError):
        context.get(kept, timeout=2 * PATIENCE)
    far.await_host("b", there=False)
    cable.heal()
    assert far.await_host("b", other_than=number) > number
    assert far.get(lingering) == 2
    assert far.get(result) == total(make(1, size))
    assert np.array_equal(far.get(behind), make(2))


def test_a_reader_of_what_nobody_can_reach_is_told_of_and_ends(
    made: Namespaces, key: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # One round will do: each takes two attempts of TCP.
    monkeypatch.setattr(copies, "ROUNDS", 1)
    monkeypatch.setattr(copies, "ROUNDS_SECONDS", 0.0)
    for command in (
        ["-n", made.second, "address", "add", f"{OUT_OF_REACH}/24", "dev", "cable1"],
        # A hardware address that nobody has.
        ["-n", made.first, "neighbour", "replace", OUT_OF_REACH,
         "lladdr", "02:00:00:00:00:01", "nud", "permanent", "dev", "cable0"],
    ):  # fmt: skip
        subprocess.run(["ip", *command], check=True, timeout=PATIENCE)
    with entered(made.first), several_hosts(key, listen=Address(host=FIRST)) as hosts:
        hosts.add("b", objects=f"tcp:{OUT_OF_REACH}:0", within=made.within(made.second))
        with pytest.raises(ObjectUnreachableError, match="on host b and can't be read from here"):
            hosts.get(hosts.context.run(make, 1, options=on("b")))
    assert "the driver waits for make: object" in caplog.text
    assert "on host b, and can't read it" in caplog.text
