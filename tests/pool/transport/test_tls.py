"""TLS alone: what a peer can do that stays hidden behind frames, and what a lost one leaves."""

from __future__ import annotations

import asyncio
import errno
import queue
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest

from fray.errors import ConnectionLostError
from fray.runtime.pool.transport import socket_streams
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.transport.handshake import Role
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.transport.socket_streams import TlsStream
from fray.runtime.pool.transport.tls import TlsLayer
from tests.pool.transport.heads import PATIENCE, Head, Link, running_head
from tests.pool.transport.test_refusals import dialled, prove

RECORD = 16 * 1024


@pytest.fixture
def tls_head(pool_key: TransportKey) -> Iterator[Head]:
    with running_head(Address(host="127.0.0.1"), pool_key, standing=True) as running:
        yield running


def secured_pair(key: TransportKey) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """Return the two ends of a TLS connection, that of the listener first."""
    ends = socket.socketpair()
    accepted: list[ssl.SSLSocket] = []
    listening = key.tls_context(Role.LISTENER)
    accepting = threading.Thread(
        target=lambda: accepted.append(listening.wrap_socket(ends[0], server_side=True))
    )
    accepting.start()
    dialler = key.tls_context(Role.DIALLER).wrap_socket(ends[1])
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


class Ending:
    """A TLS socket that has one full record, and is lost after it; like OpenSSL, it tells so only once."""

    def __init__(self, error: OSError) -> None:
        self._reads: list[OSError | int] = [RECORD, error, 0]

    def setblocking(self, blocking: bool) -> None:
        """Whatever it is."""

    def recv_into(self, _: memoryview) -> int:
        result = self._reads.pop(0)
        if isinstance(result, OSError):
            raise result
        return result


@pytest.mark.parametrize("error", [ssl.SSLError(1, "bad record"), TimeoutError(errno.ETIMEDOUT, "silent")])
def test_what_ends_a_connection_after_a_full_record_is_told(error: OSError) -> None:
    stream = TlsStream(Ending(error))  # type: ignore[arg-type]
    target = memoryview(bytearray(2 * RECORD))
    assert stream.receive_into(target, 0) == RECORD
    with pytest.raises(type(error)):
        stream.receive_into(target, 0)


def test_a_thread_that_sends_while_another_ends_the_connection_sends_no_plain_text(
    pool_key: TransportKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, ours = secured_pair(pool_key)
    stream = TlsStream(ours)
    peer.setblocking(False)
    with pytest.raises(ssl.SSLWantReadError):
        peer.unwrap()
    shut_down = socket_streams._shut_down

    def send_if_it_is_let() -> None:
        if stream._lock.acquire(blocking=False):
            stream.send([b"secret"])
            stream._lock.release()

    def shut_down_late(connected: socket.socket) -> None:
        sending = threading.Thread(target=send_if_it_is_let)
        sending.start()
        sending.join(PATIENCE)
        shut_down(connected)

    monkeypatch.setattr(socket_streams, "_shut_down", shut_down_late)
    stream.shutdown()
    stream.close()
    with socket.socket(fileno=peer.detach()) as raw:
        raw.settimeout(PATIENCE)
        received = b""
        while chunk := raw.recv(4096):
            received += chunk
    assert b"secret" not in received
