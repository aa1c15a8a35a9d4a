"""A client's link to the head, before a head that says what the test wants."""

from __future__ import annotations

import asyncio
import pickle
from contextlib import suppress
from pathlib import Path

import pytest

from fray.errors import PoolClosedError
from fray.runtime.pool.client.backpressure import SubmitLimit
from fray.runtime.pool.client.link import HeadLink
from fray.runtime.pool.message_codec import MESSAGES, OVER, encode_messages
from fray.runtime.pool.messages.greetings import ClientHello, ClientWelcome, PoolFailed
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.transport.endpoints import Connection
from fray.runtime.pool.transport.frames import Frame
from fray.runtime.pool.transport.keys import TransportKey
from tests.pool.transport.heads import PATIENCE, running_head


def test_what_comes_together_with_the_welcome_is_heard(tmp_path: Path) -> None:
    key = TransportKey.generate()

    def welcome(connection: Connection, frame: Frame) -> None:
        if frame.sequence == 1:  # the hello, after the versions
            for message in (ClientWelcome(1, 1, "token", ""), PoolFailed("no room")):
                connection.send(MESSAGES, encode_messages([message]))

    with running_head(Address(path=str(tmp_path / "pool" / "head.sock")), key) as head:
        head.receive = welcome
        connection = BlockingConnection.connect(head.address, key)
        link = HeadLink(connection, ClientHello("client", (), 0, 0), SubmitLimit())
        with pytest.raises(PoolClosedError, match="no room"):
            link.ask("anything", PATIENCE)
        link.close()


def test_a_thread_that_hears_by_itself_that_all_is_over_ends_all_waiting(tmp_path: Path) -> None:
    key = TransportKey.generate()

    def say_over(connection: Connection, frame: Frame) -> None:
        if frame.sequence == 1:
            connection.send(MESSAGES, encode_messages([ClientWelcome(1, 1, "token", "")]))
        if frame.sequence == 2:  # what the thread waits for; a little later it has the turn to hear
            asyncio.get_running_loop().call_later(0.1, connection.send, OVER, b"it was preempted")

    with running_head(Address(path=str(tmp_path / "pool" / "head.sock")), key) as head:
        head.receive = say_over
        connection = BlockingConnection.connect(head.address, key)
        client = HeadLink(connection, ClientHello("client", (), 0, 0), SubmitLimit()).client
        assert client.wait([client.refer(2)], 1, PATIENCE)
        assert client.end is not None
        assert "it was preempted" in client.end.name


def test_what_a_thread_cannot_read_ends_the_waiting_of_others(tmp_path: Path) -> None:
    key = TransportKey.generate()

    def send_nonsense(connection: Connection, frame: Frame) -> None:
        if frame.sequence == 1:
            connection.send(MESSAGES, encode_messages([ClientWelcome(1, 1, "token", "")]))
        if frame.sequence == 2:
            asyncio.get_running_loop().call_later(0.1, connection.send, MESSAGES, b"nonsense")

    with running_head(Address(path=str(tmp_path / "pool" / "head.sock")), key) as head:
        head.receive = send_nonsense
        connection = BlockingConnection.connect(head.address, key)
        client = HeadLink(connection, ClientHello("client", (), 0, 0), SubmitLimit()).client
        with suppress(pickle.UnpicklingError):  # of this thread, if it has the turn
            client.wait([client.refer(2)], 1, PATIENCE)
        assert client.wait([client.refer(3)], 1, PATIENCE)
        assert client.end is not None
        assert "failed" in client.end.name
