"""Functions of `functools.singledispatch`, by value: what remembers their choices can't be pickled.

Which ones have to go by value is for `pickling` to say.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

__all__ = ["is_dispatching_function", "reduce_dispatching_function"]


def _new(name: str) -> Any:
    def placeholder(*_: Any) -> None:
        """Stands for the function that isn't known yet: one that calls itself is in its own globals."""

    placeholder.__name__ = name
    return functools.singledispatch(placeholder)


_CODE = _new("any").__code__


def is_dispatching_function(value: object) -> bool:
    """Whether `functools.singledispatch` made this."""
    return isinstance(value, FunctionType) and value.__code__ is _CODE


def reduce_dispatching_function(dispatching: Any) -> tuple[Any, ...]:
    """Return how to make it elsewhere, as `object.__reduce__` does."""
    return _new, (dispatching.__name__,), dict(dispatching.registry), None, None, _fill


def _fill(dispatching: Any, registry: Mapping[type, Callable[..., Any]]) -> None:
    for kind, function in registry.items():
        dispatching.register(kind, function)
    functools.update_wrapper(dispatching, registry[object])
