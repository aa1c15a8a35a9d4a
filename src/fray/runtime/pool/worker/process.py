"""One worker process: hears from the head, hands tasks to executor and actors, ends when the head is gone.

Made by `nanny`, which forks it and calls `run_worker`. Which task runs where is the head's decision; how a
task runs is `execution`'s.
"""

from __future__ import annotations

import contextvars
import gc
import importlib
import math
import os
import select
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from fray.errors import HandshakeError, PeerUnreachableError
from fray.runtime.pool.client.client import PoolClient
from fray.runtime.pool.host_config import HostConfig
from fray.runtime.pool.messages.specs import Profile, WorkerId
from fray.runtime.pool.objects.reader import ObjectReader
from fray.runtime.pool.objects.store import HostStore
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.worker.memory_limit import MemoryLimit
from fray.runtime.pool.worker.standard_output import flush_output
from fray.runtime.pool.worker.threads import (
    let_threads_know_their_task,
    start_apart,
    threads_of_tasks,
)
from fray.runtime.pool.worker.worker import Worker
from fray.vocabulary import EXIT_WORKER_ENDED, EXIT_WORKER_LOST_HEAD

__all__ = ["DRAIN", "run_worker"]

FLUSH_SECONDS = 1.0
"""How often an idle worker looks for references that were dropped."""
COLLECT_SHARE = 20
"""A garbage collection comes no sooner than after so many times the time that the last one took."""
WARN_SECONDS = 10.0
"""How long a worker that is to end waits for threads without a word."""
DRAIN = b"d"
"""Written to a worker's leash: it ends when it has ended what it runs."""


def run_worker(
    config: HostConfig,
    worker: WorkerId,
    profile: Profile,
    limit: MemoryLimit | None,
    *,
    store: HostStore,
    leash: int,
) -> NoReturn:
    """Be a worker until the end of this process; call it on the main thread.

    `leash` is the reading end of a pipe from the nanny: DRAIN may come, or its end, at which this ends too.
    `limit`, see `Worker`.

    Raises `TransportError` if the head refuses it, and what `config.attach` raises.
    """
    connection = _connect(config)
    _Process(config, worker, profile, limit, store, connection).run(leash)


def _connect(config: HostConfig) -> BlockingConnection:
    try:
        return BlockingConnection.connect(Address.parse(config.head), config.key)
    except (PeerUnreachableError, HandshakeError) as error:
        if isinstance(error, HandshakeError) and error.reason != "truncated":
            raise
        # The pool ends while this starts, mostly; if not, the nanny tells the head how this ended.
        _end_without_head()


class _Process(Worker):
    """The worker that a process is, from its first task to its end."""

    def __init__(
        self,
        config: HostConfig,
        worker: WorkerId,
        profile: Profile,
        limit: MemoryLimit | None,
        store: HostStore,
        connection: BlockingConnection,
    ) -> None:
        context = contextvars.Context()
        super().__init__(
            worker,
            connection,
            store,
            host=config.host,
            key=config.key,
            name=f"worker {worker} on {config.name}",
            context=context,
            max_calls=profile.max_calls or -1,
            limit=limit,
        )
        context.run(_attach, config, self.client, self.objects)
        self._draining = False
        self._warn_at = 0.0
        self._collect_at = 0.0

    def run(self, leash: int) -> NoReturn:
        os.register_at_fork(after_in_child=self._leave_to_parent)
        let_threads_know_their_task()
        start_apart(lambda: self._watch(leash), "fray-leash")
        start_apart(self._receive, "fray-reader")
        # The first task may need the main thread, so it is there before the head hears of this worker.
        self._threads.lend_this_thread(self.greet)
        raise AssertionError("the main thread was lent for ever")

    def _leave_to_parent(self) -> None:
        # A child that user code forks must not write into the connection, nor keep it open.
        _cover(self._connection.fileno())
        self.client.close_in_fork()

    # --- threads of the worker's own -----------------------------------------------------------------------

    def _receive(self) -> None:
        try:
            self.receive()
        except BaseException:  # noqa: BLE001 - reported, and the process ends
            # The worker can't hear any more: it would look alive, and do nothing.
            sys.excepthook(*sys.exc_info())
            os._exit(1)

    def _watch(self, leash: int) -> None:
        poll = select.poll()
        poll.register(leash, select.POLLIN)
        while True:
            if not poll.poll(FLUSH_SECONDS * 1000):
                # A thread that a task or an actor has started may drop a reference when nothing else is sent.
                self.client.flush()
                self.on_idle()
                if self._forgot and time.monotonic() >= self._collect_at:
                    with suppress(RuntimeError):  # no thread can be started now
                        self._threads.run(self._collect)
                        self._forgot = False
            elif order := os.read(leash, 1):
                if order == DRAIN:
                    self.drain()
            else:
                _end_without_head()

    def _collect(self) -> None:
        """Free functions that refer to themselves: they hold what they have captured until this is done."""
        begun = time.monotonic()
        if gc.isenabled():
            gc.collect()
        now = time.monotonic()
        self._collect_at = now + COLLECT_SHARE * (now - begun)

    def drain(self) -> None:
        """End the process once nothing runs."""
        self._draining = True
        self._actors.ask_to_end()
        self.on_idle()

    def on_idle(self) -> None:
        """End the process if it is to, and nothing runs."""
        if not ((self._draining or self._calls_left == 0) and self._executor.idle and self._actors.idle):
            return
        if threads := threads_of_tasks():  # as any program does; `_watch` looks again
            self._warn_of_threads(threads)
            return
        self.client.flush()
        self._outbox.flush()
        flush_output()
        os._exit(EXIT_WORKER_ENDED)

    def _warn_of_threads(self, threads: Sequence[threading.Thread]) -> None:
        now = time.monotonic()
        if not self._warn_at:
            self._warn_at = now + WARN_SECONDS
        elif now > self._warn_at:
            self._warn_at = math.inf
            names = ", ".join(thread.name for thread in threads)
            sys.stderr.write(
                f"fray: worker {self.id} is to end and waits for threads that its tasks started: {names}. "
                "Join them in the task, or make them daemons\n"
            )

    def lose_head(self) -> NoReturn:
        """End the process."""
        _end_without_head()


def _attach(config: HostConfig, client: PoolClient, objects: ObjectReader) -> None:
    if config.attach:
        module, _, name = config.attach.partition(":")
        getattr(importlib.import_module(module), name)(config.token, client, objects)


def _end_without_head() -> NoReturn:
    os._exit(EXIT_WORKER_LOST_HEAD)


def _cover(descriptor: int) -> None:
    """Put nothing in the place of a descriptor that belongs to the parent, so that its number stays taken."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)
