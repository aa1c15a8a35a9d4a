"""How a connection deals with the event loop, before a transport that takes what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from fray.errors import ConnectionLostError, TransportError
from fray.runtime.pool.transport.connection import Connection
from fray.runtime.pool.transport.frames import FrameDecoder, FrameLimits
from fray.runtime.pool.transport.handshake import Role
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.transport.settings import TransportSettings

KEY = TransportKey.generate()
SETTINGS = TransportSettings(
    high_water=1_000_000, low_water=300_000, most_unread=5_000_000, stalled_seconds=3600
)


class RecordingTransport(asyncio.Transport):
    """Keeps what is written, and is full after each write if told so."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self.writes: list[bytes] = []
        self.fills_up = False
        self.closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Whatever they are."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
        if self.fills_up:
            self.connection.pause_writing()

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True
        self.connection.connection_lost(None)


class Owner:
    def began(self, connection: Connection) -> None:
        connection.on_frame = lambda _: None

    def ended(self, connection: Connection, reason: Exception) -> None:
        """Nothing is kept."""


def unproven() -> tuple[Connection, RecordingTransport]:
    """Return a connection that has sent its challenge."""
    connection = Connection(
        KEY.handshake(Role.LISTENER),
        Owner(),
        peer="test",
        settings=SETTINGS,
        read_buffer=memoryview(bytearray(1000)),
    )
    transport = RecordingTransport(connection)
    connection.connection_made(transport)
    return connection, transport


def prove(connection: Connection, transport: RecordingTransport) -> None:
    proof = KEY.handshake(Role.DIALLER).feed(transport.writes[0])
    connection.get_buffer(-1)[: len(proof)] = proof
    connection.buffer_updated(len(proof))


def run(test: Callable[[Connection, RecordingTransport], Awaitable[None]]) -> None:
    """Run `test` with an authenticated connection whose writes of frames begin at index 0."""

    async def main() -> None:
        connection, transport = unproven()
        prove(connection, transport)
        transport.writes.clear()
        await test(connection, transport)

    asyncio.run(main())


def test_frames_of_one_turn_leave_in_one_write() -> None:
    async def test(connection: Connection, transport: RecordingTransport) -> None:
        for number in range(100):
            connection.send(number, b"body")
        assert transport.writes == []
        await asyncio.sleep(0)
        assert len(transport.writes) == 1
        assert [f.kind for f in FrameDecoder(FrameLimits()).feed(transport.writes[0])] == list(range(100))

    run(test)


def test_a_frame_leaves_at_once_if_it_is_to_and_none_is_before_it() -> None:
    async def test(connection: Connection, transport: RecordingTransport) -> None:
        connection.send(0, b"body", at_once=True)
        assert len(transport.writes) == 1
        connection.send(1, b"body")
        connection.send(2, b"body", at_once=True)
        assert len(transport.writes) == 1
        await asyncio.sleep(0)
        assert len(transport.writes) == 2
        frames = FrameDecoder(FrameLimits()).feed(b"".join(transport.writes))
        assert [frame.kind for frame in frames] == [0, 1, 2]
        connection.pause_writing()
        connection.send(3, b"body", at_once=True)
        await asyncio.sleep(0)
        assert len(transport.writes) == 2

    run(test)


def test_large_frames_leave_at_once_in_bounded_pieces() -> None:
    async def test(connection: Connection, transport: RecordingTransport) -> None:
        connection.send(1, b"", [bytes(3_000_000)])
        assert sum(map(len, transport.writes)) > 3_000_000
        assert max(map(len, transport.writes)) <= 256 * 1024

    run(test)


def test_a_full_transport_is_given_nothing_until_it_has_room() -> None:
    async def test(connection: Connection, transport: RecordingTransport) -> None:
        pauses: list[bool] = []
        connection.on_pause = pauses.append
        transport.fills_up = True
        connection.send(1, b"", [bytes(2_000_000)])
        drained = asyncio.create_task(connection.drain())
        await asyncio.sleep(0)
        assert len(transport.writes) == 1
        assert pauses == [True]
        connection.send(2, b"")
        while len(transport.writes) < 6:
            connection.resume_writing()
            assert pauses == [True]
        assert not drained.done()
        transport.fills_up = False
        connection.resume_writing()
        assert pauses == [True, False]
        await drained
        frames = FrameDecoder(FrameLimits()).feed(b"".join(transport.writes))
        assert [frame.kind for frame in frames] == [1, 2]

    run(test)


def test_a_peer_that_reads_nothing_is_cut_off_before_memory_is_full() -> None:
    """Else a process that somebody has stopped takes the head's memory with it."""

    async def test(connection: Connection, transport: RecordingTransport) -> None:
        lost: list[TransportError] = []
        connection.on_lost = lost.append
        connection._settings = replace(SETTINGS, stalled_seconds=0.01)
        transport.fills_up = True
        for _ in range(20):
            connection.send(1, b"", [bytes(1_000_000)])
        await asyncio.wait_for(connection.lost(), 30)
        assert transport.closed
        assert connection._queued == 0
        [reason] = lost
        assert "has read nothing" in str(reason)

    run(test)


def test_a_peer_that_reads_slowly_gets_everything() -> None:
    async def test(connection: Connection, transport: RecordingTransport) -> None:
        transport.fills_up = True
        for _ in range(40):
            connection.send(1, b"", [bytes(250_000)])
        while connection._queued:
            written = connection._written
            connection.resume_writing()
            connection._end_if_stalled(written)
        frames = FrameDecoder(FrameLimits()).feed(b"".join(transport.writes))
        assert len(frames) == 40
        assert not transport.closed

    run(test)


def test_nobody_is_cut_off_while_little_waits() -> None:
    async def test(connection: Connection, transport: RecordingTransport) -> None:
        transport.fills_up = True
        connection.send(1, b"", [bytes(4_000_000)])
        assert connection._stall is None
        connection.send(1, b"", [bytes(4_000_000)])
        assert connection._stall is not None
        transport.fills_up = False
        connection.resume_writing()
        connection._end_if_stalled(0)
        assert connection._stall is None
        assert not transport.closed

    run(test)


def test_close_waits_for_what_is_queued() -> None:
    async def test(connection: Connection, transport: RecordingTransport) -> None:
        transport.fills_up = True
        connection.send(1, b"", [bytes(400_000)])
        connection.close()
        assert not transport.closed
        transport.fills_up = False
        connection.resume_writing()
        assert not transport.closed
        await asyncio.sleep(0)
        assert transport.closed
        [frame] = FrameDecoder(FrameLimits()).feed(b"".join(transport.writes))
        assert len(frame.buffers[0]) == 400_000

    run(test)


def test_who_waits_for_room_hears_that_the_connection_is_lost() -> None:
    async def test(connection: Connection, transport: RecordingTransport) -> None:
        transport.fills_up = True
        connection.send(1, b"", [bytes(2_000_000)])
        drained = asyncio.create_task(connection.drain())
        await asyncio.sleep(0)
        connection.connection_lost(None)
        with pytest.raises(ConnectionLostError):
            await drained

    run(test)


def test_a_proof_after_the_deadline_comes_too_late() -> None:
    async def main() -> None:
        connection, transport = unproven()
        # What the deadline does to the task that waits for the proof.
        connection.authenticated.cancel()
        prove(connection, transport)
        assert not connection.began
        assert len(transport.writes) == 1

    asyncio.run(main())
