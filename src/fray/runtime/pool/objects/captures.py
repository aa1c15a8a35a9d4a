"""What a function that goes by value has captured, and whether that is still what it was.

Its code, cells, globals, defaults and its own attributes are looked at, in the functions and classes that it
reaches by them too: bases, metaclasses and classes of instances included. What can't change is compared by
identity, the rest by its pickle, before each use. Where that takes more than some milliseconds it is done now
and then: `seen_late` says so beforehand, and a change that was seen late is warned about.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import pickle
import sys
import time
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from fray.payload.values.importability import is_importable
from fray.payload.values.pickling import SCALARS, global_names
from fray.payload.values.references import Reference

__all__ = ["Captures"]

CHEAP_SECONDS = 0.01
"""Of processor time: a comparison that takes no longer is made each time. About 20 MB of arrays, or a list of
500,000 numbers."""
SHARE = 20
"""A comparison that took longer is made again after so many times its own time."""

_Look: TypeAlias = Callable[[], Any]
_MISSING = object()


class Captures:
    """What `function` had captured when this was made. Keeps nothing alive that could refer to it."""

    __slots__ = ("_changing", "_cost", "_fixed", "_name", "_next_look", "_print", "seen_late")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = getattr(function, "__qualname__", repr(function))
        self._fixed: list[tuple[_Look, Callable[[], Any]]] = []
        """Where it lies, and what gives back what lay there."""
        self._changing: list[_Look] = []
        for look in _places(function):
            value = look()
            if isinstance(value, types.FunctionType | type):
                self._fixed.append((look, weakref.ref(value)))
            elif type(value) in SCALARS or isinstance(value, _FIXED) or value is _MISSING:
                self._fixed.append((look, functools.partial(_itself, value)))
            elif isinstance(value, _DESCRIPTORS):
                self._fixed.append((functools.partial(_id_of, look), functools.partial(_itself, id(value))))
            else:
                self._changing.append(look)
        self._cost = 0.0
        self._next_look = 0.0
        self._print = self._take_print()
        self.seen_late = self._print is not None and self._cost > CHEAP_SECONDS
        """Whether a comparison costs so much that a change in place may be seen late."""

    def changed(self) -> bool:
        """Return whether something is another than it was. Unknown counts as changed."""
        for look, before in self._fixed:
            now, then = look(), before()
            # Numbers are made anew by arithmetic; 1, 1.0 and True are equal, and not the same.
            if now is not then and not (type(now) is type(then) is int and now == then):
                return True
        if not self._changing or (self.seen_late and time.monotonic() < self._next_look):
            return False
        found = self._take_print()
        if found is not None and found == self._print:
            return False
        if self.seen_late and found is not None:
            self._warn()
        return True

    def _take_print(self) -> bytes | None:
        if not self._changing:
            return b""
        start = time.thread_time()
        try:
            taken = pickle.dumps([look() for look in self._changing], 5)
        except Exception:  # noqa: BLE001 - values decide what their pickling raises
            taken = None
        self._cost = time.thread_time() - start
        self._next_look = time.monotonic() + SHARE * self._cost
        return taken

    def _warn(self) -> None:
        warnings.warn(
            f"{self._name} has captured large values that have changed since it was sent: tasks submitted "
            f"in the last {SHARE * self._cost:.2g} s may have had the old ones. Pass them as arguments.",
            RuntimeWarning,
            stacklevel=2,
        )


_FIXED = (types.ModuleType, types.BuiltinFunctionType, types.CodeType, Reference)
_DESCRIPTORS: tuple[type, ...] = (
    staticmethod,
    classmethod,
    property,
    functools.cached_property,
    functools._lru_cache_wrapper,
)


def _itself(value: Any) -> Any:
    return value


def _id_of(look: _Look) -> int:
    return id(look())


def _places(function: Callable[..., Any]) -> Iterator[_Look]:
    """Give where a function and those that it calls by value find what is not their own."""
    pending: list[Any] = [function]
    seen = {id(function)}
    while pending:
        code = pending.pop()
        if _goes_by_name(code):
            continue
        found: list[Any] = [*code.__bases__, type(code)] if isinstance(code, type) else []
        for look in _own_places(code):
            yield look
            found += _code_in(look())
        for part in found:
            if id(part) not in seen:
                seen.add(id(part))
                pending.append(part)


class _CodeFinder(pickle.Pickler):
    """Notes the functions and classes that a value refers to, those of its instances included."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), 5, buffer_callback=lambda _: None)
        self.found: list[Any] = []

    def reducer_override(self, obj: Any) -> Any:
        """Note a function or class, and leave to `pickle` what becomes of it."""
        if isinstance(obj, types.FunctionType | type):
            self.found.append(obj)
        return NotImplemented


