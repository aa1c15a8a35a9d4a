"""What a function or class that goes by value has captured, and whether that is still what it was.

Its code, cells, globals, defaults and its own attributes are looked at, in the functions, classes and
modules that it reaches by them too: bases, metaclasses and classes of instances included. What can't change
is compared by identity, the rest by a digest of its pickle, before each use. Where that takes more than some
milliseconds it is done now and then: `seen_late` says so beforehand, and a change that was seen late is
warned about.
"""

from __future__ import annotations

import abc
import contextlib
import dis
import functools
import io
import pickle
import time
import types
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, TypeAlias

from fray.payload.values.importability import goes_by_name
from fray.payload.values.references import SCALARS, Reference

__all__ = ["Captures", "global_names"]

CHEAP_SECONDS = 0.01
"""Of processor time: a comparison that takes no longer is made each time. About 20 MB of arrays, or a list of
500,000 numbers."""
SHARE = 20
"""A comparison that took longer is made again after so many times its own time."""

_LOOK_UPS = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"))
"""The first is of functions, the others of bodies of classes (documentation of `dis`)."""
_Look: TypeAlias = Callable[[], Any]
_MISSING = object()


class Captures:
    """What `function` had captured when this was made. Keeps nothing alive that could refer to it."""

    __slots__ = ("_changing", "_cost", "_fixed", "_name", "_next_look", "_print", "classes", "seen_late")

    def __init__(self, function: Callable[..., Any], *, alone: bool = False) -> None:
        """Look at all that it reaches, or `alone` at what is no other class's."""
        self._name = getattr(function, "__qualname__", repr(function))
        self._fixed: list[tuple[_Look, Callable[[], Any]]] = []
        """Where it lies, and what gives back what lay there."""
        self._changing: list[_Look] = []
        reached: list[Any] = []
        for look in _places(function, reached, alone=alone):
            value = look()
            if isinstance(value, _CODE):
                self._fixed.append((look, weakref.ref(value)))
            elif type(value) in SCALARS or isinstance(value, _FIXED) or value is _MISSING:
                self._fixed.append((look, functools.partial(_itself, value)))
            elif isinstance(value, Reference) or _is_opaque(value):
                self._fixed.append(_pinned(look, value))
            else:
                self._changing.append(look)
        self.classes = tuple(weakref.ref(each) for each in reached if isinstance(each, type))
        """Those that go by value, itself included."""
        self._cost = 0.0
        self._next_look = 0.0
        self._print = self._take_print()
        self.seen_late = self._print is not None and self._cost > CHEAP_SECONDS
        """Whether a comparison costs so much that a change in place may be seen late."""

    def changed(self, *, now: bool = False) -> bool:
        """Return whether something is another than it was, by what is seen `now` if need be.

        Unknown counts as changed.
        """
        for look, before in self._fixed:
            found, then = look(), before()
            # Numbers are made anew by arithmetic; 1, 1.0 and True are equal, and not the same.
            if found is not then and not (type(found) is type(then) is int and found == then):
                return True
            if found is None and isinstance(before, weakref.ref):  # it is gone, and None took its place
                return True
        if not self._changing or (self.seen_late and not now and time.monotonic() < self._next_look):
            return False
        taken = self._take_print()
        if taken is not None and taken == self._print:
            return False
        if self.seen_late and not now and taken is not None:
            self._warn()
        return True

    def _take_print(self) -> bytes | None:
        if not self._changing:
            return b""
        start = time.thread_time()
        try:
            taken = _fingerprint([look() for look in self._changing])
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


_FIXED = (
    types.BuiltinFunctionType,
    types.CodeType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)
_CODE = (types.FunctionType, type, types.ModuleType, functools._lru_cache_wrapper)
_OF_IMPORT = frozenset(("__builtins__", "__loader__", "__spec__"))
"""What importing puts into modules."""
_SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType)
"""What the interpreter puts into classes itself."""
_PARTS: Mapping[type, tuple[str, ...]] = {
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    functools.cached_property: ("func",),
}
"""What descriptors call. They are no more than that, and can't all be referred to weakly."""


def _itself(value: Any) -> Any:
    return value


def _pinned(look: _Look, value: Any) -> tuple[_Look, Callable[[], Any]]:
    try:
        return look, weakref.ref(value)
    except TypeError:  # there is no such reference to a property, say
        return functools.partial(_id_of, look), functools.partial(_itself, id(value))


def _id_of(look: _Look) -> int:
    return id(look())


def _is_opaque(value: Any) -> bool:
    """Return whether it is a descriptor that can't be looked into: most of them never change."""
    if not hasattr(type(value), "__get__"):
        return False
    try:
        _fingerprint(value)
    except Exception:  # noqa: BLE001 - values decide what their pickling raises
        return True
    return False


def _places(function: Callable[..., Any], reached: list[Any], *, alone: bool) -> Iterator[_Look]:
    """Give where a function and those that it calls by value find what is not their own; note all of them."""
    pending: list[Any] = [function]
    seen = {id(function)}
    while pending:
        code = pending.pop()
        if goes_by_name(code):
            continue
        if alone and isinstance(code, type) and code is not function:
            yield functools.partial(_is_alive, weakref.ref(code))  # it is printed by its identity
            continue
        reached.append(code)
        found: list[Any] = [*code.__bases__, type(code)] if isinstance(code, type) else []
        for look in _own_places(code):
            yield look
            found += _code_in(look())
        for part in found:
            if id(part) not in seen:
                seen.add(id(part))
                pending.append(part)


def _fingerprint(value: Any) -> bytes:
    """Return what tells a value from another; raises what its pickling raises."""
    file = io.BytesIO()
    _Printer(file, 5).dump(value)
    return blake2b(file.getbuffer(), digest_size=16).digest()


