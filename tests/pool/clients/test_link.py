"""A client's link to the head, before a head that says what the test wants."""

from __future__ import annotations

from pathlib import Path

import pytest

from fray.errors import PoolClosedError
from fray.runtime.pool.client.backpressure import SubmitLimit
from fray.runtime.pool.client.link import HeadLink
from fray.runtime.pool.message_codec import MESSAGES, encode_messages
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
