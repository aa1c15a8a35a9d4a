"""One pod's log on its way to the reader: read to its end, whatever becomes of the connection.

Lines wait in a buffer, and nothing more is read while many do. A line of its own says what can't be had.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.api_errors import BUSY, persistently
from fray.cluster.kubernetes.log_cursor import LogCursor, TimedLine, split_timed_line
from fray.cluster.long_lines import LONGEST_LINE, STATE_SECONDS, last_state
from fray.kube.errors import (
    NotFoundError,
    RefusedError,
    ServerError,
    ThrottledError,
    UnreachableError,
)
from fray.kube.resources import PODS
from fray.types import JobId, LogLine
from fray.vocabulary import CONTAINER

__all__ = ["PodLog", "has_begun", "read_container", "read_state"]

FULL = 200
FULL_BYTES = 1 << 15
"""Lines that wait, and their bytes, before reading pauses."""
BACKOFF = replace(BUSY, longest=10.0)
WORD_SECONDS = 30.0
"""How long the watch of pods may be behind."""


def has_begun(pod: Mapping[str, Any]) -> bool:
    """Whether a pod has printed anything, or may have."""
    state = read_state(pod)
    return "running" in state or "terminated" in state


def read_state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of the container that runs the job's program; empty before it has one."""
    found: Mapping[str, Any] = _read_status(pod).get("state") or {}
    return found


def read_container(pod: Mapping[str, Any]) -> str:
    """Return the id of the last container that has run a pod's program; empty before the first.

    A pod that starts it again, and a later pod of the same name, have another one.
    """
    return str(_read_status(pod).get("containerID") or "")


