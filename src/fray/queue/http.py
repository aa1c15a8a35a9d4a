"""The client and the server of a queue, where programs of earlier APIs import them from."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fray.queue.client import ClientLimits, HttpQueue

__all__ = ["ClientLimits", "HttpQueue"]


def __getattr__(name: str) -> Any:
    if name == "HttpQueueServer":  # the server's libraries aren't loaded for a client
        return getattr(import_module("fray.queue.server"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
