"""The head as a process of its own, as pods have it: all its clients are other processes.

It never unpickles what users have pickled, and needs the standard library only. How it is called is in
`__main__`; what differs in a thread of a driver is in `head`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fray.errors import AddressError
from fray.runtime.pool.head.dispatcher import Dispatcher
from fray.runtime.pool.head.membership import Membership
from fray.runtime.pool.head.metrics_server import MetricsServer
from fray.runtime.pool.head.pages import PoolPages
from fray.runtime.pool.head.peers import Peers
from fray.runtime.pool.head.scaling import PoolWorkload, ScaleLimits, ScaleWriter, keep_scale
from fray.runtime.pool.host.processes import watch_end
from fray.runtime.pool.messages.greetings import HostWelcome, PoolFailed
from fray.runtime.pool.messages.specs import Shape
from fray.runtime.pool.state import PoolState
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.endpoints import Server, serve
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.transport.refusals import RefusalCounts
from fray.runtime.pool.transport.sockets import unlink_socket

__all__ = ["HeadConfig", "run_head"]

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often it looks whether the pool stands still."""


@dataclass(frozen=True)
class HeadConfig:
    """The head of one pool."""

    token: str = field(repr=False)
    """The pool's name, unique."""
    attach: str
    """`module:function`, called in each worker with token, client and objects before its first task."""
    listen: tuple[Address, ...]
    """Where it listens."""
    key: TransportKey
    socket: Address | None = None
    """Where it listens besides, if it can: in a volume of its pod, which nobody else writes to."""
    metrics: Address | None = None
    """Where the pool's pages are shown: a unix socket, or TCP for anybody."""
    job: str = ""
    """The job whose pool it is; empty: none."""
    owner: int = 0
    """The process that the pool belongs to, which is this one's parent; 0: none."""
    allowed: tuple[Shape, ...] | None = None
    """What each kind of host has that may join; None: nobody knows."""
    inline_limit: int | None = None
    """Bytes of values that are kept in messages; None: a gigabyte."""
    is_attempt: bool = False
    """Whether an attempt of a job is over with this pool, so that nobody is to wait for another head."""
    over: str = ""
    """Why that attempt is over already: then there is no pool, and who connects gets that answer."""
    limits: ScaleLimits | None = None
    """How many workers it may ask for; None: others decide that."""
    scale: ScaleWriter | None = None
    """Where it asks for them."""


class _HeadProgram:
    """Runs a pool on the running event loop, from `listen` until `ended` is set."""

    def __init__(self, config: HeadConfig) -> None:
        self.ended = asyncio.Event()
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._on_bug)
        self._refusals = RefusalCounts()
        self._peers = Peers()
        state = PoolState(config.allowed, inline_limit=config.inline_limit)
        self._dispatcher = Dispatcher(self._loop, state, peers=self._peers)
        self._pages = PoolPages(state, self._refusals, job=config.job)
        self._membership = Membership(
            self._loop, self._dispatcher, peers=self._peers, refusals=self._refusals
        )
        self._membership.welcome = HostWelcome(0, config.token, config.attach)
        self._membership.over = config.over
        self.failure = ""
        """What ended the pool, if that was a defect of its head."""
        self._servers: list[Server] = []
        self._metrics: MetricsServer | None = None

    async def listen(self) -> list[Address]:
        """Listen on all addresses; return the real ones."""
        if self._config.socket is not None:
            # First: a process that looks here before it tries the other address should find it open.
            await self._listen_in_pod(self._config.socket)
        for address in self._config.listen:
            self._servers.append(await self._serve(address))
        if (metrics := self._config.metrics) is not None:
            self._metrics = MetricsServer(metrics, self._pages.pages)
            await self._metrics.start()
        self._loop.call_later(LOOK_SECONDS, self._look)
        config = self._config
        if config.limits is not None and config.scale is not None and not config.over:
            workload = PoolWorkload(self._dispatcher)
            keep_scale(self._loop, workload, limits=config.limits, scale=config.scale)
        return [server.address for server in self._servers]

    async def _listen_in_pod(self, address: Address) -> None:
        try:
            unlink_socket(address)  # of a head before this one, which left it when it was killed
            self._servers.append(await self._serve(address))
        except (AddressError, OSError) as error:
            _log.warning("processes of this pod come by TCP: %s", error)

    async def _serve(self, address: Address) -> Server:
        on_connection = self._membership.on_connection
        return await serve(address, self._config.key, on_connection, refusals=self._refusals)

    def stop(self) -> None:
        """Let the pool end."""
        self._dispatcher.stopped = True
        self.ended.set()

    async def close(self) -> None:
        """Cut all connections, at which nannies end their workers, and listen no more."""
        self.stop()
        if self._config.is_attempt and not self._membership.over:
            self._membership.over = self.failure or "the main container of rank 0 has ended"
            await self._peers.tell_over(self._membership.over)
        self._peers.close()
        await asyncio.gather(*(server.close() for server in self._servers))
        if self._metrics is not None:
            await self._metrics.close()

    def _on_bug(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # A callback that raised may have left the state between two of its own: nothing can be trusted.
        error = context.get("exception")
        _log.error("the pool's head failed: %s", context.get("message"), exc_info=error)
        if not self._dispatcher.stopped:
            self.failure = f"its head: {type(error).__name__}: {error}"
            self._peers.tell_clients(PoolFailed(self.failure))
            self.stop()

    def _look(self) -> None:
        if self._dispatcher.stopped:
            return
        self._peers.beat()
        self._pages.note()
        for warning in self._dispatcher.state.find_warnings(time.monotonic()):
            _log.warning("%s", warning)
        self._loop.call_later(LOOK_SECONDS, self._look)


async def run_head(config: HeadConfig, ready: Callable[[list[Address]], None]) -> bool:
    """Be the head of a pool until SIGTERM, or until its owner has gone; return False if it failed before.

    `ready` gets the addresses once it listens.

    Raises `AddressError` or `TransportKeyError` if it can't.
    """
    _make_room_for_peers()
    loop = asyncio.get_running_loop()
    head = _HeadProgram(config)
    loop.add_signal_handler(signal.SIGTERM, head.stop)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT) if config.owner else ():
        signal.signal(number, signal.SIG_IGN)  # from the owner's terminal: it decides what they mean
    end = watch_end(config.owner) if config.owner else None
    if end is not None:
        loop.add_reader(end, head.stop)
    try:
        if config.owner and os.getppid() != config.owner:
            return True  # it has gone already
        ready(await head.listen())
        await head.ended.wait()
    finally:
        await head.close()
    return not head.failure


def _make_room_for_peers() -> None:
    """Let this process have as many connections as it may.

    Where containers begin with 1,024 open files, the pool would end at some 200 hosts.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
