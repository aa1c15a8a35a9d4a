"""What a callable returned or raised comes back, or the text of it; and nothing is read that isn't meant."""

from __future__ import annotations

import hashlib
import json
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fray.errors import OutcomeUnreadableError, RemoteTracebackError, UnpicklableExceptionError
from fray.payload.outcome import (
    MAGIC,
    OUTCOME_LIMIT,
    EncodedOutcome,
    Outcome,
    decode_outcome,
    encode_exception,
    encode_value,
    outcome_name,
)
from fray.payload.values.references import report_reference
from tests.unit.payload.raising import raised
from tests.unit.payload.samples import Unreadable


class BoomError(Exception):
    def __init__(self, text: str, *, code: int) -> None:
        super().__init__(text)
        self.code = code


def odd_error() -> Exception:
    """Of a class that can't be pickled in any way, and without a text."""

    class OddError(Exception):
        lock = threading.Lock()

        def __str__(self) -> str:
            raise ValueError("no text")

    return OddError()


def sent(error: BaseException, **options: Any) -> EncodedOutcome:
    return encode_exception(
        raised(error), function="main", process="rank 3 of job train, attempt 2", **options
    )


def read(encoded: EncodedOutcome) -> Outcome:
    return decode_outcome(encoded.data, sha256=encoded.sha256)


@given(st.recursive(st.none() | st.integers() | st.text() | st.binary(), st.lists))
@settings(max_examples=50)
def test_values_come_back(value: object) -> None:
    encoded = encode_value(value)
    assert encoded.problem == ""
    assert read(encoded).result() == value


def test_an_exception_comes_back_with_its_type_its_data_and_its_remote_traceback() -> None:
    with pytest.raises(BoomError, match="no way") as caught:
        read(sent(BoomError("no way", code=7))).result()
    assert caught.value.code == 7
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteTracebackError)
    assert cause.worker == "rank 3 of job train, attempt 2"
    assert "in throw" in cause.traceback
    assert cause.traceback.endswith("BoomError: no way\n")


@pytest.mark.parametrize("error", [odd_error(), ValueError("x" * 3_000_000), ValueError("\ud83d" * 100_000)])
def test_an_exception_that_cannot_come_back_is_text_of_bounded_size(error: Exception) -> None:
    encoded = sent(error, limit=200_000)
    assert len(encoded.data) <= OUTCOME_LIMIT
    outcome = read(encoded)
    assert isinstance(outcome.error, UnpicklableExceptionError | ValueError)
    assert type(error).__qualname__ in repr(type(outcome.error)) + str(outcome.error)
    assert isinstance(outcome.error.__cause__, RemoteTracebackError)


def test_an_exception_with_too_many_notes_is_text() -> None:
    error = ValueError("noted")
    for _ in range(40):
        error.add_note("n" * 60_000)
    encoded = sent(error)
    assert len(encoded.data) < OUTCOME_LIMIT
    assert "fit" in encoded.problem
    with pytest.raises(UnpicklableExceptionError, match="noted") as caught:
        read(encoded).result()
    assert caught.value.error_type == "ValueError"


class Handle:
    def __reduce__(self) -> tuple[Any, ...]:
        report_reference(3)
        return int, ()


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"a": [threading.Lock()]}, r"result\['a'\]\[0\] can't be pickled: it is a _thread.lock"),
        (b"x" * OUTCOME_LIMIT, "write it to storage instead"),
        (Handle(), "reference"),
    ],
)
def test_a_value_that_cannot_come_back_says_why(value: object, told: str) -> None:
    encoded = encode_value(value)
    assert len(encoded.data) < 2000
    with pytest.raises(OutcomeUnreadableError, match=told):
        read(encoded).result()


def test_the_largest_value_that_fits_comes_back() -> None:
    value = b"x" * (OUTCOME_LIMIT - 500)
    assert read(encode_value(value)).result() == value


@pytest.mark.parametrize("value", [Unreadable()])
def test_a_value_whose_own_code_fails_is_told(value: object) -> None:
    outcome = read(encode_value(value))
    assert outcome.problem.startswith("ValueError: invalid literal")


def with_header(data: bytes, **changed: str) -> EncodedOutcome:
    line, _, body = data.removeprefix(MAGIC).partition(b"\n")
    return EncodedOutcome(MAGIC + json.dumps({**json.loads(line), **changed}).encode() + b"\n" + body)


def test_the_outcome_of_another_python_is_never_unpickled() -> None:
    outcome = read(with_header(encode_value(Exploding()).data, python="3.99"))
    assert "made by python 3.99" in outcome.problem
    assert isinstance(
        read(with_header(sent(BoomError("x", code=1)).data, python="3.99")).error, UnpicklableExceptionError
    )


class Exploding:
    def __reduce__(self) -> tuple[Any, ...]:
        return exploded.append, (1,)


exploded: list[int] = []


@given(position=st.integers(min_value=0), flip=st.integers(1, 255))
@settings(max_examples=50)
def test_a_changed_outcome_is_never_unpickled(position: int, flip: int) -> None:
    encoded = encode_value(Exploding())
    changed = bytearray(encoded.data)
    changed[position % len(changed)] ^= flip
    with pytest.raises(OutcomeUnreadableError, match="the job's status says"):
        decode_outcome(bytes(changed), sha256=encoded.sha256)
    with pytest.raises(OutcomeUnreadableError, match="the job's status says"):
        decode_outcome(encoded.data[: position % len(changed)], sha256=encoded.sha256)
    assert exploded == []


@given(st.binary(min_size=1, max_size=300))
@settings(max_examples=50)
def test_bytes_that_are_no_outcome_are_refused_even_with_the_right_digest(rest: bytes) -> None:
    stamp = b'{"python": "3.11", "cloudpickle": "3", "fray": "1", "kind": "other"}\n'
    value = encode_value(1).data.removeprefix(MAGIC)
    for data in (rest, value, MAGIC + rest, MAGIC + stamp + rest, MAGIC + b"[" * 100_000, stamp + rest):
        with pytest.raises(OutcomeUnreadableError, match="isn't an outcome"):
            decode_outcome(data, sha256=hashlib.sha256(data).hexdigest())


@given(st.binary(max_size=300))
@settings(max_examples=50)
def test_a_pickle_of_anything_else_is_still_told_as_text(rest: bytes) -> None:
    header = sent(BoomError("no way", code=7)).data.removeprefix(MAGIC).partition(b"\n")[0]
    data = MAGIC + header + b"\n\x00" + rest
    outcome = decode_outcome(data, sha256=hashlib.sha256(data).hexdigest())
    assert isinstance(outcome.error, UnpicklableExceptionError)
    assert outcome.error.error_text == "no way"


def test_each_process_of_each_attempt_has_an_outcome_of_its_own() -> None:
    names = {outcome_name(job_uid="u", attempt=attempt, rank=rank) for attempt in (1, 2) for rank in (0, 11)}
    assert len(names) == 4
    uid = "0b1d3c1e-6d0c-4b6e-9d43-31a4d9a6b0aa"
    assert len(outcome_name(job_uid=uid, attempt=2**31, rank=221_183)) <= 253
