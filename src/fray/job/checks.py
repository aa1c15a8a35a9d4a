"""What users give as options, checked where they give it: later it would fail in another process.

Nothing here knows what an option means.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from fray.errors import InvalidOptionError, InvalidTypeError
from fray.runtime.container import spell_resources

__all__ = [
    "check_class",
    "check_count",
    "check_env",
    "check_exceptions",
    "check_name",
    "check_resources",
    "check_seconds",
]

MOST = 1e18
"""Of any resource; an exabyte."""


def check_class(made_by: Any) -> None:
    """Raise `InvalidTypeError` unless an actor can be made by it: a class, or a function that returns one."""
    if not callable(made_by):
        remedy = "Give its class, or a function that returns it; host_actor serves an object that is there."
        raise InvalidTypeError("actor", f"can't be made by an object of {type(made_by).__name__}", remedy)


def check_count(option: str, value: Any, minimum: int) -> int:
    """Return a whole number that is at least `minimum`.

    Raises `InvalidOptionError`.
    """
    try:
        count = operator.index(value)
    except TypeError:
        count = minimum - 1
    if count < minimum:
        raise InvalidOptionError(option, repr(value), f"whole numbers of {minimum} or more")
    return count


def check_seconds(option: str, value: Any) -> None:
    """Raise `InvalidOptionError` unless it is a number of seconds above 0."""
    if not isinstance(value, int | float) or not value > 0:
        raise InvalidOptionError(option, repr(value), "seconds above 0, or None")


def check_name(option: str, value: Any) -> None:
    """Raise `InvalidOptionError` unless it is text, or None."""
    if value is not None and not isinstance(value, str):
        raise InvalidOptionError(option, repr(value), "text")


def check_resources(resources: Mapping[Any, Any] | None) -> Mapping[str, float] | None:
    """Return quantities by name, with one spelling of "CPU", "GPU" and "TPU".

    Raises `InvalidOptionError`.
    """
    if resources is None:
        return None
    for name, quantity in resources.items():
        check_name("resources", name)
        known = isinstance(quantity, int | float) and math.isfinite(quantity)
        if not known or not 0 <= quantity <= MOST:
            raise InvalidOptionError(f"resources[{name!r}]", repr(quantity), f"0 to {MOST:g}")
        if name == "memory" and 0 < quantity < 1:
            raise InvalidOptionError("resources['memory']", repr(quantity), "bytes, such as 1e9, or 0")
    spelled = spell_resources(resources)
    if len(spelled) < len(resources):
        names = ", ".join(map(repr, resources))
        raise InvalidOptionError("resources", names, "each resource once: 'gpu' and 'GPU' are the same")
    return spelled


def check_env(env: Mapping[Any, Any] | None) -> None:
    """Raise `InvalidOptionError` unless a process can have these variables."""
    for name, value in (env or {}).items():
        if not _is_encodable(name) or not name or "=" in name:
            raise InvalidOptionError("env", repr(name), "names of variables, which hold no '='")
        if not _is_encodable(value):
            # The value isn't shown: it may be secret.
            what = f"of type {type(value).__name__}" if not isinstance(value, str) else "text of another kind"
            raise InvalidOptionError(f"env[{name!r}]", what, "text that is UTF-8 and has no NUL character")


def check_exceptions(option: str, value: Any) -> bool | tuple[type[BaseException], ...]:
    """Return which exceptions are meant: any (True), none (False), or those of the classes in a tuple.

    Raises `InvalidOptionError`.
    """
    if isinstance(value, bool):
        return value
    given = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    if not all(isinstance(each, type) and issubclass(each, BaseException) for each in given):
        raise InvalidOptionError(option, repr(value), "True, False, or classes of exceptions")
    return given


def _is_encodable(text: Any) -> bool:
    if not isinstance(text, str) or "\0" in text:
        return False
    try:
        text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
    return True
