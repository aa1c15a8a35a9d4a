"""How items become bytes and back. Nothing here may decide whether bytes can be trusted: callers have."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from fray.errors.queue import QueueArgumentError, QueueItemError

__all__ = ["decode_item", "encode_item"]


def encode_item(item: object) -> bytes:
    """Pickle an item, functions and classes of `__main__` by value.

    Raises:
        QueueArgumentError: it can't be pickled.
    """
    try:
        return bytes(cloudpickle.dumps(item, protocol=pickle.HIGHEST_PROTOCOL))
    except Exception as error:
        raise QueueArgumentError("item", f"can't be pickled ({type(error).__name__}: {error})") from error


def decode_item(data: bytes, *, lease_id: str = "") -> Any:
    """Unpickle an item of a trusted queue.

    Raises:
        QueueItemError: it can't be unpickled in this process; `lease_id` is how it can still be ended.
    """
    try:
        return pickle.loads(data)
    except Exception as error:
        raise QueueItemError(lease_id, f"{type(error).__name__}: {error}") from error
