"""The end of a pod's log: not before all lines were taken, and not never."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import pytest

from fray.cluster.kubernetes import log_reading, pod_log
from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.pod_log import FULL, FULL_BYTES, PodLog
from fray.cluster.long_lines import LONGEST_LINE
from fray.types import JobId
from fray.vocabulary import CONTAINER
from tests.unit.controller import virtual_time

PATIENCE = 60.0
LINES = 2 * FULL


class Api:
    """A server of one log, which ends or is silent for ever after its lines."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent

    async def stream_log(self, *_: object, follow: bool, **__: object) -> AsyncIterator[bytes]:
        if follow:
            for number in range(LINES):
                yield f"2026-01-31T12:00:00.{number:09}Z {number}\n".encode()
            if self._silent:
                await asyncio.Event().wait()

    async def get(self, *_: object, **__: object) -> dict[str, Any]:
        return {"status": {"containerStatuses": [{"name": CONTAINER, "state": {"terminated": {}}}]}}


def open_log(*, silent: bool) -> tuple[PodLog, Access]:
    log = PodLog("pod", JobId("job"), 1, (0, 0, 0), lambda: None)

    async def close() -> None:
        pass

    return log, Access(cast("Any", Api(silent=silent)), "https://server", "ml", close)


async def until_held(log: PodLog) -> None:
    async with asyncio.timeout(PATIENCE):
        while not log.held:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)


def test_lines_that_nobody_takes_for_long_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(log_reading, "LAST_SECONDS", 0.001)
        log, access = open_log(silent=False)
        reading = asyncio.create_task(log.read(access, follow=True))
        await until_held(log)
        ending = asyncio.create_task(log_reading.await_end(log))
        await asyncio.sleep(0.05)
        assert not log.ended
        monkeypatch.setattr(log_reading, "LAST_SECONDS", PATIENCE)
        taken = log.take_lines()
        while not ending.done():
            await asyncio.wait({ending}, timeout=0.001)
            taken += log.take_lines()
        await reading
        assert [line.text for line in taken] == [str(number) for number in range(LINES)]

    asyncio.run(main())


def test_a_log_that_is_silent_and_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(log_reading, "LAST_SECONDS", 0.001)
        log, access = open_log(silent=True)
        reading = asyncio.create_task(log.read(access, follow=True))
        await until_held(log)
        taken = log.take_lines()
        async with asyncio.timeout(PATIENCE):
            ending = asyncio.create_task(log_reading.await_end(log))
            while not ending.done():
                await asyncio.wait({ending}, timeout=0.001)
                taken += log.take_lines()
        assert (taken[-1].gap, log.ended) == (True, True)
        reading.cancel()

    asyncio.run(main())


class Pieces(Api):
    """A server of one log, which sends these pieces and holds on to the stream."""

    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__(silent=True)
        self._pieces = pieces
        self.sent = 0

    async def stream_log(self, *_: object, **__: object) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            self.sent += len(piece)
            yield piece
        await asyncio.Event().wait()


STAMP = b"2026-01-31T12:00:00.000000001Z "


def read_until_held(pieces: list[bytes]) -> tuple[PodLog, int]:
    """Read until somebody has to take lines; return the log, and how much of it had come."""

    async def main() -> tuple[PodLog, int]:
        log, _ = open_log(silent=True)
        api = Pieces(pieces)

        async def close() -> None:
            pass

        reading = asyncio.create_task(
            log.read(Access(cast("Any", api), "https://server", "ml", close), follow=True)
        )
        await until_held(log)
        reading.cancel()
        return log, api.sent

    return asyncio.run(main())


def test_a_line_without_an_end_is_handed_out_in_parts() -> None:
    """A program may print one line for days."""
    piece = b" step 1" * 10_000
    log, sent = read_until_held([STAMP, *[piece] * 100])
    (line,) = log.take_lines()
    assert len(line.text) == LONGEST_LINE
    assert sent < LONGEST_LINE + 2 * len(piece)


def test_long_lines_that_nobody_takes_stop_the_reading() -> None:
    piece = STAMP + b"x" * 50_000 + b"\n"
    log, sent = read_until_held([piece] * FULL)
    assert len(log.lines) < FULL // 10
    assert sent < FULL_BYTES + 2 * len(piece)