def _read_status(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    for container in pod.get("status", {}).get("containerStatuses") or []:
        if container["name"] == CONTAINER:
            found: Mapping[str, Any] = container
            return found
    return {}


def _digest(line: bytes) -> bytes:
    return hashlib.blake2b(line, digest_size=16).digest()


class PodLog:
    """The log of one pod, and how far it was read.

    `place` is rank, slice and host; `tell` is called when there are lines. Where pods start their containers
    again, `container` is the one whose log it is.
    """

    def __init__(
        self,
        pod: str,
        job_id: JobId,
        attempt: int,
        place: tuple[int, int, int],
        tell: Callable[[], None],
        *,
        container: str = "",
    ) -> None:
        self.pod, self.attempt, self.place = pod, attempt, place
        self.lines: deque[LogLine] = deque()
        self.reading = False
        self.ended = False
        self.held = False
        """Whether reading waits for somebody to take lines."""
        self.pieces = 0
        """What came so far, in pieces of any size."""
        self._job_id, self._tell, self._container = job_id, tell, container
        self._gone, self._seen_ended, self._replaced = asyncio.Event(), False, False
        self._cursor = LogCursor()
        self._rest = b""
        self._unfinished = False
        self._state_timer: asyncio.TimerHandle | None = None
        self._last = _digest(b"")
        """Of the last line that was read."""
        self._waiting = 0
        self._drained, self._end = asyncio.Event(), asyncio.Event()

    def take_lines(self) -> list[LogLine]:
        """Return the lines that wait, and let reading go on."""
        lines = list(self.lines)
        self.lines.clear()
        self._waiting = 0
        self._drained.set()
        return lines

    def take_first(self) -> LogLine:
        """Return the first line that waits."""
        line = self.lines.popleft()
        self._waiting -= len(line.text)
        if not self.lines:
            self._drained.set()
        return line

    def note(self, pod: Mapping[str, Any]) -> None:
        """Note how its pod stands."""
        self._seen_ended = self._has_ended(pod)

    def note_gone(self) -> None:
        """Note that its pod was deleted."""
        self._gone.set()

    def give_up(self, why: str) -> None:
        """End it with a line that tells why the rest is missing."""
        if not self.ended:
            self._add(TimedLine(f"lines are missing: {why}"), gap=True)
            self.end()

    def end(self) -> None:
        """Note that there is nothing more to come; what was read needn't be known again."""
        self.ended = True
        self._cursor = LogCursor()
        self._end.set()
        self._drained.set()
        self._tell()

    async def wait_ended(self) -> None:
        """Return once it has ended."""
        await self._end.wait()

    async def read(self, access: Access, *, follow: bool, unfinished: bool = False) -> None:
        """Read it to its end; raises the `ApiError` of a missing right.

        A node that doesn't answer is asked again: with `follow` for as long as this runs, else a few times.
        With `unfinished` the states of a line that is written over become lines too.
        """
        self.reading, self.held, self._unfinished = True, False, unfinished
        failures = rounds = 0
        while not self.ended:
            rounds, asked = rounds + 1, None
            try:
                if failures and self._container and await self._is_over(access):
                    await self._finish(access, follow=follow)
                    return
                if await self._read_once(access, follow=follow):
                    failures, rounds = 0, 1
                if not follow or await self._is_over(access):
                    await self._finish(access, follow=follow)
                    return
            except (NotFoundError, RefusedError, ServerError, ThrottledError, UnreachableError) as error:
                failures += 1
                asked = error.retry_after_seconds
                refused = isinstance(error, RefusedError) and (not follow or await self._is_over(access))
                # A kubelet that has just started finds no pod either, before it knows of any.
                if isinstance(error, NotFoundError) and await self._is_gone(access):
                    self.give_up("its pod is gone, and with it what wasn't read before")
                elif refused or (not follow and failures > BUSY.tries):
                    self.give_up(error.detail)
            if not self.ended:
                await asyncio.sleep(BACKOFF.pause(rounds, asked))

    async def _read_once(self, access: Access, *, follow: bool) -> bool:
        """Read until the server ends it; return whether there was anything."""
        self._cursor.resume()
        self._rest, progress = b"", False
        pieces = access.api.stream_log(
            self.pod,
            namespace=access.namespace,
            container=CONTAINER,
            follow=follow,
            since=self._cursor.since,
        )
        async with aclosing(cast("AsyncGenerator[bytes]", pieces)) as open_pieces:
            async for piece in open_pieces:
                progress = True
                self.pieces += 1
                *lines, self._rest = (self._rest + piece).split(b"\n")
                for line in lines:
                    self._take_parts(split_timed_line(line))
                *parts, self._rest = split_timed_line(self._rest)
                self._take_parts(parts)
                self._note_state()
                if len(self.lines) >= FULL or self._waiting >= FULL_BYTES:
                    self._drained.clear()
                    self.held = True
                    await self._drained.wait()
                    self.held = False
                    self.pieces += 1
        return progress

    def _note_state(self) -> None:
        """Let the state of a line that is written over be added soon: the newest that is there by then."""
        if self._unfinished and self._state_timer is None and b"\r" in self._rest:
            loop = asyncio.get_running_loop()
            self._state_timer = loop.call_later(STATE_SECONDS, self._add_state)

    def _add_state(self) -> None:
        self._state_timer = None
        # What stands after the last carriage return may lack its end.
        match self._rest.rsplit(b"\r", 2):
            case [_, state, _]:
                self._add(TimedLine(state.decode(errors="replace")), unfinished=True)

    async def _is_over(self, access: Access) -> bool:
        """Whether the container has ended: a stream may be ended by others too.

        Raises `NotFoundError` where its pod is gone, and nobody has seen that it had ended before.
        """
        try:
            pod = await persistently(lambda: access.api.get(PODS, self.pod, namespace=access.namespace))
        except NotFoundError:
            with contextlib.suppress(TimeoutError):
                # The watch tells a moment later how it stood when it went.
                async with asyncio.timeout(WORD_SECONDS):
                    await self._gone.wait()
            if self._seen_ended:
                return True
            raise
        return self._has_ended(pod)

    def _has_ended(self, pod: Mapping[str, Any]) -> bool:
        if self._container and read_container(pod) != self._container:
            self._replaced = True
        return (
            self._replaced
            or "terminated" in read_state(pod)
            or pod.get("status", {}).get("phase")
            in (
                "Succeeded",
                "Failed",
            )
        )

    async def _is_gone(self, access: Access) -> bool:
        """Whether the API server has no such pod (any more); False as long as it doesn't say."""
        try:
            await access.api.get(PODS, self.pod, namespace=access.namespace)
        except NotFoundError:
            return True
        except (ServerError, ThrottledError, UnreachableError):
            return False
        return False

    async def _finish(self, access: Access, *, follow: bool) -> None:
        """Take what came last, now that nothing more can come."""
        if follow and not self._replaced:  # else what can be read is the log of the next container
            # A stream may be ended by others than the container.
            rest = self._rest
            try:
                if not await self._has_last_line(access):
                    await self._read_once(access, follow=False)
            except NotFoundError:
                self._rest = rest
        self._take_rest()
        self.end()

    async def _has_last_line(self, access: Access) -> bool:
        """Whether the log ends with what was read last: one line, instead of seconds that were read before.

        Its time and its text are its own. A very long one isn't known again.
        """
        found = b""
        pieces = access.api.stream_log(
            self.pod, namespace=access.namespace, container=CONTAINER, follow=False, tail_lines=1
        )
        async with aclosing(cast("AsyncGenerator[bytes]", pieces)) as open_pieces:
            async for piece in open_pieces:
                found += piece
                if len(found) > LONGEST_LINE:
                    return False
        return _digest(found.removesuffix(b"\n")) == (_digest(self._rest) if self._rest else self._last)

    def _take_rest(self) -> None:
        """Take a last line that has no newline."""
        if self._rest:
            self._take(self._rest)
            self._rest = b""

    def _take_parts(self, parts: Sequence[bytes]) -> None:
        for part in parts:
            self._take(part)

    def _take(self, line: bytes) -> None:
        self._last = _digest(line)
        taken = self._cursor.take(line)
        if taken is None:
            return
        if taken.missing:
            self._add(TimedLine("lines are missing: the log was rotated before they were read"), gap=True)
        self._add(taken)

    def _add(self, line: TimedLine, *, gap: bool = False, unfinished: bool = False) -> None:
        rank, slice_index, host = self.place
        at = (self._job_id, self.attempt, rank, slice_index, host)
        self.lines.append(LogLine(*at, last_state(line.text), line.at, gap, unfinished=unfinished))
        self._waiting += len(self.lines[-1].text)
        self._tell()
