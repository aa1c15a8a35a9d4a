"""Frames: what is encoded comes back however the stream is cut, and what isn't a frame is refused by type."""

from __future__ import annotations

import pickle
import struct

import pytest

from fray.errors import (
    FrameError,
    FrameTooLargeError,
    MalformedFrameError,
    ReplayedFrameError,
    TruncatedFrameError,
)
from fray.runtime.pool.transport.frames import Frame, FrameDecoder, FrameLimits, encode_frame, next_sequence

LIMITS = FrameLimits(max_body=200_000, max_buffers=8, max_total=1_000_000)
Content = tuple[int, int, bytes, list[bytes]]
CONTENTS: list[Content] = [
    (1, 0, b"", []),
    (65535, 65535, b"x" * 100, []),
    (2, 1, b"body", [b"", b"abc", b"d" * 70_000]),
    (3, 0, b"y" * 150_000, []),
    (4, 0, b"", [b"", b""]),
    (5, 0, b"z" * 20_000, [b"e" * 100_000, b"", b"f"]),
    (6, 0, b"last", []),
]


def stream_of(contents: list[Content]) -> bytes:
    parts = []
    for sequence, (kind, flags, body, buffers) in enumerate(contents):
        parts += encode_frame(sequence, kind, body, buffers, flags=flags, limits=LIMITS)
    return b"".join(parts)


def contents_of(frames: list[Frame]) -> list[Content]:
    return [(frame.kind, frame.flags, frame.body, [bytes(b) for b in frame.buffers]) for frame in frames]


def header(magic: bytes = b"FRY\x01", sequence: int = 0, buffers: int = 0, body: int = 0) -> bytes:
    return struct.pack("!4sHHIIQ", magic, 1, 0, sequence, buffers, body)


@pytest.mark.parametrize("size", [1, 2, 7, 23, 24, 25, 1000, 65_536, 10**6])
def test_any_chunking_gives_the_same_frames(size: int) -> None:
    decoder = FrameDecoder(LIMITS)
    stream = stream_of(CONTENTS)
    frames = [f for start in range(0, len(stream), size) for f in decoder.feed(stream[start : start + size])]
    decoder.close()
    assert contents_of(frames) == CONTENTS
    assert [frame.sequence for frame in frames] == list(range(len(CONTENTS)))


@pytest.mark.parametrize("size", [1000, 65_536])
def test_bytes_written_to_the_target_are_the_same_as_bytes_fed(size: int) -> None:
    decoder = FrameDecoder(LIMITS)
    stream = memoryview(stream_of(CONTENTS))
    frames: list[Frame] = []
    written = 0
    while stream:
        target = decoder.target()
        if target is None:
            count = min(size, len(stream))
            frames += decoder.feed(stream[:count])
        else:
            count = min(size, len(stream), len(target))
            target[:count] = stream[:count]
            frames += decoder.filled(count)
            written += count
        stream = stream[count:]
    decoder.close()
    assert contents_of(frames) == CONTENTS
    assert written > 0


def test_a_large_buffer_is_received_into_the_memory_that_the_caller_gives() -> None:
    given: list[memoryview] = []

    def allocate(size: int) -> memoryview:
        given.append(memoryview(bytearray(size)))
        return given[-1]

    decoder = FrameDecoder(LIMITS, allocate=allocate)
    [frame] = decoder.feed(stream_of([(1, 0, b"b", [b"q" * 100_000])]))
    assert frame.buffers[0].obj is given[0].obj
    assert not frame.buffers[0].readonly
    assert bytes(given[0]) == b"q" * 100_000


def test_large_parts_are_not_copied_by_the_encoder() -> None:
    large = bytearray(100_000)
    parts = encode_frame(0, 1, b"b" * 50_000, [large], limits=LIMITS)
    assert isinstance(parts[-1], memoryview)
    assert parts[-1].obj is large


