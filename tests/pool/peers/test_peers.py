"""Objects get from host to host whole, once for all who want them there, or the error says why not."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import queue
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from fray.errors import (
    ConnectionLostError,
    HandshakeError,
    ObjectLostError,
    PeerUnreachableError,
    TruncatedFrameError,
)
from fray.runtime.pool.objects import peers
from fray.runtime.pool.objects.files import HELD
from fray.runtime.pool.objects.mappings import Mappings
from fray.runtime.pool.objects.peers import fetch, run_object_server, serve_objects
from fray.runtime.pool.objects.readers import AT_ONCE
from fray.runtime.pool.objects.store import HostStore
from fray.runtime.pool.objects.values import decode, encode
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.transport.endpoints import Connection, serve
from fray.runtime.pool.transport.frames import Frame
from fray.runtime.pool.transport.keys import TransportKey
from tests.pool.hosts.pools import wait_until
from tests.pool.transport.certificates import write_key

# The code that is forked takes no lock that another thread of pytest could hold.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
fork = multiprocessing.get_context("fork")
KEY = TransportKey(b"k" * 32)


def make_store(place: Path, name: str, limit: int = 100_000_000) -> HostStore:
    for directory in (place / name, place / f"{name}-disk"):
        directory.mkdir(mode=0o700)
    return HostStore(place / name, place / f"{name}-disk", limit)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@pytest.fixture
def there(place: Path) -> HostStore:
    return make_store(place, "there")


@pytest.fixture
def here(place: Path) -> HostStore:
    return make_store(place, "here")


@pytest.fixture
def address(place: Path, there: HostStore) -> Iterator[Address]:
    """The object server of the host `there`, in a process of its own as its nanny forks it."""
    reading, writing = os.pipe()
    told, tell = os.pipe()

    def run() -> None:
        os.close(writing)
        run_object_server(
            Address(path=f"{place}/s/objects"),
            KEY,
            there,
            lifeline=reading,
            ready=lambda address: os.write(tell, str(address).encode()),
        )

    server = fork.Process(target=run)
    server.start()
    yield Address.parse(os.read(told, 4096).decode())
    os.close(writing)
    server.join()
    assert server.exitcode == 0
    for descriptor in (reading, told, tell):
        os.close(descriptor)
    assert not (place / "s" / "objects").exists()


Answer = Callable[[Connection, Frame, int], None]


@contextmanager
def scripted(place: Path, answer: Answer) -> Iterator[tuple[Address, list[int]]]:
    """A server that answers by a script, which is given the number of the request; yields the requests."""
    address = Address(path=f"{place}/x/objects")
    requests: list[int] = []
    ready: queue.Queue[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def run() -> None:
        def begin(connection: Connection) -> None:
            def answered(frame: Frame) -> None:
                requests.append(int.from_bytes(frame.body))
                answer(connection, frame, len(requests))

            connection.on_frame = answered

        ended = asyncio.Event()
        server = await serve(address, KEY, begin)
        ready.put((asyncio.get_running_loop(), ended))
        await ended.wait()
        await server.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    loop, ended = ready.get()
    try:
        yield address, requests
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()


def left_behind(store: HostStore) -> set[str]:
    found = (*store.directory.iterdir(), *store.spill_directory.iterdir())
    return {path.name for path in found if path.suffix != HELD} - {"usage"}


@pytest.fixture
def keeping(there: HostStore) -> HostStore:
    """The store of the host `there`, whose server keeps its mappings as long as it isn't told otherwise."""
    there._mappings = Mappings(there.limit, seconds=3600.0)
    return there


def test_a_server_has_a_large_object_mapped_no_longer_than_it_sends_it(
    keeping: HostStore, address: Address, here: HostStore
) -> None:
    keeping.write(1, encode(np.zeros(peers.SHARED_BYTES, dtype=np.uint8)))
    fetch(address, KEY, 1, here)
    [server] = multiprocessing.active_children()
    wait_until(lambda: str(keeping.directory) not in Path(f"/proc/{server.pid}/maps").read_text())


@pytest.mark.parametrize("count", [1, 60_000, 10_000_000])
def test_an_object_arrives_whole(address: Address, there: HostStore, here: HostStore, count: int) -> None:
    array = np.random.default_rng(1).integers(0, 255, count, dtype=np.uint8)
    size = there.write(0xABCDEF << 40, encode(array)).size
    fetch(address, KEY, 0xABCDEF << 40, here)
    assert np.array_equal(decode(here.open(0xABCDEF << 40)), array)
    assert here.usage() == (size, 0)
    assert left_behind(here) == {f"{0xABCDEF << 40:x}"}


