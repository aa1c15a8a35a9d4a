"""TLS alone: what a peer can do that stays hidden behind frames, and what a lost one leaves."""

from __future__ import annotations

import asyncio
import queue
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from fray.errors import ConnectionLostError
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.transport.frames import BytesLike
from fray.runtime.pool.transport.handshake import Role
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.transport.socket_streams import PlainStream, TlsStream
from fray.runtime.pool.transport.tls import TlsLayer
from tests.pool.transport.heads import PATIENCE, Head, Link, running_head
from tests.pool.transport.test_refusals import dialled, prove

RECORD = 16 * 1024


@pytest.fixture
def tls_head(pool_key: TransportKey) -> Iterator[Head]:
    with running_head(Address(host="127.0.0.1"), pool_key, standing=True) as running:
        yield running


def secured_pair(key: TransportKey) -> tuple[ssl.SSLSocket, TlsStream]:
    """Return the two ends of a TLS connection, that of the listener first."""
    ends = socket.socketpair()
    accepted: list[ssl.SSLSocket] = []
    listening = key.tls_context(Role.LISTENER)
    accepting = threading.Thread(
        target=lambda: accepted.append(listening.wrap_socket(ends[0], server_side=True))
    )
    accepting.start()
    dialler = TlsStream(ends[1], key.tls_context(Role.DIALLER))
    dialler.agree(time.monotonic() + PATIENCE)
    accepting.join(PATIENCE)
    return accepted[0], dialler


# The layer of asyncio programs.


def test_the_last_words_of_a_peer_that_has_gone_are_heard(tls_head: Head, pool_key: TransportKey) -> None:
    heard: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    tls_head.receive = lambda _, frame: heard.put(frame.body)
    worker = BlockingConnection.connect(tls_head.address, pool_key)
    tls_head.connections.get(timeout=PATIENCE)

    def speak_and_go() -> None:
        worker.send(1, b"last words")
        worker.close()

    tls_head.call(speak_and_go)  # on the thread of the head, which reads only after that
    loss = tls_head.losses.get(timeout=PATIENCE)
    assert isinstance(loss, ConnectionLostError)
    assert loss.problem == "the peer closed it"
    assert heard.get(timeout=PATIENCE) == b"last words"


def test_both_sides_may_close_at_once(tls_head: Head, pool_key: TransportKey) -> None:
    """What would be an error in a callback of the event loop is found by `running_head`."""
    worker = BlockingConnection.connect(tls_head.address, pool_key)
    connection = tls_head.connections.get(timeout=PATIENCE)

    def close_both() -> None:
        connection.close()
        worker.close()

    tls_head.call(close_both)
    assert isinstance(tls_head.losses.get(timeout=PATIENCE), ConnectionLostError)


def test_a_peer_that_says_it_was_all_has_ended_the_connection(tls_head: Head, pool_key: TransportKey) -> None:
    with dialled(tls_head, Link(tls_head.address, pool_key)) as stream:
        assert isinstance(stream, ssl.SSLSocket)
        prove(stream, pool_key)
        stream.unwrap()
        # Its socket is still open, and no time passes for the head.
        assert isinstance(tls_head.losses.get(timeout=PATIENCE), ConnectionLostError)


class Failing(asyncio.BufferedProtocol):
    """Can't begin."""

    def __init__(self) -> None:
        self.lost: list[Exception | None] = []

    def connection_made(self, _: object) -> None:
        raise LookupError("a bug")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


def test_who_waits_for_tls_hears_of_an_application_that_cannot_begin(
    tls_head: Head, pool_key: TransportKey
) -> None:
    application, reported = Failing(), []

    async def dial() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        layer = TlsLayer(
            pool_key.tls_context(Role.DIALLER),
            application,
            server_side=False,
            read_buffer=memoryview(bytearray(RECORD)),
            close_seconds=PATIENCE,
        )
        await loop.create_connection(lambda: layer, "127.0.0.1", tls_head.address.port)
        with pytest.raises(LookupError):
            await asyncio.wait_for(layer.begin(), PATIENCE)

    asyncio.run(dial())
    assert len(application.lost) == len(reported) == 1


