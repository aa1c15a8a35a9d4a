"""A worker in a process that is a user's own: it has one actor, an object of that process, and no tasks.

The process goes on when its head is gone, when its actor has ended, and the other way round: it is asked for
nothing but its threads, which are daemons.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable
from typing import Any, Final

from fray.runtime.pool.messages.events import ActorEnded
from fray.runtime.pool.messages.specs import HostId, WorkerId
from fray.runtime.pool.objects.store import HostStore
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.worker.threads import start_apart
from fray.runtime.pool.worker.worker import Worker

__all__ = ["HostedWorker"]

_log: Final = logging.getLogger(__name__)


class HostedWorker(Worker):
    """The worker of a hosted actor.

    Parameters: as of `Worker`; `on_end` is called once or more, by any thread, when the actor has ended or
    the head is gone.
    """

    def __init__(  # noqa: PLR0913 - as of `Worker`
        self,
        worker: WorkerId,
        connection: BlockingConnection,
        store: HostStore,
        *,
        host: HostId,
        key: TransportKey,
        context: contextvars.Context,
        on_end: Callable[[], object],
    ) -> None:
        self._on_end = on_end
        name = f"the process that hosts the actor, worker {worker}"
        super().__init__(
            worker, connection, store, host=host, key=key, name=name, context=context, daemon=True
        )

    def start(self) -> None:
        """Begin to hear the head, in a thread."""
        start_apart(self._receive, "fray-hosted", daemon=True)
        self.greet()

    def close(self) -> None:
        """Let the actor's code know that it is over, and leave the head. May be called twice."""
        self._actors.close()
        self.client.close()
        self._connection.close()

    def forget(self) -> None:
        """Leave everything to the parent: this process is a fork of it."""
        self.client.close_in_fork()

    def lose_head(self) -> None:
        """Let the actor be over."""
        self._on_end()

    def drain(self) -> None:
        """Do nothing: who hosts an actor ends it."""

    def on_idle(self) -> None:
        """Do nothing, as above."""

    def tell_end(self, message: Any, *, soon: bool = False) -> None:
        """Tell of an end; that of the actor is told to the process, too."""
        super().tell_end(message, soon=soon)
        if type(message) is ActorEnded:
            self._on_end()

    def _receive(self) -> None:
        try:
            self.receive()
        except BaseException:
            # It can't hear any more: the actor would look alive, and do nothing.
            _log.exception("a hosted actor has ended, since its connection failed")
            self._on_end()
            raise
