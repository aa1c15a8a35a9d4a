"""Unix sockets are for one user: their files' modes, and the user of the process at the other end."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_a_process_of_another_user_is_refused(unix_address: Address, tmp_path: Path) -> None:
    with running_head(unix_address, KEY) as head:
        # Open to all on purpose: the kernel's word on the user has to be enough.
        Path(unix_address.path).chmod(0o666)
        closed = [path for path in (Path(unix_address.path).parents) if not mode(path) & 0o001]
        modes = {path: mode(path) for path in closed}
        try:
            for path in closed:
                path.chmod(modes[path] | 0o001)
            answer = subprocess.run(
                [sys.executable, "-I", "-c", CONNECT, unix_address.path],
                capture_output=True,
                timeout=PATIENCE,
                check=True,
            )
        finally:
            for path in closed:
                path.chmod(modes[path])
        assert head.refusals.next() == "wrong_user"
        assert answer.stdout == b""
        assert head.connections.empty()