def _code_in(value: Any) -> list[Any]:
    if type(value) in SCALARS or value is _MISSING or isinstance(value, _FIXED):
        return []
    if isinstance(value, property):
        return [each for each in (value.fget, value.fset, value.fdel) if each is not None]
    if isinstance(value, functools.cached_property):
        return [value.func]
    if callable(value) or isinstance(value, _DESCRIPTORS):
        # Of a static method, or of a cached function, what it calls.
        value = inspect.unwrap(value)
    if isinstance(value, types.FunctionType | type):
        return [value]
    finder = _CodeFinder()
    with contextlib.suppress(Exception):  # it decides what its pickling raises; then it is sent each time
        finder.dump(value)
    return finder.found


def _own_places(code: Any) -> Iterator[_Look]:
    own = weakref.ref(code)
    if isinstance(code, type):
        for name, value in tuple(vars(code).items()):
            plain = not name.startswith(("__", "_abc_")) and not hasattr(type(value), "__get__")
            if plain or isinstance(value, _CODE):
                yield functools.partial(_attribute, own, name)
        yield functools.partial(_has_names, own, tuple(vars(code)))
        return
    for index in range(len(code.__closure__ or ())):
        yield functools.partial(_content, own, index)
    for name in global_names(code.__code__):  # one that is missing now may be defined later
        yield functools.partial(_global, own, name)
    for name in vars(code):
        yield functools.partial(_attribute, own, name)
    yield functools.partial(_code_of, own, tuple(vars(code)))
    if code.__defaults__ or code.__kwdefaults__:
        yield functools.partial(_defaults, own)


def _goes_by_name(code: Any) -> bool:
    module = getattr(code, "__module__", None)
    if not is_importable(module):
        return False
    found: Any = sys.modules.get(module or "")
    for name in getattr(code, "__qualname__", "").split("."):
        found = getattr(found, name, None)
    return found is code


_CODE: tuple[type, ...] = (types.FunctionType, type, *_DESCRIPTORS)


def _attribute(own: weakref.ref[Any], name: str) -> Any:
    made: Any = own()
    return _MISSING if made is None else vars(made).get(name, _MISSING)


def _has_names(own: weakref.ref[Any], names: tuple[str, ...]) -> bool:
    made: Any = own()
    return made is not None and tuple(vars(made)) == names


def _code_of(own: weakref.ref[Any], names: tuple[str, ...]) -> Any:
    """Give a function's code, unless it has attributes of other names: one look costs less than two."""
    function: Any = own()
    return function.__code__ if function is not None and tuple(vars(function)) == names else _MISSING


def _content(own: weakref.ref[Any], index: int) -> Any:
    function: Any = own()
    try:
        return _MISSING if function is None else function.__closure__[index].cell_contents
    except ValueError:  # it's empty
        return _MISSING


def _defaults(own: weakref.ref[Any]) -> Any:
    function: Any = own()
    return _MISSING if function is None else (function.__defaults__, function.__kwdefaults__)


def _global(own: weakref.ref[Any], name: str) -> Any:
    function: Any = own()
    return _MISSING if function is None else function.__globals__.get(name, _MISSING)
