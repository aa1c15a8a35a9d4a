"""Arguments that lie on other hosts, and those that can't be had where they were said to be."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.errors import ObjectLostError
from fray.runtime.pool.messages.commands import Deliver, RunTask
from fray.runtime.pool.messages.events import FetchFailed, ObjectsWanted, TaskBlocked
from fray.runtime.pool.messages.greetings import HostAddresses
from fray.runtime.pool.messages.specs import Failed, Stored
from fray.runtime.pool.objects.values import encode
from tests.pool.worker.scripted_head import HOST, PATIENCE, Pool, make_pool

OTHER = HOST + 1
ONE_PLACE = encode(([None], {}, [0])).to_bytes()


@pytest.fixture
def other() -> Iterator[Pool]:
    with tempfile.TemporaryDirectory(prefix="fray-") as folder:
        with make_pool(host=OTHER, objects=f"unix:{folder}/socket") as made:
            yield made
        assert not list(Path(folder).iterdir())


def sizing(pool: Pool, worker: int, wanted: int, outcome: Stored) -> RunTask:
    """Return the command to measure an object."""
    command = pool.task(worker, len)
    return command._replace(spec=command.spec._replace(args=ONE_PLACE, deps=(wanted,)), deps=(outcome,))


def test_an_argument_is_fetched_from_another_host(other: Pool) -> None:
    with make_pool(secret=other.config.secret) as pool:
        worker = pool.start_worker()
        size = other.store.write(77, encode(bytes(300_000))).size
        pool.tell(worker, HostAddresses(((OTHER, other.hello.objects),)))
        pool.tell(worker, command := sizing(pool, worker, 77, Stored(OTHER, size)))
        assert pool.value_of(command) == 300_000
        assert pool.store.contains(77)


def test_the_end_of_the_server_of_objects_is_the_hosts_end(other: Pool) -> None:
    (server,) = other.pids() - {other.nanny.pid}
    os.kill(server, signal.SIGKILL)
    assert other.nanny.wait(PATIENCE) == 0


def test_an_argument_that_is_not_there_is_asked_for_anew(pool: Pool) -> None:
    worker = pool.start_worker()
    pool.tell(worker, command := sizing(pool, worker, 77, Stored(OTHER, 100)))
    assert pool.head.take(ObjectsWanted).ids == (77,)
    assert pool.head.take(TaskBlocked).id == command.spec.id
    pool.tell(worker, Deliver(worker, 77, Stored(OTHER, 100)))
    assert pool.head.take(FetchFailed)[:2] == (77, OTHER)
    pool.tell(worker, Deliver(worker, 77, encode("abc").to_bytes()))
    assert pool.value_of(command) == 3


def test_an_argument_that_is_lost_fails_the_task(pool: Pool) -> None:
    worker = pool.start_worker()
    pool.tell(worker, command := sizing(pool, worker, 77, Stored(HOST, 100)))
    pool.head.take(ObjectsWanted)
    pool.tell(worker, Deliver(worker, 77, Failed(b"", "ObjectLostError", "77", ("its host is gone",))))
    with pytest.raises(ObjectLostError):
        pool.value_of(command)