def test_a_buffer_of_any_format_and_shape_travels_as_its_bytes() -> None:
    numbers = memoryview(struct.pack("=6i", *range(6))).cast("i", (2, 3))
    [frame] = FrameDecoder(LIMITS).feed(b"".join(encode_frame(0, 1, b"", [numbers], limits=LIMITS)))
    assert bytes(frame.buffers[0]) == numbers.tobytes()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (header(magic=b"FRY\x02"), MalformedFrameError),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", MalformedFrameError),
        (header(sequence=1), MalformedFrameError),
        (header(sequence=2**32 - 1), ReplayedFrameError),
        (header(buffers=9), FrameTooLargeError),
        (header(body=200_001), FrameTooLargeError),
        (header(body=2**64 - 1), FrameTooLargeError),
        (header(buffers=1) + struct.pack("!Q", 2**64 - 1), FrameTooLargeError),
        (header(buffers=2, body=1) + struct.pack("!2Q", 500_000, 500_000), FrameTooLargeError),
    ],
)
def test_what_is_not_a_right_frame_is_refused_as_soon_as_that_shows(
    data: bytes, error: type[FrameError]
) -> None:
    decoder = FrameDecoder(LIMITS)

    def feed_all() -> None:
        for offset in range(len(data)):
            decoder.feed(data[offset : offset + 1])

    with pytest.raises(error) as refused:
        feed_all()
    with pytest.raises(error) as again:
        decoder.feed(stream_of(CONTENTS))
    assert again.value is refused.value
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def test_limits_hold_exactly_up_to_themselves() -> None:
    limits = FrameLimits(max_body=100, max_buffers=2, max_total=150)
    parts = encode_frame(0, 1, b"b" * 100, [b"c" * 25, b"d" * 25], limits=limits)
    [frame] = FrameDecoder(limits).feed(b"".join(parts))
    assert len(frame.body) == 100


@pytest.mark.parametrize(
    ("body", "buffers"), [(b"b" * 101, []), (b"", [b""] * 3), (b"b" * 100, [b"c" * 51]), (b"", [b"c" * 151])]
)
def test_the_sender_is_told_of_a_frame_that_would_be_refused(body: bytes, buffers: list[bytes]) -> None:
    limits = FrameLimits(max_body=100, max_buffers=2, max_total=150)
    with pytest.raises(FrameTooLargeError):
        encode_frame(0, 1, body, buffers, limits=limits)


def test_an_announced_body_above_the_total_is_refused() -> None:
    limits = FrameLimits(max_body=1000, max_total=100)
    for data in (header(body=101), header(body=101) + bytes(101)):
        with pytest.raises(FrameTooLargeError):
            FrameDecoder(limits).feed(data)


def test_a_frame_sent_again_is_told_from_a_gap() -> None:
    stream = stream_of([(1, 0, b"first", [])])
    decoder = FrameDecoder(LIMITS)
    decoder.feed(stream)
    with pytest.raises(ReplayedFrameError) as replayed:
        decoder.feed(stream)
    assert replayed.value.reason == "replayed"
    with pytest.raises(MalformedFrameError) as gap:
        FrameDecoder(LIMITS).feed(header(sequence=1))
    assert gap.value.reason == "malformed"


def test_the_sequence_wraps() -> None:
    assert next_sequence(0) == 1
    assert next_sequence(2**32 - 1) == 0


def test_a_stream_may_end_between_frames_only() -> None:
    whole = stream_of([(1, 0, b"b" * 10, [b"c" * 5]), (1, 0, b"d" * 10, [b"e" * 100_000])])
    ends = {0, len(stream_of([(1, 0, b"b" * 10, [b"c" * 5])])), len(whole)}
    for end in [*range(200), 50_000, len(whole) - 1, len(whole)]:
        decoder = FrameDecoder(LIMITS)
        decoder.feed(whole[:end])
        if end in ends:
            decoder.close()
            continue
        with pytest.raises(TruncatedFrameError):
            decoder.close()


@pytest.mark.parametrize("count", [-1, 100_001])
def test_more_than_the_target_holds_cannot_have_been_filled(count: int) -> None:
    decoder = FrameDecoder(LIMITS)
    decoder.feed(stream_of([(1, 0, b"", [b"q" * 100_000])])[:32])
    with pytest.raises(ValueError, match="target"):
        decoder.filled(count)
