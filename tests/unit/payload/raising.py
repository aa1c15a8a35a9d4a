"""Errors that were raised, so that they have a traceback."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["raised", "throw"]


def throw(error: BaseException) -> NoReturn:
    raise error


def raised(error: BaseException) -> BaseException:
    """Return an error once it was raised."""
    try:
        throw(error)
    except BaseException as caught:  # noqa: BLE001 - any
        return caught
    raise AssertionError
