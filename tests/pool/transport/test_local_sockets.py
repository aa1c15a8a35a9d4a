"""Unix sockets are for one user, by their modes and by who is at the other end; those of a pod for all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fray.errors import AddressError
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.keys import TransportKey
from tests.pool.transport.heads import PATIENCE, running_head

KEY = TransportKey.generate()
CONNECT = """
import os, socket, sys
connected = socket.socket(socket.AF_UNIX)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
connected.connect(sys.argv[1])
sys.stdout.buffer.write(connected.recv(1000))
"""
JOIN = """
import os, sys
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.transport.keys import TransportKey
key = TransportKey(sys.stdin.buffer.read())
os.setgroups([]); os.setgid(65534); os.setuid(65534)
connection = BlockingConnection.connect(Address.parse(sys.argv[1]), key)
connection.send(1, b"hello")
sys.stdout.buffer.write(connection.receive().body)
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_socket_and_its_directory_are_for_one_user(unix_address: Address) -> None:
    path = Path(unix_address.path)
    with running_head(unix_address, KEY):
        assert mode(path) == 0o600
        assert mode(path.parent) == 0o700
    assert not path.exists()


@pytest.mark.parametrize("open_to", [0o755, 0o710, 0o701])
def test_a_directory_that_others_may_enter_is_refused(unix_address: Address, open_to: int) -> None:
    Path(unix_address.path).parent.mkdir()
    Path(unix_address.path).parent.chmod(open_to)
    with pytest.raises(AddressError, match="0700"), running_head(unix_address, KEY):
        pass


def test_an_address_in_use_is_a_typed_error(unix_address: Address) -> None:
    with (
        running_head(unix_address, KEY) as first,
        pytest.raises(AddressError, match="in use"),
        running_head(first.address, KEY),
    ):
        pass


@contextmanager
def open_to_all(path: Path) -> Iterator[None]:
    """Let all users enter the directories above a file."""
    closed = {parent: mode(parent) for parent in path.parents if not mode(parent) & 0o001}
    try:
        for parent, before in closed.items():
            parent.chmod(before | 0o001)
        yield
    finally:
        for parent, before in closed.items():
            parent.chmod(before)


@as_root
def test_a_process_of_another_user_is_refused(unix_address: Address) -> None:
    path = Path(unix_address.path)
    with running_head(unix_address, KEY) as head:
        # Open to all on purpose: the kernel's word on the user has to be enough.
        path.chmod(0o666)
        with open_to_all(path):
            answer = subprocess.run(
                [sys.executable, "-I", "-c", CONNECT, unix_address.path],
                capture_output=True,
                timeout=PATIENCE,
                check=True,
            )
        assert head.refusals.next() == "wrong_user"
        assert answer.stdout == b""
        assert head.connections.empty()


def join_as_another_user(address: Address, key: TransportKey) -> subprocess.CompletedProcess[bytes]:
    with open_to_all(Path(address.path)):
        return subprocess.run(
            [sys.executable, "-c", JOIN, str(address)],
            input=key.secret,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )


@as_root
def test_a_socket_of_a_pod_is_for_all_users_that_have_the_key(tmp_path: Path) -> None:
    address = Address(path=str(tmp_path / "head"), of_pod=True)
    with running_head(address, KEY) as head:
        assert mode(tmp_path / "head") == 0o666
        assert join_as_another_user(address, KEY).stdout == b"hello"
        stranger = join_as_another_user(address, TransportKey.generate())
        assert head.refusals.next() == "wrong_key"
        assert (stranger.stdout, stranger.returncode) == (b"", 1)
    assert not (tmp_path / "head").exists()


def test_a_socket_of_a_pod_needs_a_volume_that_is_there(tmp_path: Path) -> None:
    address = Address(path=str(tmp_path / "volume" / "head"), of_pod=True)
    with pytest.raises(AddressError), running_head(address, KEY):
        pass
