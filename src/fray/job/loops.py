"""An event loop in a thread, for the async methods of one actor. Imported when the first one is called."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from fray.runtime.coroutines import RunningCoroutine, serve_loop

__all__ = ["LoopThread"]


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._stopped = False
        threading.Thread(
            target=serve_loop, args=(self._loop,), name=f"{name} event loop", daemon=True
        ).start()

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> RunningCoroutine:
        """Let the coroutine run in the loop, in the caller's context variables."""
        return RunningCoroutine(self._loop, coroutine)

    def stop(self) -> None:
        """Cancel what runs in the loop and end its thread. May be called twice."""
        if not self._stopped:
            self._stopped = True
            self._loop.call_soon_threadsafe(self._loop.stop)
