"""Values come back as they were, without copies where they are large, or what is missing is told."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fray.errors import CodeNotFoundError, MalformedPayloadError
from fray.payload.values.pickling import OUT_OF_BAND
from fray.runtime.pool.objects.values import decode, encode
from tests.unit.pool.objects.samples import Point, plain


@given(plain)
def test_any_value_comes_back(value: object) -> None:
    encoded = encode(value)
    data = encoded.to_bytes()
    assert len(data) == encoded.size
    assert decode(data) == value
    assert decode(memoryview(bytearray(data))) == value


@given(st.lists(st.integers(0, 20_000), max_size=6))
def test_large_buffers_stay_aside_aligned_and_read_only(lengths: list[int]) -> None:
    arrays = [np.arange(length, dtype=np.uint8) for length in lengths]
    encoded = encode(arrays)
    assert len(encoded.buffers) == sum(length >= OUT_OF_BAND for length in lengths)
    data = np.frombuffer(bytearray(b"".join(encoded.parts())), dtype=np.uint8)
    assert data.nbytes == encoded.size
    back = decode(memoryview(data))
    for array, read_back in zip(arrays, back, strict=True):
        assert np.array_equal(array, read_back)
        if array.nbytes >= OUT_OF_BAND:
            assert np.shares_memory(read_back, data)
            assert not read_back.flags.writeable
            assert (read_back.ctypes.data - data.ctypes.data) % 64 == 0


def test_encoding_copies_no_large_buffer() -> None:
    array = np.zeros(100_000)
    encoded = encode({"array": array})
    assert np.shares_memory(np.frombuffer(encoded.buffers[0]), array)
    assert len(encoded.body) < 1000


@pytest.mark.parametrize("array", [np.zeros((200, 200)).T, np.zeros((400, 400))[::2, ::3], np.zeros((0, 5))])
def test_arrays_of_any_layout(array: np.ndarray) -> None:
    back = decode(encode(array).to_bytes())
    assert back.shape == array.shape
    assert np.array_equal(back, array)


@pytest.mark.parametrize("value", [b"x" * 1000, np.zeros(5000), ("a", 1), Point(1)])
def test_the_size_is_known_before_the_bytes_are_made(value: object) -> None:
    encoded = encode(value)
    assert encoded.size == len(encoded.to_bytes())


@pytest.mark.parametrize("value", [5, Point(1), np.zeros(5000), [np.zeros(5000), np.zeros(6000)]])
def test_what_is_cut_or_foreign_is_refused(value: object) -> None:
    data = encode(value).to_bytes()
    for end in {0, 3, 15, 16, len(data) // 2, len(data) - 1}:
        with pytest.raises((MalformedPayloadError, pickle.UnpicklingError, EOFError)):
            decode(data[:end])
    with pytest.raises(MalformedPayloadError):
        decode(b"\x80" + data[1:])


def test_a_missing_module_or_name_is_told() -> None:
    data = encode(Point(1)).to_bytes()
    with pytest.raises(CodeNotFoundError, match="No module named 'tests_gone"):
        decode(
            data.replace(
                Point.__module__.encode(), ("tests_gone" + "_" * 100)[: len(Point.__module__)].encode()
            )
        )
    with pytest.raises(CodeNotFoundError, match="Poinx"):
        decode(data.replace(b"Point", b"Poinx"))


class Careless:
    def __setstate__(self, state: object) -> None:
        raise AttributeError("of its own")

    def __getstate__(self) -> object:
        return {"a": 1}


def test_an_attribute_error_of_the_value_itself_stays_what_it_is() -> None:
    with pytest.raises(AttributeError, match="of its own") as raised:
        decode(encode(Careless()).to_bytes())
    assert not isinstance(raised.value, CodeNotFoundError)
