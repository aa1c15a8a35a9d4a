"""Whether a message of another process is what its class says, down to the last field, before it counts.

The fields' types stand in `messages`, once: here they are only compared with. What a message means isn't
known here. Only processes that have proved themselves get here, so this is about mistakes and other versions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from fray.errors import FrayError

__all__ = ["RefusedMessageError", "check_message"]

_Check = Callable[[Any], bool]
_NO_DEFAULT = object()


class RefusedMessageError(FrayError):
    """A message that the head can't take from who sent it: it's of another version, or due to a defect."""

    what: str
    problem: str

    @property
    def message(self) -> str:
        """The message and what is wrong with it."""
        return f"{self.what} {self.problem}"

    @property
    def next_step(self) -> str:
        """What the usual cause is."""
        return "See that all hosts have the same version of Fray."


class _Field(NamedTuple):
    """What a field, or one place of a tuple, may be: of these types exactly, or its default, or by `check`."""

    exact: frozenset[type]
    default: Any
    check: _Check


def check_message(message: Any) -> None:
    """Raise `RefusedMessageError` unless each field of a message, or of a part of one, has its type."""
    kind: Any = type(message)
    fields = _fields_of(kind)
    if fields is not None:
        if _are_sound(fields, message):
            return
        for name, field, value in zip(kind._fields, fields, message, strict=False):
            if not _are_sound((field,), (value,)):
                raise RefusedMessageError(kind.__name__, f"has as its {name} {value!r:.200}")
    raise RefusedMessageError(kind.__name__, "isn't a message of this version")


def _is_record(kind: type) -> bool:
    return (
        issubclass(kind, tuple)
        and hasattr(kind, "_fields")
        and kind.__module__.startswith("fray.runtime.pool.messages.")
    )


@cache
def _fields_of(kind: Any) -> tuple[_Field, ...] | None:
    """Return what the fields of a message may be; None: it's no kind of messages, nor of a part of one."""
    if not _is_record(kind):
        return None
    defaults = kind._field_defaults
    return tuple(
        _Field(_exact_of(hint), defaults.get(name, _NO_DEFAULT), _check_of(hint))
        for name, hint in get_type_hints(kind).items()
    )


def _are_sound(fields: tuple[_Field, ...], values: tuple[Any, ...]) -> bool:
    if len(fields) != len(values):
        return False
    for (exact, default, check), value in zip(fields, values, strict=True):
        # Few come to the call: it would cost more than all else that is done with a small message.
        if not (type(value) in exact or value is default or check(value)):
            return False
    return True


def _exact_of(hint: Any) -> frozenset[type]:
    """Return types of which each value is sound, whatever it is."""
    if get_origin(hint) in (Union, UnionType):
        return frozenset().union(*map(_exact_of, get_args(hint)))
    return frozenset() if get_origin(hint) is tuple or _is_record(hint) else frozenset((hint,))


@cache
def _check_of(hint: Any) -> _Check:
    """Return what tells whether a value is of a type, as annotations of `messages` write it."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        choices = tuple(_check_of(each) for each in args)
        return lambda value: any(check(value) for check in choices)
    if origin is tuple and args[-1] is Ellipsis:
        item, exact = _check_of(args[0]), _exact_of(args[0])
        return lambda value: (
            type(value) is tuple and (exact.issuperset(map(type, value)) or all(map(item, value)))
        )
    if origin is tuple:
        parts = tuple(_Field(_exact_of(each), _NO_DEFAULT, _check_of(each)) for each in args)
        return lambda value: type(value) is tuple and _are_sound(parts, value)
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
