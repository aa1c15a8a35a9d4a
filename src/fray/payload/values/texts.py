"""Texts of objects that may have none, or an endless one: their own code makes them.

What is reported to whom is for the callers to decide.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable

__all__ = ["TEXT_LIMIT", "cut", "text_of", "traceback_of", "type_name"]

TEXT_LIMIT = 64 * 1024
"""Characters that are kept of a text, such as that of an exception, or of its traceback."""


def text_of(thing: object, show: Callable[[object], str] = str) -> str:
    """Return what `show` makes of `thing`; if that raises, a text that says so."""
    try:
        return show(thing)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - the thing's own code runs; its failure is part of the text
        return f"<{type(thing).__qualname__}, whose text can't be had: {type(error).__qualname__}>"


def cut(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return a text of at most about `limit` characters: its begin and its end, and how much isn't there."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... [{len(text) - 2 * half} characters cut] ...\n{text[-half:]}"


def type_name(thing: object) -> str:
    """Return the name of a thing's type, with its module unless that is Python's own."""
    kind = type(thing)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def traceback_of(error: BaseException) -> str:
    """Return an exception's traceback, with those of its causes, as Python prints them."""
    return text_of(error, show=lambda _: "".join(traceback.format_exception(error)))
