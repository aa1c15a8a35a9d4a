"""Where the transport's tests connect: a unix socket, and TLS on the loopback interface."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.keys import TransportKey
from tests.pool.transport.certificates import write_key
from tests.pool.transport.heads import Head, Link, running_head


class Unpickling:
    """Hears of each global that any pickle in this process asks for. Audit hooks can't be removed."""

    def __init__(self) -> None:
        self.seen: list[object] = []
        self.listening = False
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.listening and event == "pickle.find_class":
            self.seen.append(arguments)


@pytest.fixture(scope="session")
def pool_key(tmp_path_factory: pytest.TempPathFactory) -> TransportKey:
    return TransportKey.load(write_key(tmp_path_factory.mktemp("key")))


@pytest.fixture(scope="session")
def other_key(tmp_path_factory: pytest.TempPathFactory) -> TransportKey:
    return TransportKey.load(write_key(tmp_path_factory.mktemp("other")))


@pytest.fixture
def unix_address(tmp_path: Path) -> Address:
    return Address(path=str(tmp_path / "pool" / "head.sock"))


@pytest.fixture(params=["unix", "tls"])
def link(request: pytest.FixtureRequest, unix_address: Address, pool_key: TransportKey) -> Link:
    address = unix_address if request.param == "unix" else Address(host="127.0.0.1")
    return Link(address, pool_key)


@pytest.fixture
def head(link: Link) -> Iterator[Head]:
    with running_head(link.address, link.key) as running:
        yield running


@pytest.fixture(scope="session")
def unpickling_hook() -> Unpickling:
    return Unpickling()


@pytest.fixture
def unpickled(unpickling_hook: Unpickling) -> Iterator[list[object]]:
    """The globals that were unpickled since the test began."""
    unpickling_hook.seen.clear()
    unpickling_hook.listening = True
    yield unpickling_hook.seen
    unpickling_hook.listening = False
