"""The decoder before hostile bytes: right frames or a typed error, in bounded memory."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from fray.errors import FrameError
from fray.runtime.pool.transport.frames import Frame, FrameDecoder, FrameLimits, encode_frame

LIMITS = FrameLimits(max_body=100_000, max_buffers=16, max_total=200_000)
contents = st.lists(
    st.tuples(
        st.integers(0, 65535),
        st.integers(0, 65535),
        st.one_of(st.binary(max_size=300), st.integers(0, 90_000).map(lambda size: b"b" * size)),
        st.lists(
            st.one_of(st.binary(max_size=50), st.integers(0, 50_000).map(lambda size: b"u" * size)),
            max_size=2,
        ),
    ),
    max_size=6,
)


def encoded(items: list[tuple[int, int, bytes, list[bytes]]]) -> bytes:
    parts = []
    for sequence, (kind, flags, body, buffers) in enumerate(items):
        parts += encode_frame(sequence, kind, body, buffers, flags=flags, limits=LIMITS)
    return b"".join(parts)


def plain(frame: Frame) -> tuple[int, int, int, bytes, tuple[bytes, ...]]:
    return frame.sequence, frame.kind, frame.flags, frame.body, tuple(map(bytes, frame.buffers))


def cut(data: st.DataObject, stream: bytes) -> Iterator[bytes]:
    """Cut the stream in up to 20 places that hypothesis chooses."""
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=20).map(sorted))
    for start, end in zip([0, *places], [*places, len(stream)], strict=True):
        yield stream[start:end]


def receive(decoder: FrameDecoder, chunks: Iterator[bytes], *, use_target: bool) -> Iterator[Frame]:
    for chunk in chunks:
        rest = memoryview(chunk)
        while rest:
            target = decoder.target() if use_target else None
            if target is None:
                count = len(rest)
                yield from decoder.feed(rest)
            else:
                count = min(len(rest), len(target))
                target[:count] = rest[:count]
                yield from decoder.filled(count)
            rest = rest[count:]


@given(contents, st.data(), st.booleans())
def test_right_frames_come_back_however_they_are_cut(
    items: list[tuple[int, int, bytes, list[bytes]]], data: st.DataObject, use_target: bool
) -> None:
    decoder = FrameDecoder(LIMITS)
    frames = list(receive(decoder, cut(data, encoded(items)), use_target=use_target))
    decoder.close()
    wanted = [
        (sequence, kind, flags, body, tuple(buffers))
        for sequence, (kind, flags, body, buffers) in enumerate(items)
    ]
    assert [plain(frame) for frame in frames] == wanted


@given(contents.filter(bool), st.data(), st.booleans())
def test_a_changed_stream_gives_frames_of_right_numbers_or_a_typed_error(
    items: list[tuple[int, int, bytes, list[bytes]]], data: st.DataObject, use_target: bool
) -> None:
    stream = bytearray(encoded(items))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(stream) - 1))
        change = data.draw(st.sampled_from(["flip", "delete", "insert", "repeat"]))
        if change == "flip":
            stream[place] ^= data.draw(st.integers(1, 255))
        elif change == "delete" and len(stream) > 1:
            del stream[place : min(place + data.draw(st.integers(1, 40)), place + len(stream) - 1)]
        elif change == "insert":
            stream[place:place] = data.draw(st.binary(min_size=1, max_size=40))
        else:
            stream[place:place] = stream[place : place + 100]
    decoder = FrameDecoder(LIMITS)
    frames: list[Frame] = []
    with contextlib.suppress(FrameError):
        frames.extend(receive(decoder, cut(data, bytes(stream)), use_target=use_target))
        decoder.close()
    assert [frame.sequence for frame in frames] == list(range(len(frames)))
    for frame in frames:
        assert len(frame.body) <= LIMITS.max_body
        assert len(frame.buffers) <= LIMITS.max_buffers
        assert len(frame.body) + sum(map(len, frame.buffers)) <= LIMITS.max_total


@given(st.binary(max_size=500), st.data())
def test_random_bytes_are_refused_or_incomplete(noise: bytes, data: st.DataObject) -> None:
    decoder = FrameDecoder(LIMITS)
    try:
        frames = list(receive(decoder, cut(data, noise), use_target=True))
        decoder.close()
    except FrameError:
        return
    # Only what begins with a right header can be complete.
    assert bool(frames) == noise.startswith(b"FRY\x01")


@given(st.integers(0, LIMITS.max_body), st.lists(st.integers(0, LIMITS.max_total), max_size=16))
def test_announcing_much_allocates_no_more_than_the_limits(body: int, sizes: list[int]) -> None:
    prefix = b"".join(encode_frame(0, 1, b"", [b""] * len(sizes), limits=LIMITS))[:16]
    announced = prefix + body.to_bytes(8, "big") + b"".join(size.to_bytes(8, "big") for size in sizes)
    decoder = FrameDecoder(LIMITS)
    reasons: list[str] = []
    tracemalloc.start()
    try:
        decoder.feed(announced)
        _, peak = tracemalloc.get_traced_memory()
    except FrameError as error:
        _, peak = tracemalloc.get_traced_memory()
        reasons.append(error.reason)
    finally:
        tracemalloc.stop()
    assert reasons == (["oversized"] if body + sum(sizes) > LIMITS.max_total else [])
    assert peak <= LIMITS.max_total + 64 * 1024
