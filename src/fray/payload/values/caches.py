"""Functions and properties with a cache of `functools`, by value.

Pickle knows such functions by their name alone, and properties have a lock up to Python 3.11. What they have
cached stays behind. Which ones have to go by value is for `pickling` to say.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["has_lock", "is_cached_function", "reduce_cached_function", "reduce_cached_property"]


class _Later:
    """A function that isn't known yet: one that calls itself is in its own globals."""

    __slots__ = ("function",)

    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def is_cached_function(value: object) -> bool:
    """Whether `functools.cache` or `functools.lru_cache` made this."""
    return isinstance(value, functools._lru_cache_wrapper)


def reduce_cached_function(cached: Any) -> tuple[Any, ...]:
    """Return how to make it elsewhere, as `object.__reduce__` does."""
    parameters = cached.cache_parameters()
    return _make, (parameters["maxsize"], parameters["typed"]), cached.__wrapped__, None, None, _fill


def has_lock(value: object) -> bool:
    """Whether this is a `functools.cached_property` of a Python whose ones have a lock."""
    return isinstance(value, functools.cached_property) and "lock" in vars(value)


def reduce_cached_property(cached: Any) -> tuple[Any, ...]:
    """Return how to make it elsewhere, with a lock of its own, as `object.__reduce__` does."""
    state = {name: value for name, value in vars(cached).items() if name != "lock"}
    return _make_property, (type(cached),), state


def _make_property(kind: Any) -> Any:
    made = kind.__new__(kind)
    made.lock = threading.RLock()
    return made


def _make(maxsize: int | None, typed: bool) -> Any:  # noqa: FBT001 - pickle has no keywords here
    return functools.lru_cache(maxsize=maxsize, typed=typed)(_Later())


def _fill(cached: Any, function: Callable[..., Any]) -> None:
    cached.__wrapped__.function = function
    functools.update_wrapper(cached, function)
