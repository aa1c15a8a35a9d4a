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
from typing import Any, TypeVar

from fray.cluster.kubernetes.access import Access, OpenAccess
from fray.cluster.kubernetes.loop_thread import LoopThread
from fray.cluster.kubernetes.troubles import explain
from fray.kube.errors import ApiError, UnauthorizedError

__all__ = ["Act", "Session"]

T = TypeVar("T")
Act = Callable[[Access], Awaitable[T]]

RENEWED_SECONDS = 60.0
"""Credentials that are refused so soon after they were read anew are refused for good."""

_inherited: list[object] = []
"""Connections of the process that this one was forked from: never closed, which both would hear."""


class Session:
    """A connection that is opened when it is needed, and again after `close`."""

    def __init__(self, open_access: OpenAccess) -> None:
        self._open = open_access
        self._access: Access | None = None
        self._uses: Counter[Access] = Counter()
        self._process = os.getpid()
        self._thread = LoopThread("fray-kubernetes", self._farewell)

    def ask(self, act: Act[T]) -> T:
        """Return what `act` returns, which is called on the session's loop.

        Raises what it raises, an `ApiError` in the words of `explain`.
        """
        return self._thread.run(self._ask(act))

    def start(self, act: Act[None], end: Callable[[BaseException | None], None]) -> Callable[[], None]:
        """Begin to call `act` as `ask` does; return at once what cancels it. `end` is told how it ended."""

        async def run() -> None:
            try:
                await self._ask(act)
            except BaseException as error:  # noqa: BLE001 - `end` hands it on
                end(error)
            else:
                end(None)

        return self._thread.start(run())

    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns that runs on the session's loop and asks nothing."""
        return self._thread.run(coroutine)

    def close(self) -> None:
        """Close the connection and end the thread."""
        self._thread.close()

    async def _ask(self, act: Act[T]) -> T:
        time = asyncio.get_running_loop().time
        renewed = -math.inf
        while True:
            access = await self._ensure()
            try:
                return await self._use(access, act)
            except UnauthorizedError:
                if time() - renewed < RENEWED_SECONDS:
                    raise
                renewed = time()
                if self._access is access:
                    self._access = None
                await self._close_unused(access)
            except ApiError as error:
                explained = explain(error, server=access.server, namespace=access.namespace)
                if explained is error:
                    raise
                raise explained from error

    async def _ensure(self) -> Access:
        if self._process != os.getpid():
            _inherited.append((self._access, self._uses))
            self._process, self._access, self._uses = os.getpid(), None, Counter()
        if self._access is None:
            opened = await self._open()
            if self._access is None:
                self._access = opened
            else:  # another call was faster
                await opened.close()
        return self._access

    async def _use(self, access: Access, act: Act[T]) -> T:
        self._uses[access] += 1
        try:
            return await act(access)
        finally:
            self._uses[access] -= 1
            await self._close_unused(access)

    async def _close_unused(self, access: Access) -> None:
        """Close what was replaced, once the last call on it has ended."""
        if access is not self._access and not self._uses[access]:
            del self._uses[access]
            await access.close()

    async def _farewell(self) -> None:
        access, self._access = self._access, None
        if access is not None:
            await access.close()
