"""Lease queues: items are handed out for a time, and come back unless their holder says it is done.

Three of them with one behaviour: in memory for threads, in files for processes that share a file
system, over HTTP for those that share a network. Names are imported when first used: a user of one
queue doesn't pay for the libraries of the others. Nothing is defined here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fray.offered_names import HOMES, offer_names

if TYPE_CHECKING:
    from fray.queue.base import Lease as Lease
    from fray.queue.base import MemoryQueue as MemoryQueue
    from fray.queue.base import Queue as Queue
    from fray.queue.client import ClientLimits as ClientLimits
    from fray.queue.client import HttpQueue as HttpQueue
    from fray.queue.file import FileQueue as FileQueue
    from fray.queue.server import HttpQueueServer as HttpQueueServer
    from fray.queue.server import ServerLimits as ServerLimits

offer_names(__name__, tuple(home for home in HOMES if home.startswith(f"{__name__}.")))
