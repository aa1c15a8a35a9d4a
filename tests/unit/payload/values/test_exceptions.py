"""Exceptions reach the caller with their type, whatever their classes do; what can't be kept becomes text."""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass

import pytest

from fray.errors import RemoteTracebackError, TaskTimeoutError, UnpicklableExceptionError
from fray.payload.values.exceptions import MAX_DEPTH, decode_error, encode_error
from fray.payload.values.references import report_reference
from fray.payload.values.texts import TEXT_LIMIT
from tests.unit.payload.raising import raised, throw


def sent(error: BaseException) -> BaseException:
    data = encode_error(raised(error), task="job", worker="worker 3")
    assert len(data) < 600_000
    return decode_error(data)


class OtherArgumentsError(Exception):
    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"code {code}")
        self.code = code
        self.detail = detail


class SameCountOfArgumentsError(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(f"no such name: {name}")
        self.name = name


class OwnOSError(OSError):
    def __init__(self, path: str) -> None:
        super().__init__(2, "not there", path)
        self.hint = "look elsewhere"


class ReduceRaisesError(ValueError):
    def __reduce__(self) -> tuple[object, ...]:
        raise RuntimeError("never")


class StrRaisesError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("never")


class NewWantsMoreError(Exception):
    def __new__(cls, one: int, two: int) -> NewWantsMoreError:
        return super().__new__(cls, one + two)

    def __init__(self, one: int, two: int) -> None:
        super().__init__(one + two)


@dataclass(frozen=True)
class FrozenError(Exception):
    why: str


class StateRaisesError(Exception):
    def __setstate__(self, state: object) -> None:
        raise RuntimeError("never")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x", 1),
        KeyError("k"),
        OSError(13, "no", "/etc/x"),
        OSError(5, "no", "/a", None, "/b"),
        ImportError("no", name="n", path="p"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        KeyboardInterrupt(),
        SystemExit(3),
        StopIteration(5),
        TaskTimeoutError("t", 1.5, ("a", "b")),
        SameCountOfArgumentsError("bob"),
        OtherArgumentsError(7, detail="much"),
        OwnOSError("/gone"),
        ReduceRaisesError("text"),
        FrozenError("because"),
        ExceptionGroup("many", [ValueError(1), OtherArgumentsError(1, detail="d")]),
        BaseExceptionGroup("many", [KeyboardInterrupt(), ExceptionGroup("few", [OSError(2, "no")])]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_type_arguments_attributes_and_text_are_kept(error: BaseException) -> None:
    if not isinstance(error, FrozenError):
        error.add_note("a note")
    back = sent(error)
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert repr(back.args) == repr(error.args)
    assert repr(vars(back)) == repr(vars(error))
    assert isinstance(back.__cause__, RemoteTracebackError)
    assert "in raised" in back.__cause__.traceback
    assert back.__cause__.worker == "worker 3"


def test_what_built_in_bases_read_from_their_arguments_is_kept() -> None:
    back = sent(OwnOSError("/gone"))
    assert isinstance(back, OwnOSError)
    assert (back.errno, back.filename, back.hint) == (2, "/gone", "look elsewhere")
    leave = sent(SystemExit(3))
    assert isinstance(leave, SystemExit)
    assert leave.code == 3


class OwnImportError(ImportError):
    def __init__(self, module: str, *, tried: int) -> None:
        super().__init__(f"no {module}", name=module, path="/p")
        self.tried = tried


def test_members_of_built_in_bases_are_kept() -> None:
    back = sent(OwnImportError("m", tried=3))
    assert isinstance(back, OwnImportError)
    assert (back.name, back.path, back.tried, str(back)) == ("m", "/p", 3, "no m")
    assert "name" not in vars(back)


def test_groups_keep_their_members() -> None:
    error = ExceptionGroup(
        "many", [OtherArgumentsError(1, detail="d"), NewWantsMoreError(1, 2), StrRaisesError()]
    )
    back = sent(error)
    assert isinstance(back, ExceptionGroup)
    assert [type(member) for member in back.exceptions] == [
        OtherArgumentsError,
        UnpicklableExceptionError,
        StrRaisesError,
    ]
    assert vars(back.exceptions[0]) == {"code": 1, "detail": "d"}


def test_parts_that_cannot_be_pickled_become_text() -> None:
    error = ValueError("text", threading.Lock())
    error.lock = threading.Lock()  # type: ignore[attr-defined]
    error.kept = [1, 2]  # type: ignore[attr-defined]
    back = sent(error)
    assert type(back) is ValueError
    assert back.args[0] == "text"
    assert "lock object" in back.args[1]
    assert "lock object" in vars(back)["lock"]
    assert vars(back)["kept"] == [1, 2]


@pytest.mark.parametrize("error", [NewWantsMoreError(1, 2), StateRaisesError("x")])
def test_a_type_that_cannot_be_made_again_becomes_text(error: BaseException) -> None:
    if isinstance(error, StateRaisesError):
        error.note = 1  # type: ignore[attr-defined]
        assert type(sent(error)) is StateRaisesError
        return
    back = sent(error)
    assert isinstance(back, UnpicklableExceptionError)
    assert back.task == "job"
    assert back.error_type == f"{__name__}.NewWantsMoreError"
    assert back.error_text == "3"
    assert "in raised" in back.traceback


def test_a_class_that_is_missing_here_becomes_text() -> None:
    data = encode_error(raised(OtherArgumentsError(1, detail="")))
    blob, *told = pickle.loads(data)
    back = decode_error(pickle.dumps((blob.replace(b"OtherArgumentsError", b"OtherArgumentzError"), *told)))
    assert isinstance(back, UnpicklableExceptionError)
    assert back.error_type.endswith("OtherArgumentsError")
    assert back.error_text == "code 1"


def test_an_error_whose_text_cannot_be_had_is_kept() -> None:
    assert type(sent(StrRaisesError())) is StrRaisesError


def test_causes_and_contexts_are_told_in_the_traceback() -> None:
    try:
        try:
            throw(KeyError("first"))
        except KeyError as error:
            raise ValueError("second") from error
    except ValueError as error:
        back = decode_error(encode_error(error))
    assert back.__cause__ is not None
    shown = str(back.__cause__)
    assert shown.index("KeyError: 'first'") < shown.index("direct cause") < shown.index("ValueError: second")


def test_endless_texts_are_cut_and_keep_their_type() -> None:
    error = OSError(5, "a" + "x" * 10_000_000 + "z")
    error.detail = b"y" * 1_000_000  # type: ignore[attr-defined]
    back = sent(error)
    assert type(back) is OSError
    assert (back.errno, back.strerror[0], back.strerror[-1]) == (5, "a", "z")
    assert "characters cut" in back.strerror
    assert len(back.strerror) < TEXT_LIMIT + 100
    assert "characters cut" in vars(back)["detail"]
    assert isinstance(back.__cause__, RemoteTracebackError)
    assert "characters cut" in back.__cause__.traceback
    assert len(back.__cause__.traceback) < TEXT_LIMIT + 100


def test_an_error_of_too_many_large_parts_becomes_text() -> None:
    back = sent(ValueError(*[str(index) * TEXT_LIMIT for index in range(10)]))
    assert isinstance(back, UnpicklableExceptionError)
    assert back.error_type == "ValueError"
    assert "characters cut" in back.error_text


def test_endless_recursion_is_told() -> None:
    def fall(depth: int) -> int:
        return fall(depth + 1) + 1

    with pytest.raises(RecursionError) as caught:
        fall(0)
    back = decode_error(encode_error(caught.value))
    assert isinstance(back, RecursionError)
    assert "fall" in str(back.__cause__)


def test_classes_of_a_function_go_by_value() -> None:
    class LocalError(Exception):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(a + b)
            self.a = a

    back = sent(LocalError(1, 2))
    assert type(back) is LocalError
    assert back.a == 1
    assert back.args == (3,)


class Ref:
    def __reduce__(self) -> tuple[object, ...]:
        report_reference(4)
        return Ref, ()

    def __repr__(self) -> str:
        return "<ref 4>"


def test_references_in_errors_become_text_since_nothing_would_keep_their_objects() -> None:
    back = sent(ValueError("with", Ref()))
    assert back.args == ("with", "<ref 4>")


def test_a_lone_surrogate_survives() -> None:
    assert sent(ValueError("\udc80")).args == ("\udc80",)


def test_an_error_that_holds_itself_ends_as_text_inside() -> None:
    error = ValueError("outer")
    error.args = ("outer", error)
    back = sent(error)
    assert type(back) is ValueError
    for _ in range(MAX_DEPTH):
        assert back.args[0] == "outer"
        back = back.args[1]
        assert type(back) is ValueError
    assert isinstance(back.args[1], UnpicklableExceptionError)


def test_notes_that_are_none_do_no_harm() -> None:
    error = ValueError("x")
    error.__notes__ = 5  # type: ignore[assignment]
    assert type(sent(error)) is ValueError


def test_what_dask_does_to_the_pickling_of_exceptions_loses_nothing() -> None:
    import distributed  # noqa: F401, PLC0415 - it has tblib reduce exceptions in its own way

    leave = sent(SystemExit(3))
    assert isinstance(leave, SystemExit)
    assert leave.code == 3