class _Printer(pickle.Pickler):
    """Notes the functions and classes that a value refers to; those that go by value are told by identity."""

    def __init__(self, file: io.BytesIO, protocol: int, *, aside: bool = False) -> None:
        super().__init__(file, protocol, buffer_callback=(lambda _: None) if aside else None)
        self.found: list[Any] = []

    def reducer_override(self, obj: Any) -> Any:
        """Return how a function or class is pickled here, and leave all others to `pickle`."""
        if not isinstance(obj, _CODE):
            return NotImplemented
        self.found.append(obj)
        by_identity = isinstance(obj, types.ModuleType) or not goes_by_name(obj)
        return (id, (id(obj),)) if by_identity else NotImplemented


def _code_in(value: Any) -> list[Any]:
    if type(value) in SCALARS or value is _MISSING or isinstance(value, (*_FIXED, Reference)):
        return []
    if isinstance(value, types.FunctionType | type | types.ModuleType):
        return [value]
    parts = ("__wrapped__",) if isinstance(value, functools._lru_cache_wrapper) else _PARTS.get(type(value))
    if parts is not None:
        return [code for part in parts for code in _code_in(getattr(value, part))]
    finder = _Printer(io.BytesIO(), 5, aside=True)
    with contextlib.suppress(Exception):  # it decides what its pickling raises; then it is sent each time
        finder.dump(value)
    return [code for each in finder.found for code in _code_in(each)]


def _own_places(code: Any) -> Iterator[_Look]:
    if isinstance(code, type):
        return _places_of_class(code)
    if isinstance(code, types.ModuleType):
        return _places_of_module(code)
    return _places_of_function(code)


def _places_of_class(code: type) -> Iterator[_Look]:
    own = weakref.ref(code)
    for name, value in tuple(vars(code).items()):
        parts = _PARTS.get(type(value))
        if parts is not None:
            yield from (functools.partial(_part, own, name, type(value), part) for part in parts)
        elif isinstance(value, _CODE) or not _is_of_interpreter(name, value) or _is_plain(value):
            yield functools.partial(_attribute, own, name)
    if "_abc_impl" in vars(code):
        yield functools.partial(_virtual_subclasses, own)
    yield functools.partial(_is_made_of, own, tuple(vars(code)), tuple(map(weakref.ref, code.__bases__)))


def _places_of_module(code: types.ModuleType) -> Iterator[_Look]:
    own = weakref.ref(code)
    for name in tuple(vars(code)):
        if name not in _OF_IMPORT:
            yield functools.partial(_attribute, own, name)
    yield functools.partial(_has_names, own, tuple(vars(code)))


def _places_of_function(code: types.FunctionType) -> Iterator[_Look]:
    own = weakref.ref(code)
    for index in range(len(code.__closure__ or ())):
        yield functools.partial(_content, own, index)
    for name in global_names(code.__code__):  # one that is missing now may be defined later
        yield functools.partial(_global, own, name)
    for name in vars(code):
        yield functools.partial(_attribute, own, name)
    has_defaults = _has_defaults(code)
    yield functools.partial(_code_of, own, tuple(vars(code)), has_defaults=has_defaults)
    if has_defaults:
        yield functools.partial(_defaults, own)


def _has_names(own: weakref.ref[Any], names: tuple[str, ...]) -> bool:
    module: Any = own()
    return module is not None and tuple(vars(module)) == names


def _is_alive(code: weakref.ref[Any]) -> bool:
    return code() is not None


def _is_plain(value: Any) -> bool:
    """Return whether it is a scalar, or holds scalars alone: nothing that only the interpreter can read."""
    if type(value) in (tuple, list, set, frozenset):
        return all(type(part) in SCALARS for part in value)
    if type(value) is dict:
        return all(type(part) in SCALARS for item in value.items() for part in item)
    return type(value) in SCALARS


def _is_of_interpreter(name: str, value: Any) -> bool:
    return name.startswith(("__", "_abc_")) or isinstance(value, _SLOTS)


def _attribute(own: weakref.ref[Any], name: str) -> Any:
    made: Any = own()
    return _MISSING if made is None else vars(made).get(name, _MISSING)


def _virtual_subclasses(own: weakref.ref[Any]) -> list[int]:
    made: Any = own()
    return [] if made is None else sorted(map(id, abc._get_dump(made)[0]))  # type: ignore[attr-defined]


def _part(own: weakref.ref[Any], name: str, kind: type, part: str) -> Any:
    value = _attribute(own, name)
    return getattr(value, part) if type(value) is kind else _MISSING


def _is_made_of(own: weakref.ref[Any], names: tuple[str, ...], bases: tuple[weakref.ref[Any], ...]) -> bool:
    made: Any = own()
    return (
        made is not None and tuple(vars(made)) == names and tuple(map(weakref.ref, made.__bases__)) == bases
    )


def _code_of(own: weakref.ref[Any], names: tuple[str, ...], *, has_defaults: bool) -> Any:
    """Give a function's code, unless it has other attributes, or defaults now: one look is less than two."""
    function: Any = own()
    if function is None or tuple(vars(function)) != names or _has_defaults(function) is not has_defaults:
        return _MISSING
    return function.__code__


def _has_defaults(function: Any) -> bool:
    return bool(function.__defaults__ or function.__kwdefaults__)


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


@functools.lru_cache(1024)
def global_names(code: types.CodeType) -> tuple[str, ...]:
    """Return the names that a function's code, or code within it, looks up as globals; of builtins too."""
    names = {each.argval: None for each in dis.get_instructions(code) if each.opname in _LOOK_UPS}
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            names.update(dict.fromkeys(global_names(part)))
    return tuple(names)
