"""An earlier API's way to make an entrypoint of a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fray.types import Entrypoint

__all__ = ["create_thunk_entrypoint"]


def create_thunk_entrypoint(
    callable_fn: Callable[..., Any],
    prefix: str,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Entrypoint:
    """Return an entrypoint that calls the function on every host: `Entrypoint.from_callable`.

    Args:
        callable_fn: The function.
        prefix: Where the earlier API wrote the function; not used, since the job carries it.
        args: Its positional arguments.
        kwargs: Its keyword arguments.

    Raises:
        InvalidRequestError: It can't be called, or the arguments are no list and no mapping.
    """
    del prefix
    return Entrypoint.from_callable(callable_fn, args, kwargs)
