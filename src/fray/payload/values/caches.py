"""Functions with a cache of `functools`, by value: pickle knows them by their name alone.

What they have cached stays behind. Which ones have to go by value is for `pickling` to say.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["is_cached_function", "reduce_cached_function"]


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


def _make(maxsize: int | None, typed: bool) -> Any:  # noqa: FBT001 - pickle has no keywords here
    return functools.lru_cache(maxsize=maxsize, typed=typed)(_Later())


def _fill(cached: Any, function: Callable[..., Any]) -> None:
    cached.__wrapped__.function = function
    functools.update_wrapper(cached, function)
