"""The virtual clock itself: it jumps, and says when nothing will ever happen."""

import asyncio

import pytest

from tests.unit.controller.virtual_time import run


def test_hours_pass_in_no_time() -> None:
    async def main() -> float:
        await asyncio.gather(asyncio.sleep(3600.0), asyncio.sleep(7200.0))
        return asyncio.get_running_loop().time()

    assert run(main()) == 7200.0


def test_a_wait_for_nothing_fails() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match="never happen"):
        run(main())
