"""Whether a message of another process is what its class says, down to the last field, before it counts.

The fields' types stand in `messages`, once: here they are only compared with. What a message means isn't
known here. Only processes that have proved themselves get here, so this is about mistakes and other versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import chain, product
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from fray.errors import FrayError

__all__ = ["RefusedMessageError", "check_message"]

_Check = Callable[[Any], bool]
_NO_DEFAULT = object()


class RefusedMessageError(FrayError):
    """A message that the head can't take from who sent it: it's of another version, or due to a defect."""

    message = "{what} {problem}"
    next_step = "See that all hosts have the same version of Fray."

    what: str
    problem: str


class _Fields(NamedTuple):
    """What the fields of a message, or the places of a tuple, may be."""

    checks: tuple[_Check, ...]
    usual: frozenset[tuple[type, ...]]
    """Types with which all of them are sound but those in `deep`."""
    deep: tuple[tuple[int, Any, _Check], ...]
    """The places of those that have parts of their own, with their defaults, which are sound."""


def check_message(message: Any) -> None:
    """Raise `RefusedMessageError` unless each field of a message, or of a part of one, has its type."""
    kind: Any = type(message)
    fields = _fields_of(kind)
    if fields is not None:
        if _are_sound(fields, message):
            return
        for name, check, value in zip(kind._fields, fields.checks, message, strict=False):
            if not check(value):
                raise RefusedMessageError(kind.__name__, f"has as its {name} {value!r:.200}")
    raise RefusedMessageError(kind.__name__, "isn't a message of this version")


def _is_record(kind: type) -> bool:
    return (
        issubclass(kind, tuple)
        and hasattr(kind, "_fields")
        and kind.__module__.startswith("fray.runtime.pool.messages.")
    )


@cache
def _fields_of(kind: Any) -> _Fields | None:
    """Return what the fields of a message may be; None: it's no kind of messages, nor of a part of one."""
    if not _is_record(kind):
        return None
    return _build_fields(get_type_hints(kind), kind._field_defaults)


def _build_fields(hints: Mapping[Any, Any], defaults: Mapping[Any, Any]) -> _Fields:
    types = [_types_of(hint) for hint in hints.values()]
    checks = tuple(map(_check_of, hints.values()))
    deep = tuple(
        (place, defaults.get(name, _NO_DEFAULT), checks[place])
        for place, name in enumerate(hints)
        if any(issubclass(each, tuple) for each in types[place])
    )
    return _Fields(checks, frozenset(product(*types)), deep)


def _are_sound(fields: _Fields, values: tuple[Any, ...]) -> bool:
    if tuple(map(type, values)) in fields.usual:
        # A call for each field would cost more than all else that is done with a small message.
        for place, default, check in fields.deep:
            value = values[place]
            if value is not default and not check(value):
                return False
        return True
    if len(fields.checks) != len(values):
        return False
    return all(check(value) for check, value in zip(fields.checks, values, strict=True))


def _types_of(hint: Any) -> tuple[type, ...]:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return tuple(chain.from_iterable(map(_types_of, args)))
    return (origin or hint,)


@cache
def _check_of(hint: Any) -> _Check:
    """Return what tells whether a value is of a type, as annotations of `messages` write it."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        choices = tuple(_check_of(each) for each in args)
        return lambda value: any(check(value) for check in choices)
    if origin is tuple and args[-1] is Ellipsis:
        item, types = _check_of(args[0]), _types_of(args[0])
        plain = frozenset(() if any(issubclass(each, tuple) for each in types) else types)
        return lambda value: (
            type(value) is tuple and (plain.issuperset(map(type, value)) or all(map(item, value)))
        )
    if origin is tuple:
        places = _build_fields(dict(enumerate(args)), {})
        return lambda value: type(value) is tuple and _are_sound(places, value)
    if (fields := _fields_of(hint)) is not None:
        return lambda value: type(value) is hint and _are_sound(fields, value)
    if hint in _NUMBERS:
        return _NUMBERS[hint]
    return lambda value: isinstance(value, hint)


# Users' numbers arrive as they gave them: those of NumPy and the like count too.
_NUMBERS: dict[type, _Check] = {
    int: lambda value: type(value) is int or hasattr(value, "__index__"),
    float: lambda value: type(value) is float or hasattr(value, "__float__"),
}