def test_an_object_on_disk_arrives_too(address: Address, there: HostStore, here: HostStore) -> None:
    there.write(1, encode("x" * 70_000))
    there.spill(1)
    fetch(address, KEY, 1, here)
    assert decode(here.open(1)) == "x" * 70_000


def test_what_that_host_has_not_got_is_told(address: Address, here: HostStore) -> None:
    with pytest.raises(ObjectLostError) as raised:
        fetch(address, KEY, 0x77, here)
    assert raised.value.object == "77"
    assert left_behind(here) == set()


def test_without_room_in_memory_it_goes_to_disk(place: Path, address: Address, there: HostStore) -> None:
    small = make_store(place, "small", limit=1000)
    size = there.write(1, encode("x" * 2_000_000)).size
    fetch(address, KEY, 1, small)
    assert small.usage() == (0, size)
    assert decode(small.open(1)) == "x" * 2_000_000


def test_without_any_room_it_is_the_readers_own(
    place: Path, address: Address, there: HostStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int, data: memoryview) -> None:
        raise OSError(28, "No space left on device")

    small = make_store(place, "small")
    there.write(1, encode("x" * 10_000_000))
    monkeypatch.setattr(peers, "_write", full)
    assert decode(fetch(address, KEY, 1, small)) == "x" * 10_000_000
    assert left_behind(small) == set()
    assert small.usage() == (0, 0)


def test_copies_go_where_room_is_needed_and_values_of_the_host_stay(
    place: Path, address: Address, there: HostStore
) -> None:
    small = make_store(place, "small", limit=5000)
    small.write(100, encode("x" * 1500))
    for identity in range(1, 5):
        there.write(identity, encode(str(identity) * 1500))
        assert decode(fetch(address, KEY, identity, small)) == str(identity) * 1500
    assert left_behind(small) == {"64", "3", "4"}
    assert small.keep(3)
    small.write(101, encode("y" * 1500))
    assert left_behind(small) == {"64", "3", "65"}
    assert small.usage().disk == 0
    assert not small.keep(4)


def test_a_stranger_gets_nothing(address: Address, there: HostStore, here: HostStore) -> None:
    there.write(1, encode("x"))
    with pytest.raises(HandshakeError):
        fetch(address, TransportKey(b"o" * 32), 1, here)
    assert left_behind(here) == set()


@pytest.mark.parametrize(("kind", "body"), [(1, b"short"), (2, b"x" * 16)])
def test_a_request_that_is_none_ends_the_connection(address: Address, kind: int, body: bytes) -> None:
    connection = BlockingConnection.connect(address, KEY)
    connection.send(kind, body)
    with pytest.raises(ConnectionLostError):
        connection.receive(60)
    connection.close()


def test_a_file_that_the_server_refuses_is_none(address: Address, there: HostStore, here: HostStore) -> None:
    (there.directory / "1").symlink_to("/etc/passwd")
    with pytest.raises(ObjectLostError):
        fetch(address, KEY, 1, here)


def test_objects_pass_tls(place: Path, there: HostStore, here: HostStore) -> None:
    key = TransportKey.load(write_key(place / "key"))
    there.write(1, encode(np.arange(1_000_000)))  # many full records of TLS, and several chunks

    async def run() -> None:
        server = await serve_objects(Address(host="127.0.0.1"), key, there)
        await asyncio.to_thread(fetch, server.address, key, 1, here)
        await server.close()

    asyncio.run(run())
    assert np.array_equal(decode(here.open(1)), np.arange(1_000_000))


def test_chunks_may_have_any_size(place: Path, here: HostStore) -> None:
    """Memory is used again for chunks of some sizes; what comes at once with another one isn't mixed up."""
    whole, half = peers.CHUNK, peers.CHUNK // 2
    mixed = [[100, whole - 100, 0, half], [1, 1], [whole - 1, 5000], [whole + 1, half + 1]]
    chunks = [[os.urandom(size) for size in sizes] for sizes in [[whole]] * 6 + mixed * 2]
    data = b"".join(b"".join(chunk) for chunk in chunks)

    def answer(connection: Connection, frame: Frame, number: int) -> None:
        connection.send(peers._FOUND, peers._SIZE.pack(len(data)))
        for chunk in chunks:
            connection.send(peers._CHUNK, b"", chunk)

    with scripted(place, answer) as (address, _):
        assert bytes(fetch(address, KEY, 9, here)) == data


def test_a_host_that_is_gone_is_told(place: Path, here: HostStore) -> None:
    with pytest.raises(PeerUnreachableError):
        fetch(Address(path=f"{place}/nobody"), KEY, 1, here)
    assert left_behind(here) == set()


