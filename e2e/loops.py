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
            runner.run(_until_all_closed(selector))


async def _until_all_closed(selector: selectors.BaseSelector) -> None:
    async with asyncio.timeout(FAREWELL_SECONDS):
        while len(selector.get_map()) > 1:  # noqa: ASYNC110 - the loop's own socket stays; nothing tells of the others
            await asyncio.sleep(0.001)
