"""A lease queue can't do what was asked: its user acts, or whoever runs its storage or server."""

from __future__ import annotations

from dataclasses import dataclass

from fray.errors.base import FrayError
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


@dataclass(eq=False)
class LeaseLostError(RequestError, ValueError):
    """A lease that its holder has no more: done, released, or expired and its item handed out again."""

    lease_id: str

    @property
    def message(self) -> str:
        """The lease and why it may be gone."""
        return f"Invalid lease {self.lease_id}: it was ended, or it expired and another holder has the item"

    @property
    def next_step(self) -> str:
        """How not to lose it."""
        return "Ask pop for a longer lease_timeout, or call renew while the work goes on."


@dataclass(eq=False)
class QueueArgumentError(RequestError, ValueError):
    """An argument that no queue can work with."""

    argument: str
    problem: str

    @property
    def message(self) -> str:
        """The argument and what is wrong with it."""
        return f"{self.argument} {self.problem}"

    @property
    def next_step(self) -> str:
        """What to change."""
        return "Correct it in the call."


@dataclass(eq=False)
class QueueNotSharedError(RequestError):
    """A MemoryQueue met another process than the one that made it; a copy would lose or repeat items."""

    pid: int

    @property
    def message(self) -> str:
        """Whose queue it is."""
        return f"this MemoryQueue belongs to process {self.pid} and can't be used from another"

    @property
    def next_step(self) -> str:
        """What to use between processes."""
        return "Use FileQueue, or HttpQueueServer with the HttpQueue that its new_queue returns."


@dataclass(eq=False)
class QueueNotFoundError(RequestError, KeyError):
    """A server has no queue of this name."""

    name: str
    address: str

    @property
    def message(self) -> str:
        """The name and the server."""
        return f"no queue {self.name!r} at {self.address}"

    @property
    def next_step(self) -> str:
        """How to make one."""
        return "Make it with HttpQueueServer.new_queue in the server's process."

    # KeyError quotes its argument; the message must read the same as that of the other errors.
    __str__ = FrayError.__str__


@dataclass(eq=False)
class ItemTooLargeError(RequestError):
    """A pickled item is larger than the queue takes."""

    size: int
    limit: int

    @property
    def message(self) -> str:
        """Both sizes in bytes."""
        return f"the item has {self.size} bytes pickled; at most {self.limit} are allowed"

    @property
    def next_step(self) -> str:
        """What to push instead."""
        return "Store the data in a file and push its name, or raise max_item_bytes."


@dataclass(eq=False)
class QueueItemError(RequestError):
    """An item can't be unpickled in this process; another may be able to, once its lease ends."""

    lease_id: str
    problem: str

    @property
    def message(self) -> str:
        """What unpickling it raised."""
        return f"an item can't be unpickled here: {self.problem}"

    @property
    def next_step(self) -> str:
        """How to see or drop the item."""
        return "Import what it needs; or drop it: done(Lease(None, error.lease_id, 0)) with this error."


@dataclass(eq=False)
class QueueTokenError(RequestError):
    """A token is missing, too weak, or not the one of the other side."""

    address: str
    problem: str

    @property
    def message(self) -> str:
        """The server's address and what is wrong."""
        return f"{self.address}: {self.problem}"

    @property
    def next_step(self) -> str:
        """Where a token comes from."""
        return "Give server and clients the same token, such as that of secrets.token_urlsafe(32)."


@dataclass(eq=False)
class QueueFullError(SurroundingsError):
    """A server holds as much as it may; nothing was added."""

    name: str
    address: str

    @property
    def message(self) -> str:
        """The queue and its server."""
        return f"queue {self.name!r} at {self.address} is full"

    @property
    def next_step(self) -> str:
        """How to get room."""
        return "Push again once items are done, or raise the server's max_items or max_bytes."


@dataclass(eq=False)
class QueueUnreachableError(SurroundingsError):
    """A queue's server didn't answer, all repetitions included; what was asked for may have happened."""

    address: str
    problem: str

    @property
    def message(self) -> str:
        """The address and the last failure."""
        return f"no answer from the queue server at {self.address}: {self.problem}"

    @property
    def next_step(self) -> str:
        """What to look at."""
        return "See that the server runs and can be reached; a lease that was handed out meanwhile expires."


@dataclass(eq=False)
class QueueAnswerError(SurroundingsError):
    """An answer that no queue server with the token gives; nothing of it was unpickled."""

    address: str
    problem: str

    @property
    def message(self) -> str:
        """The address and what was wrong with the answer."""
        return f"{self.address} answered, but {self.problem}"

    @property
    def next_step(self) -> str:
        """What to look at."""
        return "See that the address is that of the queue server, with no proxy that changes answers."


@dataclass(eq=False)
class QueueServerError(SurroundingsError):
    """A queue server couldn't start."""

    address: str
    problem: str

    @property
    def message(self) -> str:
        """The address and the system's reason."""
        return f"can't serve queues at {self.address}: {self.problem}"

    @property
    def next_step(self) -> str:
        """How to find a free port."""
        return "Choose another port; 0 takes a free one."


@dataclass(eq=False)
class QueueStorageError(SurroundingsError):
    """A file system can't hold a FileQueue, or holds what no FileQueue wrote."""

    path: str
    problem: str

    @property
    def message(self) -> str:
        """The path and what is wrong with it."""
        return f"{self.path}: {self.problem}"

    @property
    def next_step(self) -> str:
        """Which file systems serve."""
        return (
            "Use a local directory with hard links, or an object store with exclusive creation: "
            "gs:// with the package gcsfs, s3:// with s3fs."
        )


@dataclass(eq=False)
class QueueAccessError(SurroundingsError):
    """A FileQueue's place can't be reached, read or written; what was asked for may have happened.

    It has vanished, it is no directory, the disk is full, or this process may not.
    """

    path: str
    problem: str

    @property
    def message(self) -> str:
        """The path and what the file system said."""
        return f"the queue at {self.path} can't be used: {self.problem}"

    @property
    def next_step(self) -> str:
        """What to look at."""
        return (
            "See that its directory is there with room on its disk, and that this process may read and "
            "write in it. If the directory was removed on purpose, make a new FileQueue."
        )
