"""Leased ports are free ones, and nobody else's as long as anything of the job lives."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from pathlib import Path

import pytest

from fray.cluster.local import ports
from fray.cluster.local.ports import PortLeases
from fray.errors import PortsExhaustedError, StateDirectoryError


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """The only ports that there are: two that nobody else on this machine has."""
    for first in random.sample(range(20000, 29998), 100):
        with socket.socket() as one, socket.socket() as other, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", first))
            other.bind(("127.0.0.1", first + 1))
            monkeypatch.setattr(ports, "PREFERRED", range(first, first + 2))
            return first, first + 1
    raise AssertionError("no two ports are free")


def test_two_holders_never_share_a_port(tmp_path: Path) -> None:
    one, other = PortLeases(tmp_path), PortLeases(tmp_path)
    assert not set(one.lease(50)) & set(other.lease(50))
    one.release()
    other.release()
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_when_all_are_leased_the_range_is_named(tmp_path: Path, two: tuple[int, int]) -> None:
    one = PortLeases(tmp_path)
    free = one.lease(1) + one.lease(1)
    assert sorted(free) == [*two]
    with pytest.raises(PortsExhaustedError, match=f"between {two[0]} and {two[1]}"):
        PortLeases(tmp_path).lease(1)
    one.release()
    again = PortLeases(tmp_path)
    assert sorted(again.lease(2)) == [*two]
    again.release()


def test_a_port_on_which_somebody_listens_is_not_leased(tmp_path: Path, two: tuple[int, int]) -> None:
    leases = PortLeases(tmp_path)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", two[0]))
        taken.listen()
        assert leases.lease(1) == [two[1]]
        assert leases.lease_exactly([two[0]]) == set()
    assert leases.lease_exactly([two[0]]) == {two[0]}
    leases.release()


def test_a_lease_lives_as_long_as_a_process_that_inherited_it(tmp_path: Path, two: tuple[int, int]) -> None:
    leases = PortLeases(tmp_path)
    leases.lease(2)
    inherited = [os.dup(descriptor) for descriptor in leases.descriptors]
    # The runner dies without giving anything back.
    for descriptor in leases.descriptors:
        os.close(descriptor)
    with pytest.raises(PortsExhaustedError):
        PortLeases(tmp_path).lease(1)
    for descriptor in inherited:
        os.close(descriptor)
    again = PortLeases(tmp_path)
    assert len(again.lease(2)) == 2
    again.release()


def test_a_folder_that_cannot_be_made_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "ports").write_text("in the way")
    with pytest.raises(StateDirectoryError, match="ports"):
        PortLeases(tmp_path / "ports").lease(1)
