"""A pool of the driver's host and two others, over TLS on the loopback interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.runtime.pool.transport.addresses import Address
from tests.pool.hosts.pools import Hosts, several_hosts
from tests.pool.transport.certificates import write_key


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_key(tmp_path_factory.mktemp("key"))


@pytest.fixture
def driver(key: Path) -> Iterator[Hosts]:
    """The driver's host alone, which others may join."""
    with several_hosts(key, listen=Address(host="127.0.0.1")) as made:
        yield made


@pytest.fixture
def hosts(driver: Hosts) -> Hosts:
    """The driver's host, `a` and `b`."""
    driver.start("a")
    driver.start("b")
    for name in ("a", "b"):
        driver.await_host(name)
    return driver
