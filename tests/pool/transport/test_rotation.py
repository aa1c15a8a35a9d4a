"""The key of a namespace is replaced under processes that talk: no call is lost, and the old key ends."""

from __future__ import annotations

import contextlib
import itertools
import json
import pickle
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fray.errors import HandshakeError, TransportKeyError
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.transport.handshake import Role
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.transport.settings import TransportSettings
from fray_operator.auth_keys import AuthKeys
from tests.pool.transport.heads import PATIENCE, running_head
from tests.pool.transport.mounted_secret import MountedSecret, rotated

PATIENT = TransportSettings(handshake_seconds=PATIENCE)


def call(connection: BlockingConnection, body: bytes) -> None:
    connection.send(1, body)
    assert connection.receive(PATIENCE).body == body


def dial(address: Address, directory: Path) -> contextlib.closing[BlockingConnection]:
    key = TransportKey.load(directory)
    return contextlib.closing(BlockingConnection.connect(address, key, settings=PATIENT))


@contextlib.contextmanager
def head_process(directory: Path) -> Iterator[tuple[Address, dict[str, int]]]:
    """A head in another process; what it refused is known after the block."""
    command = [sys.executable, "-m", "tests.pool.transport.echo_head", "tcp:127.0.0.1:0", str(directory)]
    refused: dict[str, int] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Address.parse(process.stdout.readline().strip()), refused
        told, _ = process.communicate(timeout=PATIENCE)
        refused |= json.loads(told)


@pytest.fixture
def states() -> list[AuthKeys]:
    return rotated()


def test_rotation_costs_no_call_and_no_connection(tmp_path: Path, states: list[AuthKeys]) -> None:
    here, there = MountedSecret(tmp_path / "here", states[0]), MountedSecret(tmp_path / "there", states[0])
    with head_process(there.directory) as (address, refused), dial(address, here.directory) as old:
        call(old, b"before")
        for state in states[1:]:
            # One pod sees a change before the other does, first this one, then that one.
            for mounted in (here, there) if state is not states[2] else (there, here):
                mounted.show(state)
                with dial(address, here.directory) as new:
                    call(new, b"new")
                call(old, b"old")
        stale = MountedSecret(tmp_path / "stale", states[0])
        with pytest.raises(HandshakeError) as stranger, dial(address, stale.directory):
            pass
        assert stranger.value.reason == "wrong_key"
        call(old, b"after")
    assert refused.pop("wrong_key") + refused.pop("truncated") == 1
    assert set(refused.values()) == {0}


def test_every_two_states_beside_each_other_understand_each_other(
    tmp_path: Path, states: list[AuthKeys]
) -> None:
    mounted = [MountedSecret(tmp_path / f"{number}", state).directory for number, state in enumerate(states)]
    for listens, dials in itertools.product(range(len(states)), repeat=2):
        with running_head(Address(host="127.0.0.1"), TransportKey.load(mounted[listens]), PATIENT) as head:
            if abs(listens - dials) <= 1:
                with dial(head.address, mounted[dials]) as connection:
                    call(connection, b"in")
            elif abs(listens - dials) == len(states) - 1:
                with pytest.raises(HandshakeError), dial(head.address, mounted[dials]):
                    pass


@pytest.mark.usefixtures("unpickling_hook")
def test_who_holds_the_old_key_or_speaks_plain_tcp_is_refused_before_anything_is_unpickled(
    tmp_path: Path, states: list[AuthKeys], unpickled: list[object]
) -> None:
    mounted = MountedSecret(tmp_path / "head", states[0])
    stale = TransportKey.load(MountedSecret(tmp_path / "stale", states[0]).directory)
    with running_head(Address(host="127.0.0.1"), TransportKey.load(mounted.directory), PATIENT) as head:
        for state in states[1:]:
            mounted.show(state)
        with pytest.raises(HandshakeError):
            BlockingConnection.connect(head.address, stale, settings=PATIENT)
        assert head.refusals.next() in ("wrong_key", "truncated")
        endpoint = head.address.host, head.address.port
        with socket.create_connection(endpoint, timeout=PATIENCE) as plain:
            plain.sendall(pickle.dumps(print) * 10)
            with contextlib.suppress(ConnectionError):
                while plain.recv(4096):
                    pass
        assert head.refusals.next() == "malformed"
        assert head.connections.empty()
    assert unpickled == []


def test_a_listener_goes_on_with_the_key_of_before_where_the_new_one_is_garbage(
    tmp_path: Path, states: list[AuthKeys], caplog: pytest.LogCaptureFixture
) -> None:
    mounted = MountedSecret(tmp_path / "head", states[0])
    worker = MountedSecret(tmp_path / "worker", states[0]).directory
    with running_head(Address(host="127.0.0.1"), TransportKey.load(mounted.directory), PATIENT) as head:
        for garbage in ({}, {"tls.crt": b"garbage", "tls.key": b"", "accepted.crt": b"\0"}):
            mounted.write(garbage)
            with dial(head.address, worker) as connection:
                call(connection, b"in")
        assert "going on with the key of before" in caplog.text
        mounted.show(states[3])
        with pytest.raises(HandshakeError), dial(head.address, worker):
            pass


def test_files_that_change_while_they_are_read_are_read_again(
    tmp_path: Path, states: list[AuthKeys], monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted = MountedSecret(tmp_path / "pod", states[0])
    key = TransportKey.load(mounted.directory)
    swaps = iter([states[3]])

    load = ssl.SSLContext.load_cert_chain

    def swap_and_load(context: ssl.SSLContext, certificate: Path, private_key: Path) -> None:
        if (state := next(swaps, None)) is not None:
            before = tmp_path / "before.crt"
            before.write_bytes(certificate.read_bytes())
            mounted.show(state)
            certificate = before
        load(context, certificate, private_key)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", swap_and_load)
    context = key.tls_context(Role.DIALLER)
    assert next(swaps, None) is None
    with running_head(Address(host="127.0.0.1"), key, PATIENT) as head, contextlib.ExitStack() as open_now:
        plain = socket.create_connection((head.address.host, head.address.port), timeout=PATIENCE)
        assert open_now.enter_context(context.wrap_socket(plain)).recv(1)
    mounted.write({})
    with pytest.raises(TransportKeyError):
        key.tls_context(Role.DIALLER)


def test_silent_strangers_of_one_address_leave_places_to_others(
    tmp_path: Path, states: list[AuthKeys]
) -> None:
    key = TransportKey.load(MountedSecret(tmp_path / "pod", states[0]).directory)
    settings = replace(PATIENT, max_handshakes=4, max_handshakes_per_source=2)
    with running_head(Address(host="127.0.0.1"), key, settings) as head, contextlib.ExitStack() as strangers:
        endpoint = head.address.host, head.address.port
        for _ in range(5):
            strangers.enter_context(socket.create_connection(endpoint, PATIENCE, ("127.0.0.2", 0)))
        assert [head.refusals.next() for _ in range(3)] == ["crowded"] * 3
        for _ in range(3):
            with contextlib.closing(
                BlockingConnection.connect(head.address, key, settings=PATIENT)
            ) as worker:
                call(worker, b"in")
        strangers.close()
        assert {head.refusals.next() for _ in range(2)} <= {"truncated", "malformed"}
        with socket.create_connection(endpoint, PATIENCE, ("127.0.0.2", 0)) as again:
            tls = key.tls_context(Role.DIALLER).wrap_socket(again)
            assert tls.recv(1), "its places are free again"
            tls.close()
