"""A lease queue can't do what was asked: its user acts, or the administrator of its storage or server."""

from __future__ import annotations

from fray.errors.request import RequestError
from fray.errors.surroundings import SurroundingsError

__all__ = [
    "ItemTooLargeError",
    "LeaseLostError",
    "QueueAccessError",
    "QueueAnswerError",
    "QueueArgumentError",
    "QueueFullError",
    "QueueItemError",
    "QueueNotFoundError",
    "QueueNotSharedError",
    "QueueServerError",
    "QueueStorageError",
    "QueueTokenError",
    "QueueUnreachableError",
]


class LeaseLostError(RequestError, ValueError):
    """A lease that its holder has no more: done, released, or expired and its item handed out again."""

    message = "Invalid lease {lease_id}: it was ended, or it expired and another holder has the item"
    next_step = "Ask pop for a longer lease_timeout, or call renew while the work goes on."

    lease_id: str


class QueueArgumentError(RequestError, ValueError):
    """An argument that no queue can work with."""

    message = "{argument} {problem}"
    next_step = "Correct it in the call."

    argument: str
    problem: str


class QueueNotSharedError(RequestError):
    """A MemoryQueue met another process than the one that made it; a copy would lose or repeat items."""

    message = "this MemoryQueue belongs to process {pid} and can't be used from another"
    next_step = "Use FileQueue, or HttpQueueServer with the HttpQueue that its new_queue returns."

    pid: int


class QueueNotFoundError(RequestError, KeyError):
    """A server has no queue of this name."""

    message = "no queue {name!r} at {address}"
    next_step = "Make it with HttpQueueServer.new_queue in the server's process."

    name: str
    address: str


class ItemTooLargeError(RequestError):
    """A pickled item is larger than the queue takes."""

    message = "the item has {size} bytes pickled; at most {limit} are allowed"
    next_step = "Store the data in a file and push its name, or raise max_item_bytes."

    size: int
    limit: int


class QueueItemError(RequestError):
    """An item can't be unpickled in this process; another may be able to, once its lease ends."""

    message = "an item can't be unpickled here: {problem}"
    next_step = "Import what it needs; or drop it: done(Lease(None, error.lease_id, 0)) with this error."

    lease_id: str
    problem: str


class QueueTokenError(RequestError):
    """A token is missing, too weak, or not the one of the other side."""

    message = "{address}: {problem}"
    next_step = "Give server and clients the same token, such as that of secrets.token_urlsafe(32)."

    address: str
    problem: str


class QueueFullError(SurroundingsError):
    """A server holds as much as it may; nothing was added."""

    message = "queue {name!r} at {address} is full"
    next_step = "Push again once items are done, or raise the server's max_items or max_bytes."

    name: str
    address: str


class QueueUnreachableError(SurroundingsError):
    """A queue's server didn't answer, all repetitions included; what was asked for may have happened."""

    message = "no answer from the queue server at {address}: {problem}"
    next_step = (
        "See that the server runs and can be reached; a lease that was handed out in the call expires."
    )

    address: str
    problem: str


class QueueAnswerError(SurroundingsError):
    """An answer that no queue server with the token gives; nothing of it was unpickled."""

    message = "{address} answered, but {problem}"
    next_step = "See that the address is that of the queue server, with no proxy that changes answers."

    address: str
    problem: str


class QueueServerError(SurroundingsError):
    """A queue server couldn't start."""

    message = "can't serve queues at {address}: {problem}"
    next_step = "Choose another port; 0 takes a free one."

    address: str
    problem: str


class QueueStorageError(SurroundingsError):
    """A file system can't hold a FileQueue, or holds what no FileQueue wrote."""

    message = "{path}: {problem}"
    next_step = (
        "Use a local directory with hard links, or an object store with exclusive creation: gs:// with the "
        "package gcsfs, s3:// with s3fs."
    )

    path: str
    problem: str


class QueueAccessError(SurroundingsError):
    """A FileQueue's place can't be reached, read or written; what was asked for may have happened.

    It has vanished, it is no directory, the disk is full, or this process may not.
    """

    message = "the queue at {path} can't be used: {problem}"
    next_step = (
        "See that its directory is there with room on its disk, and that this process may read and write "
        "in it. If the directory was removed on purpose, make a new FileQueue."
    )

    path: str
    problem: str
