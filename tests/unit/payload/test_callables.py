"""A callable comes through as it was, and is refused with a sentence where that can't be."""

from __future__ import annotations

import functools
import hashlib
import pickle
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fray.errors import (
    CallArgumentsError,
    InvalidOptionError,
    PayloadChangedError,
    PayloadCodeError,
    PayloadPythonError,
    PayloadTooLargeError,
    PayloadUnreadableError,
    SerializationError,
)
from fray.payload.callables import (
    MAGIC,
    Payload,
    PayloadLimits,
    check_python,
    decode_callable,
    encode_callable,
)
from fray.payload.stamp import PYTHON, Stamp
from fray.payload.values.references import collector, report_reference
from tests.unit.payload import samples
from tests.unit.payload.samples import Scale, Unreadable, triple


def result_of(payload: Payload) -> Any:
    call = decode_callable(payload.data, sha256=payload.sha256)
    return call.function(*call.args, **call.kwargs)


def closure(value: Any) -> Callable[[], Any]:
    return lambda: value


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "expected"),
    [
        (triple, (2,), {}, 6),
        (closure([1, 2]), (), {}, [1, 2]),
        (lambda a, *, b: (a, b), (1,), {"b": 2}, (1, 2)),
        (functools.partial(triple, number=5), (), {}, 15),
        (functools.partial(functools.partial(max, 3), 4), (9,), {}, 9),
        (Scale(4).apply, (2,), {}, 8),
        (divmod, (7, 2), {}, (3, 1)),
        ("{}-{x}".format, (1,), {"x": 2}, "1-2"),
    ],
)
def test_what_can_be_called_comes_through_with_its_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], expected: Any
) -> None:
    payload = encode_callable(function, args, kwargs)
    assert result_of(payload) == expected
    assert (payload.size, payload.stamp) == (len(payload.data), Stamp.here())
    assert payload.sha256 == hashlib.sha256(payload.data).hexdigest()


def test_only_what_a_closure_captures_warns_for_its_size() -> None:
    large, limits = bytes(11_000_000), PayloadLimits(staging=1 << 30)
    with pytest.warns(UserWarning, match=r"captures 11\.0 MB.* -> large \(11\.0 MB\)") as warned:
        encode_callable(lambda: len(large), limits=limits)
    assert [warning.filename for warning in warned] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encode_callable(len, [large], limits=limits)


def test_functions_of_local_modules_need_no_module_where_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = encode_callable(triple, [2])
    monkeypatch.setitem(sys.modules, samples.__name__, None)
    assert result_of(sent) == 6


def test_a_missing_module_is_named_with_what_to_do() -> None:
    data = MAGIC + Stamp.here().to_json().encode() + b"\ncabsent.part\nrun\n."
    with pytest.raises(PayloadCodeError, match="No module named 'absent'") as caught:
        decode_callable(data, sha256=hashlib.sha256(data).hexdigest())
    assert caught.value.missing == "absent"
    assert caught.value.next_step.startswith("Add absent to the job's packages")


def test_a_name_that_a_module_lacks_is_named() -> None:
    data = MAGIC + Stamp.here().to_json().encode() + b"\ncjson\nno_such_name\n."
    with pytest.raises(PayloadCodeError, match="no_such_name"):
        decode_callable(data, sha256=hashlib.sha256(data).hexdigest())


@given(position=st.integers(min_value=0), flip=st.integers(1, 255))
@settings(max_examples=50)
def test_a_changed_payload_is_never_unpickled(position: int, flip: int) -> None:
    good = encode_callable(closure(1))
    changed = bytearray(good.data)
    changed[position % len(changed)] ^= flip
    with pytest.raises(PayloadChangedError, match="nothing of it was run"):
        decode_callable(bytes(changed), sha256=good.sha256)
    with pytest.raises(PayloadChangedError):
        decode_callable(good.data[: position % len(changed)], sha256=good.sha256)


@given(rest=st.binary(max_size=200))
@settings(max_examples=50)
def test_bytes_that_are_no_payload_are_refused_even_with_the_right_digest(rest: bytes) -> None:
    for data in (rest, MAGIC + rest, MAGIC + Stamp.here().to_json().encode() + b"\n\x00" + rest):
        with pytest.raises(PayloadUnreadableError):
            decode_callable(data, sha256=hashlib.sha256(data).hexdigest())