class EndsEarly(Api):
    """A server that ends the stream of a log before its container has ended, which then prints on."""

    def __init__(self, told: int, left: list[bytes]) -> None:
        super().__init__(silent=False)
        self._told, self._left = told, left
        self.asked: list[tuple[bool, int | None]] = []

    async def stream_log(
        self, *_: object, follow: bool, tail_lines: int | None = None, **__: object
    ) -> AsyncIterator[bytes]:
        self.asked.append((follow, tail_lines))
        lines = self._left[: self._told] if follow else self._left[-(tail_lines or 0) :]
        for line in lines:
            yield line


@pytest.mark.parametrize("told", [0, 1, 2, 3])
@pytest.mark.parametrize("newline", [b"\n", b""])
def test_what_was_printed_after_the_end_of_a_stream_is_read(told: int, newline: bytes) -> None:
    """Undisturbed, only one line is read again."""
    log_lines = [STAMP + b"one\n", STAMP + b"two\n", STAMP + b"three" + newline]

    async def main() -> None:
        log, _ = open_log(silent=False)
        api = EndsEarly(told, log_lines)

        async def close() -> None:
            pass

        await log.read(Access(cast("Any", api), "https://server", "ml", close), follow=True)
        assert [line.text for line in log.take_lines()] == ["one", "two", "three"]
        again = [] if told == 3 else [(False, None)]
        assert api.asked == [(True, None), (False, 1), *again]

    asyncio.run(main())


class Bar(Api):
    """A server of one log, in which a progress bar is written over and its line ends when `over` is set."""

    def __init__(self, over: asyncio.Event) -> None:
        super().__init__(silent=False)
        self._over = over

    async def stream_log(self, *_: object, follow: bool, **__: object) -> AsyncIterator[bytes]:
        if follow:
            yield STAMP + b"\r 1%\r 2"
            yield b"%\r 3%\r 4"
            await self._over.wait()
            yield b"%\n" + STAMP + b"next\n"


@pytest.mark.parametrize("unfinished", [False, True])
def test_the_last_whole_state_of_a_progress_bar_comes_while_it_runs(
    monkeypatch: pytest.MonkeyPatch, unfinished: bool
) -> None:
    async def main() -> None:
        monkeypatch.setattr(pod_log, "STATE_SECONDS", 0.001)
        log, _ = open_log(silent=False)
        over = asyncio.Event()

        async def close() -> None:
            pass

        access = Access(cast("Any", Bar(over)), "https://server", "ml", close)
        reading = asyncio.create_task(log.read(access, follow=True, unfinished=unfinished))
        async with asyncio.timeout(PATIENCE):
            while unfinished and not log.lines:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0)
            states = log.take_lines()
            over.set()
            await reading
        assert [(line.text, line.unfinished) for line in states] == [(" 3%", True)] * unfinished
        lines = [(line.text, line.unfinished) for line in log.take_lines()]
        assert lines == [(" 4%", False), ("next", False)]

    asyncio.run(main())


class QuickBar(Api):
    """A server of one log, in which a progress bar is written over 100 times a second, for a minute."""

    async def stream_log(self, *_: object, follow: bool, **__: object) -> AsyncIterator[bytes]:
        if follow:
            yield STAMP
            for number in range(6_000):
                yield f"\r{number}\r".encode()
                await asyncio.sleep(0.01)
            yield b"\n"


def test_states_come_at_most_twice_a_second() -> None:
    async def main() -> list[float]:
        _, access = open_log(silent=False)
        access = replace(access, api=cast("Any", QuickBar(silent=False)))
        now = asyncio.get_running_loop().time
        times: list[float] = []
        log = PodLog("pod", JobId("job"), 1, (0, 0, 0), lambda: times.append(now()))
        await log.read(access, follow=True, unfinished=True)
        states = [line.unfinished for line in log.take_lines()]
        assert states == [True] * (len(states) - 1) + [False]
        return times[: len(states) - 1]

    times = virtual_time.run(main())
    assert len(times) > 100
    assert min(later - earlier for earlier, later in pairwise(times)) > 0.499
