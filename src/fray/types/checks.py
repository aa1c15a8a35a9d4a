"""Checks that several parts of a request share, each an error that says where and what to write.

Only the types and ranges of Python values; which names a cluster allows is judged by `fray.wire`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, ParamSpec, TypeGuard, TypeVar

from fray.errors import InvalidRequestError, InvalidTypeError

__all__ = [
    "check_count",
    "check_image",
    "check_text",
    "check_texts",
    "choose_spelling",
    "is_encodable",
    "is_whole_number",
    "refuse_keywords",
    "show_value",
]

P = ParamSpec("P")
R = TypeVar("R")

_SHOWN: Final = 80
"""Characters of a value that errors show."""


def refuse_keywords(owner: str, **remedies: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function raise `InvalidTypeError` for keywords of an earlier API, with what to write instead.

    None was their default, and means nothing here either.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name, remedy in remedies.items():
                if kwargs.pop(name, None) is not None:
                    raise InvalidTypeError(f"{owner}.{name}", "was part of an earlier API", remedy)
            return function(*args, **kwargs)

        return call

    return decorate


def check_text(field: str, value: Any, *, remedy: str) -> str:
    """Return text that isn't empty and that a process or a file can hold.

    Raises:
        InvalidRequestError: It is no text, is empty, or has a character that UTF-8 or C strings don't.
    """
    if not isinstance(value, str):
        raise InvalidRequestError(field, f"is of type {type(value).__name__}, not text", remedy)
    if not value.strip():
        raise InvalidRequestError(field, "is empty", remedy)
    if not is_encodable(value):
        raise InvalidRequestError(field, "holds a character that UTF-8 text can't", remedy)
    return value


def check_texts(field: str, value: Any, *, remedy: str) -> tuple[str, ...]:
    """Return a list of texts as a tuple; None is an empty one.

    Raises:
        InvalidRequestError: It is no list of texts; one text alone isn't, since it would count as
            a list of its letters.
    """
    if value is None:
        return ()
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InvalidRequestError(field, f"is of type {type(value).__name__}, not a list of texts", remedy)
    return tuple(
        check_text(f"{field}[{index}]", item, remedy=remedy) for index, item in enumerate(tuple(value))
    )


def check_count(field: str, value: Any, *, least: int, most: int) -> int:
    """Return a whole number within its limits.

    Raises:
        InvalidRequestError: It is something else; True and False are no numbers here.
    """
    if not is_whole_number(value) or not least <= value <= most:
        problem = f"is {show_value(value)}"
        raise InvalidRequestError(field, problem, f"Give a whole number from {least} to {most}.")
    return value


def is_whole_number(value: Any) -> TypeGuard[int]:
    """Return whether a value is a whole number; True and False are none here."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_image(field: str, value: Any) -> str:
    """Return the name of a container image.

    Raises:
        InvalidRequestError: It is no text, is empty, or has spaces, so that every node would refuse it.
    """
    remedy = "Name an image, such as 'python:3.12-slim'."
    if any(character.isspace() for character in check_text(field, value, remedy=remedy)):
        raise InvalidRequestError(field, f"is {show_value(value)}, with spaces", remedy)
    return str(value)


def choose_spelling(owner: str, given: Mapping[str, Any], *, default: Any = None) -> Any:
    """Return the one value that was given under one of several spellings of a field.

    Raises:
        InvalidRequestError: Two spellings were used, for different values.
    """
    used = {name: value for name, value in given.items() if value is not None}
    values = list(used.values())
    if any(value != values[0] for value in values[1:]):
        names = " and ".join(used)
        remedy = f"They mean the same: give {next(iter(given))} only."
        raise InvalidRequestError(owner, f"has both {names}, with different values", remedy)
    return values[0] if values else default


def show_value(value: Any) -> str:
    """Return what an error shows of a value that was given: its repr, cut, or its type where that fails."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the value's own code runs; Python itself refuses very long integers
        return f"of type {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def is_encodable(text: str) -> bool:
    """Return whether a process can have the text as an argument or a variable."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text
