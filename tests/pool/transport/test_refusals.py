"""Who isn't of the pool or breaks the protocol is cut off and counted; nothing he sends is unpickled."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fray.errors import (
    FrameError,
    HandshakeError,
    PeerUnreachableError,
    ReplayedFrameError,
    TransportKeyError,
)
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.transport.endpoints import Connection, connect
from fray.runtime.pool.transport.frames import FrameLimits, encode_frame
from fray.runtime.pool.transport.handshake import MESSAGE_SIZE, Handshake, Role
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.transport.settings import TransportSettings
from tests.pool.transport.heads import PATIENCE, Head, Link, running_head

pytestmark = pytest.mark.usefixtures("nothing_unpickled")
HASTY = TransportSettings(handshake_seconds=0.3)
"""Only where a time-out is what is awaited: a machine may stop for longer."""
PATIENT = TransportSettings(handshake_seconds=PATIENCE)
DEADLINE = 10.0
STANDING = TransportSettings(handshake_seconds=DEADLINE)
"""For heads whose time stands still but for the test."""
LIMITS = FrameLimits()
EVIL = pickle.dumps(os.getpid)


@pytest.fixture
def nothing_unpickled(unpickled: list[object]) -> Iterator[None]:
    yield
    assert unpickled == []


@contextlib.contextmanager
def dialled(head: Head, link: Link) -> Iterator[socket.socket]:
    """A socket up to where the handshake begins, so behind TLS where there is some."""
    if head.address.is_unix:
        with socket.socket(socket.AF_UNIX) as plain:
            plain.settimeout(PATIENCE)
            plain.connect(head.address.path)
            yield plain
        return
    with (
        socket.create_connection((head.address.host, head.address.port), timeout=PATIENCE) as plain,
        link.key.tls_context(Role.DIALLER).wrap_socket(plain) as secured,
    ):
        yield secured


def read_message(stream: socket.socket) -> bytes:
    message = b""
    while len(message) < MESSAGE_SIZE:
        received = stream.recv(MESSAGE_SIZE - len(message))
        assert received
        message += received
    return message


def read_to_end(stream: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while chunk := stream.recv(65536):
            received += chunk
    return received


def prove(stream: socket.socket, key: TransportKey) -> bytes:
    """Go through a whole handshake and return the proof that was sent."""
    side = key.handshake(Role.DIALLER)
    proof = side.feed(read_message(stream))
    stream.sendall(proof)
    side.feed(read_message(stream))
    assert side.done
    return proof


def frame(sequence: int, body: bytes = EVIL) -> bytes:
    return b"".join(encode_frame(sequence, 1, body, limits=LIMITS))


def assert_nobody_came(head: Head) -> None:
    assert head.connections.empty()
    assert head.losses.empty()


def test_another_secret_is_refused_on_both_sides(head: Head, link: Link, other_key: TransportKey) -> None:
    wrong = replace(link.key, secret=other_key.secret)
    with pytest.raises(HandshakeError) as refused:
        BlockingConnection.connect(head.address, wrong)
    assert refused.value.reason == "wrong_key"
    assert head.refusals.next() == "wrong_key"
    with pytest.raises(HandshakeError) as refused:
        head.wait(connect(head.address, wrong, _not_called))
    assert refused.value.reason == "wrong_key"
    assert head.refusals.next() == "wrong_key"
    assert_nobody_came(head)
    assert head.refusals.snapshot() == {**dict.fromkeys(head.refusals.snapshot(), 0), "wrong_key": 2}


def test_a_recorded_handshake_is_refused(head: Head, link: Link) -> None:
    with dialled(head, link) as stream:
        recorded = prove(stream, link.key)
        head.connections.get(timeout=PATIENCE)
    head.losses.get(timeout=PATIENCE)
    with dialled(head, link) as stream:
        stream.sendall(recorded)
        read_to_end(stream)
    assert head.refusals.next() == "replayed"
    assert_nobody_came(head)


@pytest.mark.parametrize("sent", [0, 3, MESSAGE_SIZE - 1])
def test_an_end_within_the_handshake_is_counted(head: Head, link: Link, sent: int) -> None:
    with dialled(head, link) as stream:
        proof = link.key.handshake(Role.DIALLER).feed(read_message(stream))
        stream.sendall(proof[:sent])
    assert head.refusals.next() == "truncated"
    assert_nobody_came(head)


def test_frames_before_the_accept_are_refused(head: Head, link: Link) -> None:
    with dialled(head, link) as stream:
        proof = link.key.handshake(Role.DIALLER).feed(read_message(stream))
        stream.sendall(proof + frame(0))
        read_to_end(stream)
    assert head.refusals.next() == "oversized"
    assert_nobody_came(head)


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", EVIL, frame(0), bytes(100_000)])
def test_garbage_is_refused(head: Head, link: Link, garbage: bytes) -> None:
    with dialled(head, link) as stream:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            stream.sendall(garbage)
        read_to_end(stream)
    assert head.refusals.next() == "malformed"
    assert_nobody_came(head)


def test_a_silent_peer_is_cut_off_at_the_deadline(link: Link) -> None:
    with (
        running_head(link.address, link.key, STANDING, standing=True) as head,
        dialled(head, link) as stream,
    ):
        read_message(stream)  # from before that on, its time runs
        head.pass_time(DEADLINE)
        read_to_end(stream)
        assert head.refusals.next() == "timeout"
        assert_nobody_came(head)


def test_a_peer_that_sends_a_byte_now_and_then_gains_no_time(link: Link) -> None:
    with (
        running_head(link.address, link.key, STANDING, standing=True) as head,
        dialled(head, link) as stream,
    ):
        proof = link.key.handshake(Role.DIALLER).feed(read_message(stream))
        for sent in range(4):
            stream.sendall(proof[sent : sent + 1])
            for _ in range(2):
                head.call(lambda: None)  # it has read the byte by then
            head.pass_time(DEADLINE / 4)
        read_to_end(stream)
        assert head.refusals.next() == "timeout"
        assert_nobody_came(head)


def test_silent_peers_delay_others_only_until_their_deadline(link: Link) -> None:
    settings = replace(STANDING, max_handshakes=2)
    with (
        running_head(link.address, link.key, settings, standing=True) as head,
        contextlib.ExitStack() as strangers,
        ThreadPoolExecutor(1) as threads,
    ):
        for _ in range(2):
            read_message(strangers.enter_context(dialled(head, link)))
        dialling = threads.submit(BlockingConnection.connect, head.address, link.key, settings=PATIENT)
        head.pass_time(DEADLINE)
        with contextlib.closing(dialling.result(PATIENCE)) as honest:
            honest.send(1, b"in")
            assert honest.receive(PATIENCE).body == b"in"
        assert [head.refusals.next() for _ in range(2)] == ["timeout"] * 2


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (frame(0), "replayed"),
        (frame(2), "malformed"),
        (EVIL + bytes(100), "malformed"),
        (frame(1)[:-1], "truncated"),
        (frame(1)[:10], "truncated"),
        (frame(1)[:16] + b"\xff" * 8, "oversized"),
        (frame(1)[:12] + b"\xff" * 12, "oversized"),
    ],
)
def test_wrong_frames_of_a_peer_that_got_in_end_the_connection(
    head: Head, link: Link, sent: bytes, reason: str
) -> None:
    received = []
    head.receive = lambda _, got: received.append(got.sequence)
    with dialled(head, link) as stream:
        prove(stream, link.key)
        stream.sendall(frame(0))
        stream.sendall(sent)
        if reason == "truncated":
            socket.socket.shutdown(stream, socket.SHUT_WR)
        read_to_end(stream)
    assert head.refusals.next() == reason
    loss = head.losses.get(timeout=PATIENCE)
    assert isinstance(loss, FrameError)
    assert loss.reason == reason
    assert received in ([0], [])  # dropped if it came in one piece with the wrong one


def test_wrong_frames_of_a_head_end_a_workers_connection(head: Head, link: Link) -> None:
    with contextlib.closing(BlockingConnection.connect(head.address, link.key)) as worker:
        connection = head.connections.get(timeout=PATIENCE)

        def send_again() -> None:
            connection.send(1, b"")
            connection._sequence = 0
            connection.send(1, b"")

        head.call(send_again)
        for _ in range(2):
            with pytest.raises(ReplayedFrameError):
                worker.receive(PATIENCE)


# Who dials is as careful as who listens.


@contextlib.contextmanager
def impostor(path: Path, *says: bytes, reads: int = 0) -> Iterator[Address]:
    """A listener that says something, reads some bytes after each saying, and waits for the dialler to go."""
    path.parent.mkdir(mode=0o700)

    def speak() -> None:
        peer, _ = listening.accept()
        with peer, contextlib.suppress(OSError):
            for saying in says:
                peer.sendall(saying)
                peer.recv(reads)
            read_to_end(peer)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        thread = threading.Thread(target=speak)
        thread.start()
        yield Address(path=str(path))
        thread.join(PATIENCE)
        assert not thread.is_alive()


def refused_reasons(address: Address, key: TransportKey, settings: TransportSettings) -> str:
    with pytest.raises(HandshakeError) as refused:
        BlockingConnection.connect(address, key, settings=settings)
    return refused.value.reason


def test_a_silent_listener_is_given_up(tmp_path: Path) -> None:
    with impostor(tmp_path / "pool" / "x.sock") as address:
        assert refused_reasons(address, TransportKey.generate(), HASTY) == "timeout"


def test_a_listener_without_the_key_is_given_up(tmp_path: Path) -> None:
    theirs, ours = TransportKey.generate(), TransportKey.generate()
    accept = theirs.handshake(Role.LISTENER)
    challenge = accept.start()
    forged = accept.feed(theirs.handshake(Role.DIALLER).feed(challenge))
    with impostor(tmp_path / "pool" / "x.sock", challenge, forged, reads=MESSAGE_SIZE) as address:
        assert refused_reasons(address, ours, PATIENT) == "wrong_key"


def test_a_listener_that_sends_a_byte_now_and_then_is_given_up(tmp_path: Path) -> None:
    challenge = TransportKey.generate().handshake(Role.LISTENER).start()
    key = TransportKey.generate()
    path = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        reasons: list[str] = []
        dialling = threading.Thread(
            target=lambda: reasons.append(refused_reasons(Address(path=str(path)), key, HASTY))
        )
        dialling.start()
        peer, _ = listening.accept()
        with peer, contextlib.suppress(OSError):
            for byte in challenge:
                peer.sendall(bytes([byte]))
                if select.select([peer], [], [], 0.25)[0]:
                    break
        dialling.join(PATIENCE)
    assert reasons == ["timeout"]


def test_a_listener_of_another_kind_is_given_up(tmp_path: Path) -> None:
    with impostor(tmp_path / "pool" / "x.sock", b"220 mail.example ESMTP\r\n") as address:
        assert refused_reasons(address, TransportKey.generate(), PATIENT) == "malformed"


@pytest.mark.parametrize("address", [Address(path="/nonexistent/x.sock"), Address(host="127.0.0.1", port=1)])
def test_nobody_listening_is_no_refusal(head: Head, pool_key: TransportKey, address: Address) -> None:
    with pytest.raises(PeerUnreachableError):
        BlockingConnection.connect(address, pool_key)
    with pytest.raises(PeerUnreachableError):
        head.wait(connect(address, pool_key, _not_called))


@pytest.mark.parametrize("address", [Address(path="/nonexistent/x.sock"), Address(host="127.0.0.1", port=1)])
def test_a_machine_too_slow_to_dial_in_time_reaches_nobody(pool_key: TransportKey, address: Address) -> None:
    with pytest.raises(PeerUnreachableError, match="too slow"):
        BlockingConnection.connect(address, pool_key, settings=replace(PATIENT, handshake_seconds=0.0))


# TLS: before the handshake of the pool.


@pytest.fixture
def tls_head(pool_key: TransportKey) -> Iterator[Head]:
    with running_head(Address(host="127.0.0.1"), pool_key, PATIENT) as running:
        yield running


def test_another_certificate_is_refused_on_both_sides(tls_head: Head, other_key: TransportKey) -> None:
    with pytest.raises(HandshakeError) as refused:
        BlockingConnection.connect(tls_head.address, other_key)
    assert refused.value.reason == "wrong_key"
    assert tls_head.refusals.next() == "wrong_key"
    with pytest.raises(HandshakeError) as refused:
        tls_head.wait(connect(tls_head.address, other_key, _not_called))
    assert refused.value.reason == "wrong_key"
    # asyncio (3.11) drops the alert with which OpenSSL would tell the listener why.
    assert tls_head.refusals.next() in ("truncated", "wrong_key")
    assert_nobody_came(tls_head)


def test_a_dialler_without_a_certificate_gets_no_challenge(tls_head: Head, pool_key: TransportKey) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    assert pool_key.certificate is not None
    context.load_verify_locations(pool_key.certificate)
    with (
        socket.create_connection((tls_head.address.host, tls_head.address.port), timeout=PATIENCE) as plain,
        context.wrap_socket(plain) as stream,
    ):
        assert read_to_end(stream) == b""
    assert tls_head.refusals.next() == "wrong_key"
    assert_nobody_came(tls_head)


def test_tls_below_1_3_is_refused(tls_head: Head, pool_key: TransportKey) -> None:
    context = pool_key.tls_context(Role.DIALLER)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        socket.create_connection((tls_head.address.host, tls_head.address.port), timeout=PATIENCE) as plain,
        pytest.raises(ssl.SSLError),
    ):
        context.wrap_socket(plain)
    assert tls_head.refusals.next() == "malformed"


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", EVIL + bytes(500)])
def test_what_is_not_tls_is_refused(tls_head: Head, sent: bytes) -> None:
    with socket.create_connection((tls_head.address.host, tls_head.address.port), timeout=PATIENCE) as plain:
        plain.sendall(sent)
        read_to_end(plain)
    assert tls_head.refusals.next() == "malformed"
    assert_nobody_came(tls_head)


def test_who_says_nothing_instead_of_tls_is_cut_off_at_the_deadline(pool_key: TransportKey) -> None:
    with (
        running_head(Address(host="127.0.0.1"), pool_key, STANDING, standing=True) as head,
        socket.create_connection((head.address.host, head.address.port), timeout=PATIENCE) as plain,
    ):
        while not head.call(lambda: len(head.server._admissions)):
            pass  # until its time runs
        head.pass_time(DEADLINE)
        assert read_to_end(plain) == b""
        assert head.refusals.next() == "timeout"
        assert_nobody_came(head)


def test_the_secret_counts_behind_the_right_certificate(tls_head: Head, pool_key: TransportKey) -> None:
    link = Link(tls_head.address, pool_key)
    with dialled(tls_head, link) as stream:
        stranger = Handshake(b"s" * 32, Role.DIALLER, b"n" * 32)
        stream.sendall(stranger.feed(read_message(stream)))
        read_to_end(stream)
    assert tls_head.refusals.next() == "wrong_key"


def test_tcp_needs_a_certificate(unix_address: Address) -> None:
    with pytest.raises(TransportKeyError):
        BlockingConnection.connect(Address(host="127.0.0.1", port=1), TransportKey.generate())


def test_who_stops_dialling_before_the_proof_leaves_no_error_to_nobody(
    tls_head: Head, pool_key: TransportKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaints: list[dict[str, Any]] = []
    begin = Connection.connection_made

    async def dial() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        dialling = asyncio.create_task(connect(tls_head.address, pool_key, _not_called))

        def begin_and_stop(connection: Connection, transport: asyncio.BaseTransport) -> None:
            begin(connection, transport)
            if connection.peer == str(tls_head.address):
                dialling.cancel()

        monkeypatch.setattr(Connection, "connection_made", begin_and_stop)
        with pytest.raises(asyncio.CancelledError):
            await dialling

    asyncio.run(dial())
    gc.collect()
    assert complaints == []


def _not_called(connection: Connection) -> None:
    raise AssertionError(f"{connection.peer} was taken in")
