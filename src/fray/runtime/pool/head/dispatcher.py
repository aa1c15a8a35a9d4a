"""Between the state machine and the world: hands it each event, and each of its commands to whom it is for.

All on the loop's thread, so that nothing of it needs a lock. It decides nothing, and it never looks into a
value. Where events come from is the business of `inbox` and `membership`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from fray.runtime.pool.client.backpressure import SubmitLimit
from fray.runtime.pool.head.peers import Peers
from fray.runtime.pool.machine.message_checks import RefusedMessageError
from fray.runtime.pool.messages.commands import (
    AnswerActor,
    CancelTask,
    CheckObject,
    CopyObject,
    CreateActor,
    Deliver,
    DeliverItems,
    DropTimer,
    EndActor,
    ForgetFunctions,
    FreeObject,
    LimitInline,
    ReclaimTasks,
    ReleaseHost,
    ResumeGenerator,
    RunTask,
    SetTimer,
    SpillObject,
    StartWorker,
    StopWorker,
)
from fray.runtime.pool.messages.events import Event, ObjectChecked, ObjectRelayed, TimerFired
from fray.runtime.pool.messages.greetings import TasksEnded
from fray.runtime.pool.messages.specs import DRIVER, ClientId, HostId, ObjectId
from fray.runtime.pool.objects.store import HostStore
from fray.runtime.pool.state import PoolState

__all__ = ["Dispatcher", "Driver", "ToClient"]

ToWorker: TypeAlias = (
    RunTask | CreateActor | EndActor | CancelTask | ReclaimTasks | ResumeGenerator | ForgetFunctions
)
ToClient: TypeAlias = Deliver | DeliverItems | AnswerActor | LimitInline


@dataclass
class Driver:
    """The driver whose thread the head is. Its own host is the `home` of the peers."""

    store: HostStore
    limit: SubmitLimit
    """Takes note of what has ended."""
    on_news: Callable[[list[ToClient]], None]
    """Takes what is for its client."""
    fetch: Callable[[ObjectId, HostId], int]
    """Copies an object of another host to this one, in a thread; returns its size, or 0 if it can't."""


