"""Mutual TLS between two processes in network namespaces of their own, joined by nothing but a cable."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pool.transport.certificates import write_key
from tests.pool.transport.namespaces import FIRST, PATIENCE, Namespaces, namespaces

WORKER = """
import json, sys
from pathlib import Path
from fray.errors import HandshakeError
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.transport.keys import TransportKey

address, key = Address.parse(sys.argv[1]), TransportKey.load(Path(sys.argv[2]))
try:
    connection = BlockingConnection.connect(address, key)
except HandshakeError as error:
    print(json.dumps({"refused": error.reason}))
    sys.exit()
connection.send(1, b"small")
connection.send(2, b"large", [bytes(5_000_000)])
small, large = connection.receive(60), connection.receive(60)
print(json.dumps({
    "echoed": [len(small.body), len(large.buffers[0])],
    "tls": connection._stream._tls.version(),
    "peer": connection._stream._stream._socket.getpeername()[0],
}))
connection.close()
"""
DIES_WITHIN = """
import os, signal
from tests.pool.transport.namespaces import namespaces
with namespaces() as made:
    print(made.first, made.second, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


ROOT = Path(__file__).parents[3]


def obstacle() -> str:
    """Return why namespaces can't be made here, or nothing."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    # In CI a root that lacks the command is a fault of the machine, and shows as one.
    return "" if shutil.which("ip") or os.environ.get("CI") == "true" else "there is no command ip"


pytestmark = pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "nothing is in the way")


@contextlib.contextmanager
def echo_head(made: Namespaces, key: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "tests.pool.transport.echo_head", f"tcp:{FIRST}:0", str(key)]
    with subprocess.Popen(
        made.within(made.first, *command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


def worker(made: Namespaces, address: str, key: Path) -> dict[str, object]:
    command = made.within(made.second, sys.executable, "-c", WORKER, address, str(key))
    done = subprocess.run(command, check=True, timeout=PATIENCE, stdout=subprocess.PIPE, text=True)
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_only_holders_of_the_key_talk_across_a_network(tmp_path: Path) -> None:
    ours, theirs = write_key(tmp_path / "ours"), write_key(tmp_path / "theirs")
    mixed = shutil.copytree(ours, tmp_path / "mixed")
    shutil.copy(theirs / "pool.key", mixed / "pool.key")
    with namespaces() as made, echo_head(made, ours) as (address, head):
        assert worker(made, address, ours) == {"echoed": [5, 5_000_000], "tls": "TLSv1.3", "peer": FIRST}
        assert worker(made, address, theirs) == {"refused": "wrong_key"}
        assert worker(made, address, mixed) == {"refused": "wrong_key"}
        said, _ = head.communicate(timeout=PATIENCE)
    refusals = json.loads(said)
    assert refusals["wrong_key"] == 2
    assert sum(refusals.values()) == 2


def test_namespaces_go_with_the_process_that_made_them(tmp_path: Path) -> None:
    # The reaper holds our end of the pipe open until it has done its work.
    killed = subprocess.run(
        [sys.executable, "-c", DIES_WITHIN],
        timeout=PATIENCE,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert killed.returncode == -signal.SIGKILL
    names = killed.stdout.split()
    assert len(names) == 2
    left = subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert not any(name in left.stdout for name in names)