# The stream of threads.


def test_what_ends_a_connection_after_a_full_record_is_told(pool_key: TransportKey) -> None:
    peer, stream = secured_pair(pool_key)
    peer.send(b"x" * RECORD)
    with socket.socket(fileno=peer.detach()) as raw:
        raw.send(b"this is no record")
    target = memoryview(bytearray(2 * RECORD))
    assert stream.receive_into(target, PATIENCE) == RECORD
    assert stream.pending
    with pytest.raises(ssl.SSLError):
        stream.receive_into(target, PATIENCE)
    stream.close()


def test_a_target_that_is_smaller_than_what_has_come_is_filled_again(pool_key: TransportKey) -> None:
    peer, stream = secured_pair(pool_key)
    sent = bytes(range(256)) * 80
    peer.send(sent)
    peer.close()
    received = b""
    target = memoryview(bytearray(1000))
    while count := stream.receive_into(target, PATIENCE):
        received += target[:count]
    assert received == sent
    stream.close()


def test_what_came_with_the_last_record_is_pending_until_it_is_read(pool_key: TransportKey) -> None:
    peer, stream = secured_pair(pool_key)
    target = memoryview(bytearray(4))
    peer.send(b"abcdefgh")
    assert stream.receive_into(target, PATIENCE) == 4
    assert stream.pending
    assert stream.receive_into(target, PATIENCE) == 4
    assert target == b"efgh"
    assert not stream.pending
    assert stream.receive_into(target, 0) is None
    peer.close()
    stream.close()


@pytest.mark.parametrize("closes", [True, False])
def test_a_peer_that_says_it_was_all_ends_what_is_received(pool_key: TransportKey, *, closes: bool) -> None:
    peer, stream = secured_pair(pool_key)
    peer.send(b"last words")
    peer.setblocking(False)
    with pytest.raises(ssl.SSLWantReadError):
        peer.unwrap()
    if closes:
        peer.close()
    target = memoryview(bytearray(RECORD))
    assert stream.receive_into(target, PATIENCE) == len(b"last words")
    assert stream.receive_into(target, PATIENCE) == 0
    assert stream.receive_into(target, PATIENCE) == 0
    stream.close()
    peer.close()


def test_the_end_is_not_said_in_the_middle_of_what_a_thread_is_sending(
    pool_key: TransportKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, stream = secured_pair(pool_key)
    send = PlainStream.send

    def end_first(plain: PlainStream, parts: Sequence[BytesLike]) -> None:
        stream.shutdown()
        send(plain, parts)

    monkeypatch.setattr(PlainStream, "send", end_first)
    with pytest.raises(BrokenPipeError):
        stream.send([b"words"])
    stream.close()
    assert peer.recv(RECORD) == b""  # a record out of turn would be an error
    peer.close()


def test_a_thread_that_sends_after_the_end_sends_nothing(pool_key: TransportKey) -> None:
    peer, stream = secured_pair(pool_key)
    peer.setblocking(False)
    with pytest.raises(ssl.SSLWantReadError):
        peer.unwrap()
    stream.shutdown()
    with pytest.raises(OSError):  # noqa: PT011 - whichever: of TLS or of the socket
        stream.send([b"secret"])
    with socket.socket(fileno=peer.detach()) as raw:
        raw.settimeout(PATIENCE)
        received = b""
        while chunk := raw.recv(4096):
            received += chunk
    assert b"secret" not in received
    stream.close()


def test_a_dialler_does_not_wait_longer_than_it_may(pool_key: TransportKey) -> None:
    ends = socket.socketpair()
    stream = TlsStream(ends[1], pool_key.tls_context(Role.DIALLER))
    with pytest.raises(TimeoutError):
        stream.agree(time.monotonic())
    stream.close()
    ends[0].close()