def test_all_who_want_an_object_on_a_host_share_one_transfer(place: Path, here: HostStore) -> None:
    data = encode(np.arange(300_000)).to_bytes()

    def answer(connection: Connection, frame: Frame, number: int) -> None:
        connection.send(peers._FOUND, peers._SIZE.pack(len(data)))
        connection.send(peers._CHUNK, b"", [data])

    with scripted(place, answer) as (address, requests):

        def want() -> None:
            threads = [threading.Thread(target=fetch, args=(address, KEY, 9, here)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert decode(here.open(9))[-1] == 299_999

        workers = [fork.Process(target=want) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
        assert requests == [9]


def test_a_transfer_that_is_cut_begins_anew(place: Path, here: HostStore) -> None:
    data = encode(np.arange(300_000)).to_bytes()

    def answer(connection: Connection, frame: Frame, number: int) -> None:
        # Each time with another content: nothing of the one before may be left.
        fill = bytes([number]) * 1000
        connection.send(peers._FOUND, peers._SIZE.pack(len(data)))
        connection.send(peers._CHUNK, b"", [data if number == peers.TRIES else fill])
        if number < peers.TRIES:
            connection.close()

    with scripted(place, answer) as (address, requests):
        fetch(address, KEY, 9, here)
        assert len(requests) == peers.TRIES
    assert bytes(here.open(9)) == data


def cut(connection: Connection) -> None:
    connection.send(peers._FOUND, peers._SIZE.pack(10))
    connection.send(peers._CHUNK, b"", [b"12345"])
    connection.close()


def too_much(connection: Connection) -> None:
    connection.send(peers._FOUND, peers._SIZE.pack(10))
    connection.send(peers._CHUNK, b"", [b"12345678", b"9ab"])


def nothing(connection: Connection) -> None:
    connection.send(peers._FOUND, peers._SIZE.pack(10))
    connection.send(peers._CHUNK, b"", [b""])


def another_kind(connection: Connection) -> None:
    connection.send(77, b"")


def no_size(connection: Connection) -> None:
    connection.send(peers._FOUND, b"123")


def in_the_middle(connection: Connection) -> None:
    connection.send(peers._FOUND, peers._SIZE.pack(10))
    connection.send(peers._MISSING, b"")


def silent(connection: Connection) -> None:
    connection.send(peers._FOUND, peers._SIZE.pack(10))


@pytest.mark.parametrize("wrong", [cut, too_much, nothing, another_kind, no_size, in_the_middle, silent])
def test_a_server_that_goes_wrong_is_told_and_leaves_nothing(
    place: Path, here: HostStore, monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Connection], None]
) -> None:
    if wrong is silent:  # others mustn't be taken for it by a machine that stands still
        monkeypatch.setattr(peers, "SILENCE_SECONDS", 0.05)
    with scripted(place, lambda connection, *_: wrong(connection)) as (address, requests):
        with pytest.raises(ConnectionLostError):
            fetch(address, KEY, 9, here)
        # Who is silent may hear of its one request only after it was given up.
        wait_until(lambda: len(requests) == (1 if wrong is silent else peers.TRIES))
    assert left_behind(here) == set()
    assert here.usage() == (0, 0)


def test_a_fetching_process_that_is_killed_lets_the_next_one_go_on(place: Path, here: HostStore) -> None:
    data = encode("x" * 100).to_bytes()
    began, begun = os.pipe()

    def answer(connection: Connection, frame: Frame, number: int) -> None:
        connection.send(peers._FOUND, peers._SIZE.pack(len(data)))
        if number == 1:
            os.write(begun, b"x")
        else:
            connection.send(peers._CHUNK, b"", [data])

    with scripted(place, answer) as (address, _):
        first = fork.Process(target=fetch, args=(address, KEY, 9, here))
        first.start()
        os.read(began, 1)
        second = threading.Thread(target=fetch, args=(address, KEY, 9, here))
        second.start()
        first.kill()
        first.join()
        second.join()
        assert first.pid is not None
        here.discard_dead_parts()
    assert decode(here.open(9)) == "x" * 100
    assert left_behind(here) == {"9"}
    assert here.usage() == (len(data), 0)
    os.close(began)
    os.close(begun)


# --- broadcasts --------------------------------------------------------------------------------------------

LARGE = 20_000_000
"""Bytes: more than what sockets take before their reader reads."""


@contextmanager
def slow_readers(address: Address, identity: int, homes: list[str]) -> Iterator[None]:
    """Readers with these addresses that take a part of an object, and no more as long as the block runs."""
    with ExitStack() as stack:
        for home in homes:
            connection = stack.enter_context(closing(BlockingConnection.connect(address, KEY)))
            connection.send(peers._WANTED, identity.to_bytes(16) + home.encode())
            assert connection.receive(60).kind == peers._FOUND
        yield


def ask(address: Address, identity: int, home: str, kind: int = peers._WANTED) -> tuple[int, bytes]:
    with closing(BlockingConnection.connect(address, KEY)) as connection:
        connection.send(kind, identity.to_bytes(16) + home.encode())
        frame = connection.receive(60)
        return frame.kind, bytes(frame.body)


@contextmanager
def serving(place: Path, name: str, store: HostStore) -> Iterator[Address]:
    """A server of a store, in a thread."""
    ready: queue.Queue[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()
    address = Address(path=f"{place}/{name}.s/objects")

    async def run() -> None:
        ended = asyncio.Event()
        server = await serve_objects(address, KEY, store)
        ready.put((asyncio.get_running_loop(), ended))
        await ended.wait()
        await server.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    loop, ended = ready.get()
    yield address
    loop.call_soon_threadsafe(ended.set)
    thread.join()


def test_later_readers_of_a_large_object_are_sent_to_earlier_ones_in_turn(
    address: Address, there: HostStore
) -> None:
    there.write(1, encode(np.zeros(LARGE, np.uint8)))
    there.write(2, encode("small" * 20_000))
    with slow_readers(address, 1, ["unix:/a", "unix:/b", "unix:/c"]):
        sent = [ask(address, 1, f"unix:/{name}") for name in "defg"]
        assert sent == [(peers._ELSEWHERE, f"unix:/{name}".encode()) for name in "abca"]
        assert ask(address, 1, "")[0] == peers._FOUND  # nobody could be sent there
        assert ask(address, 2, "unix:/d")[0] == peers._FOUND
    wait_until(lambda: ask(address, 1, "unix:/d")[0] == peers._FOUND)


def test_a_reader_waits_at_an_earlier_one_until_that_has_the_object(
    place: Path, address: Address, there: HostStore, here: HostStore
) -> None:
    value = encode(np.arange(LARGE // 8))
    there.write(1, value)
    between = make_store(place, "between")
    with serving(place, "between", between) as relay, slow_readers(address, 1, [str(relay)] * AT_ONCE):
        assert ask(relay, 1, "", peers._FORWARDED)[0] == peers._MISSING
        with between.exclusive(1):
            assert ask(relay, 1, "")[0] == peers._MISSING  # it isn't said to be on its way there
            assert ask(relay, 1, "", peers._FORWARDED)[0] == peers._COMING
            reader = threading.Thread(target=fetch, args=(address, KEY, 1, here), kwargs={"home": "unix:/d"})
            reader.start()
            between.write(1, value)
        reader.join()
    assert bytes(here.open(1)) == value.to_bytes()


@pytest.mark.parametrize("home", ["unix:/nobody/listens", "no address"])
def test_a_reader_that_another_one_fails_turns_to_the_owner(
    address: Address, there: HostStore, here: HostStore, home: str
) -> None:
    there.write(1, encode(np.zeros(LARGE, np.uint8)))
    with slow_readers(address, 1, [home] * AT_ONCE):
        assert len(fetch(address, KEY, 1, here, home="unix:/d")) > LARGE


def test_a_reader_does_not_wait_for_ever_for_an_earlier_one_that_stands_still(
    place: Path, address: Address, there: HostStore, here: HostStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.write(1, encode(np.zeros(LARGE, np.uint8)))
    between = make_store(place, "between")
    with serving(place, "between", between) as relay, slow_readers(address, 1, [str(relay)] * AT_ONCE):
        monkeypatch.setattr(peers, "SILENCE_SECONDS", 1.0)
        with between.exclusive(1):
            assert len(fetch(address, KEY, 1, here, home="unix:/d")) > LARGE


def read_on(connection: BlockingConnection) -> None:
    while True:
        connection.receive(10)


def test_a_reader_that_asks_again_before_it_has_read_is_cut_off(address: Address, there: HostStore) -> None:
    """Each answer takes memory of the server until it is read."""
    there.write(1, encode(np.zeros(40_000_000, dtype=np.uint8)))
    with closing(BlockingConnection.connect(address, KEY)) as connection:
        for _ in range(2):
            connection.send(peers._WANTED, (1).to_bytes(peers._IDENTITY_BYTES))
        with pytest.raises((ConnectionLostError, TruncatedFrameError)):
            read_on(connection)
