"""One connection to an API server for all threads of a process, opened by the first call.

Calls are functions of an `Access`; they run on the session's own loop. Credentials that the server no longer
accepts are read anew, and the call begins anew with them: plugins of kubeconfigs hand out tokens that last an
hour, and a call that waits may take days.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fray.cluster.kubernetes.access import Access, OpenAccess
from fray.cluster.kubernetes.api_errors import explain
from fray.errors import ClusterClosedError
from fray.kube.errors import ApiError, UnauthorizedError
from fray.runtime.loop_thread import LoopThread

__all__ = ["Act", "Session", "Started"]

T = TypeVar("T")
Act = Callable[[Access], Awaitable[T]]

RENEWED_SECONDS = 60.0
"""Credentials that are refused so soon after they were read anew are refused for good."""

_inherited: list[object] = []
"""Connections of the process that this one was forked from: never closed, which both would hear."""


@dataclass(eq=False)
class _Connections:
    """Those of one loop: they can be used there only. Each is closed by its last user."""

    current: Access | None = None
    uses: Counter[Access] = field(default_factory=Counter)


@dataclass(frozen=True, eq=False)
class Started:
    """An act that was begun by `Session.start`.

    `cancel` cancels it, from any thread. `run` runs what has to do with it, on its very loop: it raises
    `ClusterClosedError` once that was closed.
    """

    cancel: Callable[[], None]
    run: Callable[[Coroutine[Any, Any, Any]], Any]


class Session:
    """A connection that is opened when it is needed, and again after `close`; `owner` is named by errors."""

    def __init__(self, open_access: OpenAccess, *, owner: str) -> None:
        self._open = open_access
        # By their loops: a call may begin on a new one while the one before is being closed.
        self._connections: dict[asyncio.AbstractEventLoop, _Connections] = {}
        self._process = os.getpid()
        self._thread = LoopThread(
            "fray-kubernetes", on_end=self._close_client, closed=lambda: ClusterClosedError(owner)
        )

    def ask(self, act: Act[T], undo: Callable[[T], Act[None]] | None = None) -> T:
        """Return what `act` returns, which is called on the session's loop.

        `undo` returns what reverses an act that has ended with this value. It is called where the caller was
        interrupted (Ctrl-C) and never gets the value.

        Raises what it raises, an `ApiError` in the words of `explain`, and `ClusterClosedError` where another
        thread closes the session during that.
        """
        if undo is None:
            return self._thread.run(self._ask(act))
        return self._thread.run(self._ask(act), lambda value: self._ask(undo(value)))

    def start(self, act: Act[None], end: Callable[[Exception | None], None]) -> Started:
        """Begin to call `act` as `ask` does, and return at once; its `end` is called on the loop."""
        running = self._thread.start(self._ask(act), end=end)
        return Started(running.cancel, lambda more: self._thread.run(more, beside=running))

    def close(self) -> None:
        """Close the connection and end the thread."""
        self._thread.close()

    async def _ask(self, act: Act[T]) -> T:
        connections = self._find_connections()
        time = asyncio.get_running_loop().time
        renewed = -math.inf
        while True:
            access = await self._ensure(connections)
            try:
                return await _use(connections, access, act)
            except UnauthorizedError:
                if time() - renewed < RENEWED_SECONDS:
                    raise
                renewed = time()
                if connections.current is access:
                    connections.current = None
                await _close_unused(connections, access)
            except ApiError as error:
                explained = explain(error, server=access.server, namespace=access.namespace)
                if explained is error:
                    raise
                raise explained from error

    def _find_connections(self) -> _Connections:
        if self._process != os.getpid():
            _inherited.append(self._connections)
            self._process, self._connections = os.getpid(), {}
        return self._connections.setdefault(asyncio.get_running_loop(), _Connections())

    async def _ensure(self, connections: _Connections) -> Access:
        if connections.current is None:
            opened = await self._open()
            if connections.current is None:
                connections.current = opened
            else:  # another call was faster
                await opened.close()
        return connections.current

    async def _close_client(self) -> None:
        connections = self._connections.pop(asyncio.get_running_loop(), _Connections())
        access, connections.current = connections.current, None
        if access is not None:
            await access.close()  # a call that still uses it was cancelled, and had time


async def _use(connections: _Connections, access: Access, act: Act[T]) -> T:
    connections.uses[access] += 1
    try:
        return await act(access)
    finally:
        connections.uses[access] -= 1
        await _close_unused(connections, access)


async def _close_unused(connections: _Connections, access: Access) -> None:
    """Close what is no longer current, once the last call on it has ended."""
    if access is not connections.current and not connections.uses[access]:
        del connections.uses[access]
        await access.close()
