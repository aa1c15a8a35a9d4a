"""An event loop in a thread, for the async methods of one actor. Imported when the first one is called."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from fray.runtime.coroutines import RunningCoroutine

__all__ = ["LoopThread"]


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._stopped = False
        threading.Thread(target=self._serve, name=f"{name} event loop", daemon=True).start()

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> RunningCoroutine:
        """Let the coroutine run in the loop, in the caller's context variables."""
        return RunningCoroutine(self._loop, coroutine)

    def stop(self) -> None:
        """Cancel what runs in the loop and end its thread. May be called twice."""
        if not self._stopped:
            self._stopped = True
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_cancel_others())
        finally:
            self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