class Dispatcher:
    """Feeds `state` and carries out its commands; what these send leaves with the next `flush`.

    Parameters: the `loop` for timers; `state`, fresh; the `peers` to send to; the `driver`, if this is a
    thread of it.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        state: PoolState,
        *,
        peers: Peers,
        driver: Driver | None = None,
    ) -> None:
        self.state = state
        self.stopped = False
        """Whether the pool has ended: nobody is to bring any event from here on. Any thread may set it."""
        self._loop = loop
        self._peers = peers
        self._driver = driver
        self._news: list[ToClient] = []
        """What is for the driver's own client."""
        self._waiting: dict[ClientId, tuple[int, int]] = {}
        """Other clients with threads that wait until tasks have ended -> what they know of that."""
        self._timers: dict[tuple[str, int], asyncio.TimerHandle] = {}
        self._carry_out: dict[type, Callable[[Any], None]] = {
            **dict.fromkeys((Deliver, DeliverItems, AnswerActor, LimitInline), self._to_client),
            **dict.fromkeys(
                (
                    RunTask,
                    CreateActor,
                    EndActor,
                    CancelTask,
                    ReclaimTasks,
                    ResumeGenerator,
                    ForgetFunctions,
                ),
                self._to_worker,
            ),
            StartWorker: self._start_worker,
            StopWorker: self.stop_worker,
            FreeObject: self._free,
            SpillObject: self._to_nanny,
            ReleaseHost: self._to_nanny,
            CheckObject: self._check,
            CopyObject: self._copy,
            SetTimer: self._set_timer,
            DropTimer: self._drop_timer,
        }

    # --- events --------------------------------------------------------------------------------------------

    def handle(self, source: ClientId, event: Event) -> None:
        """Let the state machine decide upon an event, and carry that out.

        Raises `RefusedMessageError` for what a worker shouldn't have sent, after what was decided before; for
        an event of the driver whatever the state machine raises.
        """
        carry_out = self._carry_out
        try:
            commands = self.state.handle(source, event, time.monotonic())
        except Exception as error:
            if source == DRIVER:
                raise
            for command in self.state.take_decided():
                carry_out[type(command)](command)
            if isinstance(error, RefusedMessageError):
                raise
            problem = f"can't be dealt with: {type(error).__name__}: {error}"
            raise RefusedMessageError(type(event).__name__, problem) from error
        for command in commands:
            carry_out[type(command)](command)

    def handle_later(self, seconds: float, source: ClientId, event: Event) -> None:
        """Handle the event after some seconds, if the pool hasn't ended by then."""
        self._loop.call_later(seconds, self._handle_now, source, event)

    def _handle_now(self, source: ClientId, event: Event) -> None:
        if not self.stopped:
            self.handle(source, event)
            self.flush()

    def flush(self) -> None:
        """Let all have what was decided for them."""
        driver = self._driver
        if driver is not None:
            if self._news:
                news, self._news = self._news, []
                driver.on_news(news)
            if driver.limit.has_waiters:
                driver.limit.note_ended(*self.state.ended(DRIVER))
        if self._waiting:
            self._tell_ended()
        if self._peers.unsent:
            self._peers.flush()

    def tell_ended(self, client: ClientId, *, on: bool) -> None:
        """Let a client know how many of its tasks have ended, now and from now on; or not any more."""
        if on:
            self._waiting[client] = (-1, -1)
        else:
            self._waiting.pop(client, None)

    def _tell_ended(self) -> None:
        for client, known in tuple(self._waiting.items()):
            ended = self.state.ended(client)
            peer = self._peers.clients.get(client)
            if peer is None:
                del self._waiting[client]
            elif ended != known:
                self._waiting[client] = ended
                self._peers.send(peer, TasksEnded(*ended))

    # --- commands ------------------------------------------------------------------------------------------

    def _to_worker(self, command: ToWorker) -> None:
        peer = self._peers.workers.get(command.worker)
        # Without a connection it is lost, and the state will hear so.
        if peer is not None:
            self._peers.send(peer, command)

    def _to_client(self, command: ToClient) -> None:
        if command.client == DRIVER and self._driver is not None:
            self._news.append(command)
            return
        peer = self._peers.workers.get(command.client) or self._peers.clients.get(command.client)
        if peer is not None:
            self._peers.send(peer, command)

    def _start_worker(self, command: StartWorker) -> None:
        self._peers.expect_worker(command.worker, command.host)
        self._peers.send_to_nanny(command.host, command)

    def stop_worker(self, command: StopWorker) -> None:
        """Have a worker stopped: by itself, or by its nanny if it is to be killed or isn't connected."""
        host = self._peers.home_of(command.worker)
        peer = self._peers.workers.get(command.worker)
        if not command.kill and peer is not None:
            self._peers.send(peer, command)  # so it can't overtake a task that was sent before
        elif host is not None:
            self._peers.send_to_nanny(host, command)

    def _free(self, command: FreeObject) -> None:
        if self._driver is not None and command.host == self._peers.home:
            self._driver.store.free(command.id)
        else:
            self._to_nanny(command)

    def _to_nanny(self, command: FreeObject | SpillObject | CheckObject | ReleaseHost) -> None:
        self._peers.send_to_nanny(command.host, command)

    def _check(self, command: CheckObject) -> None:
        if self._driver is None or command.host != self._peers.home:
            self._to_nanny(command)
        else:
            there = self._driver.store.keep(command.id)
            self.handle_later(0, DRIVER, ObjectChecked(command.id, command.host, there))

    def _copy(self, command: CopyObject) -> None:
        driver, home = self._driver, self._peers.home
        if driver is not None and home is not None and command.host != home:
            # In a thread: it may take long.
            relay = partial(self._relay, driver, home, command)
            threading.Thread(target=relay, name="fray-relay", daemon=True).start()
        elif driver is None and (peer := self._peers.find_relay(command.host)) is not None:
            self._peers.send(peer, command)
        else:  # there's no host but its own that could relay it
            self.handle_later(0, DRIVER, ObjectRelayed(command.id, command.host, 0))

    def _relay(self, driver: Driver, home: HostId, command: CopyObject) -> None:
        relayed = ObjectRelayed(command.id, home, driver.fetch(command.id, command.host))
        with contextlib.suppress(RuntimeError):  # the loop has just been closed
            self._loop.call_soon_threadsafe(self._handle_now, DRIVER, relayed)

    def _set_timer(self, command: SetTimer) -> None:
        timer = self._loop.call_later(command.seconds, self._fire, command.key)
        if command.key[0] == "timeout":
            # One for each task, for as long as it takes; of the others there are few, or they are short.
            self._drop_timer(DropTimer(command.key))
            self._timers[command.key] = timer

    def _drop_timer(self, command: DropTimer) -> None:
        timer = self._timers.pop(command.key, None)
        if timer is not None:
            timer.cancel()

    def _fire(self, key: tuple[str, int]) -> None:
        self._timers.pop(key, None)
        self._handle_now(DRIVER, TimerFired(key))
