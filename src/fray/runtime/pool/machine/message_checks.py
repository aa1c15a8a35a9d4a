"""Whether a message of another process is what its class says, down to the last field, before it counts.

The fields' types stand in `messages`, once: here they are only compared with. What a message means isn't
known here. Only processes that have proved themselves get here, so this is about mistakes and other versions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from fray.errors import FrayError

__all__ = ["RefusedMessageError", "check_message"]

_Check = Callable[[Any], bool]


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


def check_message(message: Any) -> None:
    """Raise `RefusedMessageError` unless each field of a message, or of a part of one, has its type."""
    kind: Any = type(message)
    if _is_record(kind):
        checks = _field_checks(kind)
        for name, check, value in zip(kind._fields, checks, message, strict=False):
            if not check(value):
                raise RefusedMessageError(kind.__name__, f"has as its {name} {value!r:.200}")
        if len(message) == len(checks):
            return
    raise RefusedMessageError(kind.__name__, "isn't a message of this version")


def _is_record(kind: type) -> bool:
    return (
        issubclass(kind, tuple)
        and hasattr(kind, "_fields")
        and kind.__module__.startswith("fray.runtime.pool.messages.")
    )


@cache
def _field_checks(kind: type) -> tuple[_Check, ...]:
    return tuple(_check_of(hint) for hint in get_type_hints(kind).values())


@cache
def _check_of(hint: Any) -> _Check:
    """Return what tells whether a value is of a type, as annotations of `messages` write it."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        choices = tuple(_check_of(each) for each in args)
        return lambda value: any(check(value) for check in choices)
    if origin is tuple and args[-1] is Ellipsis:
        item = _check_of(args[0])
        return lambda value: type(value) is tuple and (not value or all(map(item, value)))
    if origin is tuple:
        parts = tuple(_check_of(each) for each in args)
        return lambda value: type(value) is tuple and _all_sound(parts, value)
    if _is_record(hint):
        fields = _field_checks(hint)
        return lambda value: type(value) is hint and _all_sound(fields, value)
    if hint in _NUMBERS:
        return _NUMBERS[hint]
    return lambda value: isinstance(value, hint)


def _all_sound(checks: tuple[_Check, ...], values: tuple[Any, ...]) -> bool:
    if len(checks) != len(values):
        return False
    return all(check(value) for check, value in zip(checks, values, strict=True))


# Users' numbers arrive as they gave them: those of NumPy and the like count too.
_NUMBERS: dict[type, _Check] = {
    int: lambda value: type(value) is int or hasattr(value, "__index__"),
    float: lambda value: type(value) is float or hasattr(value, "__float__"),
}
