"""One value becomes one pickle: what goes by name, what by value, and what stays out of it.

Plain pickle goes first, since it is fast. cloudpickle takes over where pickle fails, and where a class or
function would go by a name that a worker can't import (`importability` says which). Those go by value.

What is done with the pickle, and what is reported when there is none, is for the callers to decide.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import types
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from fray.payload.values.caches import (
    has_lock,
    is_cached_function,
    reduce_cached_function,
    reduce_cached_property,
)
from fray.payload.values.captures import global_names
from fray.payload.values.classes import reduce_class, state_of
from fray.payload.values.dispatching import is_dispatching_function, reduce_dispatching_function
from fray.payload.values.importability import goes_by_name, is_importable
from fray.payload.values.references import collector

__all__ = ["OUT_OF_BAND", "ByValuePickler", "NotPicklableError", "pickle_value"]

PROTOCOL = 5
OUT_OF_BAND = 4096
"""Bytes from which a buffer stays out of the pickle: a page; smaller ones are cheaper to copy."""
_WITH_STATE_SETTER = 6
"""Parts of what cloudpickle returns of a class by value (documentation of `object.__reduce__`)."""


class NotPicklableError(Exception):
    """Neither way works; `cause` is what cloudpickle, or the value's own code, said."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause


def pickle_value(value: object, buffers: list[memoryview] | None) -> tuple[bytes, list[int]]:
    """Return the pickle, and the references inside. Large buffers go to `buffers`, if given.

    Raises `NotPicklableError`.
    """

    def aside(buffer: pickle.PickleBuffer) -> bool:
        """Take a buffer out of the pickle (False), or leave it inside."""
        try:
            raw = buffer.raw()
        except BufferError:  # it isn't contiguous
            return True
        if buffers is None or raw.nbytes < OUT_OF_BAND:
            return True
        buffers.append(raw)
        return False

    outer, found = collector.found, list[int]()
    collector.found = found
    try:
        file = io.BytesIO()
        try:
            _Pickler(file, PROTOCOL, buffer_callback=aside).dump(value)
            return file.getvalue(), found
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - objects decide what their pickling raises; cloudpickle has its say
            found.clear()
        if buffers is not None:
            buffers.clear()
        file = io.BytesIO()
        try:
            ByValuePickler(file, protocol=PROTOCOL, buffer_callback=aside).dump(value)
            return file.getvalue(), found
        except MemoryError:
            raise
        except Exception as error:
            raise NotPicklableError(error) from error
    finally:
        collector.found = outer


class _ByValueError(Exception):
    """Something in the value has to go by value, which pickle can't do."""


def _is_reduced_by_tblib(error: BaseException) -> bool:
    """Return whether tblib reduces exceptions of this class, which importing Dask asks it to do.

    Its way doesn't call their constructors, and so loses what built-in ones keep apart from `args`.
    """
    reducer = copyreg.dispatch_table.get(type(error))
    return reducer is not None and reducer.__module__.startswith("tblib")


class _Pickler(pickle.Pickler):
    """Pickle in C, which gives up on what workers couldn't import.

    `reducer_override` isn't called for plain values (documentation of `pickle`), so they cost nothing.
    """

    def reducer_override(self, obj: Any) -> Any:
        if (isinstance(obj, type | types.FunctionType) or is_cached_function(obj)) and not is_importable(
            obj.__module__
        ):
            raise _ByValueError
        if isinstance(obj, BaseException) and _is_reduced_by_tblib(obj):
            return obj.__reduce_ex__(PROTOCOL)
        return NotImplemented


class ByValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle, and what it can't do: it takes cached functions for importable ones, for example."""

    def reducer_override(self, obj: Any) -> Any:
        """Return how an object is pickled, as `pickle.Pickler` wants it."""
        if is_cached_function(obj) and not is_importable(obj.__module__):
            return reduce_cached_function(obj)
        if is_dispatching_function(obj) and not is_importable(obj.__module__):
            return reduce_dispatching_function(obj)
        if has_lock(obj):
            return reduce_cached_property(obj)
        if isinstance(obj, BaseException) and _is_reduced_by_tblib(obj):
            return obj.__reduce_ex__(PROTOCOL)
        if isinstance(obj, types.ModuleType) and not goes_by_name(obj):
            # Filled after it is made, since its functions may refer to it.
            state = {name: value for name, value in vars(obj).items() if name != "__builtins__"}
            return types.ModuleType, (obj.__name__,), state
        # Before its attributes are read: what another thread changes now belongs to a later state.
        number = state_of(obj) if isinstance(obj, type) and not goes_by_name(obj) else None
        reduced = super().reducer_override(obj)
        if number is not None and isinstance(reduced, tuple) and len(reduced) == _WITH_STATE_SETTER:
            return reduce_class(obj, reduced, number)
        if isinstance(obj, types.FunctionType) and isinstance(reduced, tuple):
            # cloudpickle leaves out what the bodies of classes read: `class` statements in the function.
            sent = reduced[2][1]["__globals__"]
            sent.update((name, obj.__globals__[name]) for name in _missing_names(obj, sent))
        return reduced


def _missing_names(function: types.FunctionType, sent: dict[str, Any]) -> tuple[str, ...]:
    names = global_names(function.__code__)
    return tuple(name for name in names if name not in sent and name in function.__globals__)