def test_the_payload_of_another_python_is_refused_before_it_is_unpickled() -> None:
    stamp = Stamp("3.99", "9", "9").to_json().encode()
    data = MAGIC + stamp + b"\ncos\nabort\n(tR."
    with pytest.raises(PayloadPythonError, match=r"pickled by Python 3\.99") as caught:
        decode_callable(data, sha256=hashlib.sha256(data).hexdigest())
    assert "Python 3.99" in caught.value.next_step
    check_python(PYTHON)


def test_what_does_not_come_back_is_told_with_the_versions_that_differ() -> None:
    payload = encode_callable(triple, [Unreadable()])
    with pytest.raises(PayloadUnreadableError, match="ValueError: invalid literal") as caught:
        result_of(payload)
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.versions == ""
    older = Stamp(PYTHON, "1.0", payload.stamp.fray).to_json().encode()
    data = MAGIC + older + b"\n" + payload.data.split(b"\n", 2)[2]
    with pytest.raises(PayloadUnreadableError, match=r"made by cloudpickle 1\.0, here is"):
        decode_callable(data, sha256=hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize(
    ("function", "args", "told"),
    [
        (triple, (), "missing a required argument: 'number'"),
        (triple, (1, 2), "too many positional arguments"),
        (functools.partial(triple, 1), (2,), "too many positional"),
        (Scale(1).apply, (), "missing a required argument: 'number'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_at_once(
    function: Callable[..., Any], args: tuple[Any, ...], told: str
) -> None:
    with pytest.raises(CallArgumentsError, match=told) as caught:
        encode_callable(function, args)
    assert isinstance(caught.value, TypeError)


def test_a_decorator_may_pass_on_other_arguments_than_it_takes() -> None:
    @functools.wraps(triple)
    def configured() -> int:
        return triple(4)

    assert result_of(encode_callable(configured)) == 12


@pytest.mark.parametrize("function", [3, samples.items])
def test_what_would_run_nothing_is_refused(function: Any) -> None:
    with pytest.raises(InvalidOptionError):
        encode_callable(function)


@pytest.mark.parametrize(
    ("function", "args", "path"),
    [
        (samples.guarded, (), "guarded -> LOCK"),
        (triple, ({"lock": samples.LOCK},), "args[0]['lock']"),
    ],
)
def test_the_part_that_cannot_be_pickled_is_named(
    function: Callable[..., Any], args: tuple[Any, ...], path: str
) -> None:
    with pytest.raises(SerializationError, match="lock") as caught:
        encode_callable(function, args)
    assert caught.value.path == path


class Handle:
    def __reduce__(self) -> tuple[Any, ...]:
        report_reference(7)
        return int, ()


def test_references_of_a_pool_are_refused_since_no_other_job_can_read_them() -> None:
    with pytest.raises(SerializationError, match="reference"):
        encode_callable(triple, [Handle()])
    assert collector.found is None


def test_a_payload_that_is_too_large_names_its_largest_parts() -> None:
    limits = PayloadLimits(secrets=10_000)
    model = {"weights": b"w" * 20_000, "bias": b"b" * 4000}
    with pytest.raises(PayloadTooLargeError, match=r"more than 0\.0 MB for Secrets") as caught:
        encode_callable(closure(model), limits=limits)
    (path, size), *_ = caught.value.parts
    assert path.endswith("<lambda> -> value['weights']")
    assert 20_000 < size < 20_100
    assert "staging=" in caught.value.next_step
    with pytest.raises(PayloadTooLargeError, match="staging URL") as staged:
        encode_callable(closure(model), limits=PayloadLimits(secrets=10_000, staging=20_000))
    assert "staging=" not in staged.value.next_step


def test_where_a_payload_goes_depends_on_its_size() -> None:
    limits = PayloadLimits(secrets=5_000, staging=50_000)
    assert limits.fits_secrets(encode_callable(closure(b""), limits=limits))
    assert not limits.fits_secrets(encode_callable(closure(b"x" * 20_000), limits=limits))


def test_errors_survive_pickling() -> None:
    for error in (
        PayloadChangedError("a", "b", 3),
        PayloadCodeError("f", "p", "m"),
        CallArgumentsError("f", "p"),
    ):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
