"""Lease queues: items are handed out for a time, and come back unless their holder says it is done.

Three of them with one behaviour: in memory for threads, in files for processes that share a file
system, over HTTP for those that share a network. Names are imported when first used: a user of one
queue doesn't pay for the libraries of the others. Nothing is defined here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fray.offered_names import import_home

if TYPE_CHECKING:
    from fray.queue.base import Lease, MemoryQueue, Queue
    from fray.queue.client import ClientLimits, HttpQueue
    from fray.queue.file import FileQueue
    from fray.queue.server import HttpQueueServer, ServerLimits

__all__ = [
    "ClientLimits",
    "FileQueue",
    "HttpQueue",
    "HttpQueueServer",
    "Lease",
    "MemoryQueue",
    "Queue",
    "ServerLimits",
]

_HOMES = {
    "ClientLimits": "fray.queue.client",
    "FileQueue": "fray.queue.file",
    "HttpQueue": "fray.queue.client",
    "HttpQueueServer": "fray.queue.server",
    "Lease": "fray.queue.base",
    "MemoryQueue": "fray.queue.base",
    "Queue": "fray.queue.base",
    "ServerLimits": "fray.queue.server",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_home(_HOMES[name], f"{__name__}.{name}"), name)


def __dir__() -> list[str]:
    return __all__
