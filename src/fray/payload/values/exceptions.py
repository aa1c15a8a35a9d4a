"""Exceptions become bytes, whatever their classes do, and come back with their type where that is possible.

What can't be kept becomes text. Who gets a failure, and which ones are retried, is decided elsewhere.
"""

from __future__ import annotations

import pickle
from typing import Any, cast

from fray.errors import RemoteTracebackError, TaskRaisedError, UnpicklableExceptionError
from fray.payload.values.pickling import pickle_value
from fray.payload.values.texts import TEXT_LIMIT, cut, text_of, traceback_of, type_name

__all__ = ["decode_error", "encode_error", "raisable"]

ERROR_LIMIT = 4 * TEXT_LIMIT
"""Bytes of a pickled exception; a larger one travels as its text."""
MAX_DEPTH = 5
"""Exceptions within exceptions that are kept; those further inside become text."""


def encode_error(error: BaseException, *, task: str = "", worker: str = "") -> bytes:
    """Return an exception as `Failed.data`, whatever it is: this doesn't fail.

    It keeps its type, arguments, attributes and notes if it survives pickling, which is tried here; parts
    that don't survive it, or are longer than 64 Ki characters, become text. If its type can't be kept, all
    of it becomes text. Its traceback goes along as text with those of its causes. References inside are
    text, since nothing would keep their objects alive.
    """
    noted = getattr(error, "__notes__", None)
    notes = [cut(text_of(note)) for note in noted] if isinstance(noted, list) else []
    description = (notes, type_name(error), cut(text_of(error)), cut(traceback_of(error)), task, worker)
    return pickle.dumps((_surviving(error), *description), protocol=5)


def decode_error(data: bytes) -> BaseException:
    """Return the exception, whose `__cause__` is a `RemoteTracebackError` with the traceback from there.

    If it can't be made again here, `UnpicklableExceptionError` takes its place.
    """
    blob, notes, name, text, shown, task, worker = pickle.loads(data)
    error = _read_exception(blob)
    if error is None:
        error = UnpicklableExceptionError(task, name, text, shown)
    if notes and "__notes__" not in vars(error):
        vars(error)["__notes__"] = notes  # an own __reduce__ often forgets them
    # By the descriptor, since classes may refuse to have attributes set (frozen dataclasses do).
    BaseException.__dict__["__cause__"].__set__(error, RemoteTracebackError(worker, shown))
    return error


def raisable(error: BaseException, task: str) -> BaseException:
    """Return what a task's exception becomes where its result is taken.

    That is the exception itself, or `TaskRaisedError` for one that ends loops or processes there.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration | StopAsyncIteration):
        return error
    text = ", ".join(cut(text_of(part, show=repr)) for part in error.args)
    raised = TaskRaisedError(task, type(error).__qualname__, text)
    raised.__cause__ = error
    return raised


def _surviving(error: BaseException, depth: int = 0) -> bytes:
    """Return a pickle that gives an exception of the same type; empty if there is none.

    `depth` counts the exceptions around this one, which may hold each other in a circle.
    """
    whole = _proven(error, type(error), TEXT_LIMIT)
    if whole is not None and text_of(whole[1]) == text_of(error):
        return whole[0]
    # What doesn't come back the same is mostly an __init__ with other arguments than those in `args`.
    parts = _proven(_Parts(error, depth), type(error), ERROR_LIMIT)
    best = parts or whole
    return best[0] if best is not None else b""


def _proven(thing: object, kind: type[BaseException], limit: int) -> tuple[bytes, BaseException] | None:
    try:
        blob, found = pickle_value(thing, None)
    except (MemoryError, KeyboardInterrupt):
        raise
    except BaseException:  # noqa: BLE001 - its code runs, and may even exit; None makes it text
        return None
    if found or len(blob) > limit:
        return None
    copy = _read_exception(blob)
    return (blob, copy) if type(copy) is kind else None


def _read_exception(blob: bytes) -> BaseException | None:
    if not blob:
        return None
    try:
        error = pickle.loads(blob)
    except (MemoryError, KeyboardInterrupt):
        raise
    except BaseException:  # noqa: BLE001 - as in `_proven`
        return None
    return error if isinstance(error, BaseException) else None


class _Parts:
    """An exception that is made again from its parts, without its own __init__ and __reduce__."""

    def __init__(self, error: BaseException, depth: int) -> None:
        self._kind = type(error)
        # The built-in base knows what it keeps apart from `args`, such as the file's name of an OSError.
        reduced = cast("tuple[Any, ...]", _built_in(self._kind).__reduce__(error))
        self._args = tuple(_portable(part, depth + 1) for part in reduced[1])
        known = {**vars(error), **(reduced[2] if len(reduced) > 2 else {})}
        self._state = {name: _portable(part, depth + 1) for name, part in known.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self._kind, self._args, self._state)


class _Survivor:
    """An exception inside another one, as the pickle of which it is known that it can be read."""

    def __init__(self, blob: bytes) -> None:
        self._blob = blob

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._blob,)


def _rebuilt(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind, *args)
    _built_in(kind).__init__(error, *args)
    for name, value in state.items():
        # Not by setattr, since classes may refuse it (frozen dataclasses do).
        if hasattr(_built_in(kind), name):
            object.__setattr__(error, name, value)
        else:
            vars(error)[name] = value
    return error


def _built_in(kind: type[BaseException]) -> type[BaseException]:
    return next(base for base in kind.__mro__ if base.__module__ == "builtins")


def _portable(part: Any, depth: int) -> Any:
    """Return a part of an exception, or text in its place."""
    if isinstance(part, str):
        return part if len(part) <= TEXT_LIMIT else cut(part)
    if isinstance(part, BaseException):
        blob = _surviving(part, depth) if depth <= MAX_DEPTH else b""
        if blob:
            return _Survivor(blob)
        return UnpicklableExceptionError("", type(part).__qualname__, cut(text_of(part)), "")
    if isinstance(part, list | tuple) and any(isinstance(each, BaseException) for each in part):
        return [_portable(each, depth) for each in part]
    try:
        blob, found = pickle_value(part, None)
        if not found and len(blob) <= TEXT_LIMIT:
            pickle.loads(blob)
            return part
    except MemoryError:
        raise
    except (Exception, SystemExit, GeneratorExit):  # noqa: BLE001 - its code runs; text takes its place
        return cut(text_of(part, show=repr))
    return cut(text_of(part, show=repr))
