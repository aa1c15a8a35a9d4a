"""An event loop in a thread of its own: a program that isn't asynchronous has local jobs run by it.

The thread starts with the first use. It is a daemon: a program that ends doesn't wait for it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["LoopThread"]


class LoopThread:
    """A lazily started event loop. A fork begins with none, since threads don't survive one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def belongs_here(self) -> bool:
        """Whether this is the process that made it, and not a fork of that."""
        return self._process == os.getpid()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Let the loop run a coroutine, which must not raise."""

        def create() -> None:
            task = asyncio.get_running_loop().create_task(work)
            # The loop itself keeps weak references only.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self.call(create)

    def call(self, function: Callable[[], object]) -> None:
        """Let the loop call a function, which must not raise, after what it was asked before."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._run, args=(self._loop,), name=self._name, daemon=True
                )
                self._thread.start()
            self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """End the loop and its thread; what still runs in it is left where it is."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            if loop is not None:
                loop.call_soon_threadsafe(loop.stop)
        # Garbage is collected in any thread, this one included.
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()
