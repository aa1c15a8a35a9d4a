"""A system call may take less than it was given, in the middle of a part: nothing is lost or sent twice."""

from __future__ import annotations

import socket

import pytest

from fray.runtime.pool.transport.socket_streams import PlainStream


class SlowSocket(socket.socket):
    """Takes only some bytes with each call."""

    taken = b""
    most = 0

    def sendmsg(self, parts: list[memoryview]) -> int:  # type: ignore[override]
        took = b"".join(parts)[: self.most]
        self.taken += took
        return len(took)


@pytest.mark.parametrize("most", [1, 4, 5, 9, 100])
def test_what_a_call_did_not_take_is_given_to_the_next(most: int) -> None:
    with SlowSocket() as slow:
        slow.most = most
        PlainStream(slow).send([b"head", b"", bytearray(b"b"), memoryview(b"buffer")])
        assert slow.taken == b"headbbuffer"
