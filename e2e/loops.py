"""Event loops of helpers that run in threads of their own, and leave no socket behind."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

__all__ = ["run_in_loop"]

FAREWELL_SECONDS = 120.0


def run_in_loop(main: Coroutine[Any, Any, None]) -> None:
    """Like `asyncio.run`, and wait until the farewells of TLS connections have been said."""
    selector = selectors.DefaultSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        try:
            runner.run(main)
        finally:
            # What is left may cancel all tasks that it doesn't know, as kopf does when it ends late.
            _end_tasks(runner.get_loop())
            runner.run(_until_all_closed(selector))


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        # A future and no task, so that nobody cancels it.
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))


async def _until_all_closed(selector: selectors.BaseSelector) -> None:
    async with asyncio.timeout(FAREWELL_SECONDS):
        while len(selector.get_map()) > 1:  # noqa: ASYNC110 - the loop's own socket stays; nothing tells of the others
            await asyncio.sleep(0.001)
