"""The key of a namespace is replaced under a pool of several hosts: no task and no object is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fray.errors import WorkerDiedError
from fray.runtime.pool.transport.addresses import Address
from tests.pool.hosts.pools import PATIENCE, on, several_hosts
from tests.pool.transport.mounted_secret import MountedSecret, rotated

LARGE = 1 << 20


def test_a_pool_goes_on_while_its_key_is_replaced(tmp_path: Path) -> None:
    states = rotated()
    driver, pod = (MountedSecret(tmp_path / name, states[0]) for name in ("driver", "pod"))
    with several_hosts(driver.directory, listen=Address(host="127.0.0.1")) as hosts:
        hosts.add("a", key=pod.directory)
        context = hosts.context
        host_number = hosts.number("a")
        for state in states[1:]:
            for mounted in (driver, pod):
                mounted.show(state)
                # Each of these makes a connection: to the driver's objects, to the host's, and to the head.
                there = context.put(os.urandom(LARGE))
                assert hosts.get(context.run(len, there, options=on("a"))) == LARGE
                assert len(hosts.get(context.run(bytes, LARGE, options=on("a")))) == LARGE
                with pytest.raises(WorkerDiedError):
                    hosts.get(context.run(os._exit, 1, options=on("a", retries=0)))
                assert hosts.get(context.run(abs, -1, options=on("a"))) == 1
        assert hosts.number("a") == host_number, "the host never left"
        hosts.add("b", key=pod.directory)
        assert hosts.get(context.run(abs, -2, options=on("b"))) == 2
        late = MountedSecret(tmp_path / "late", states[0])
        assert hosts.start("late", key=late.directory, patience=0).wait(PATIENCE) == 1
