"""The logs of some pods in one stream, read to their ends and followed for as long as there may be more.

Each pod's log is read by a task of its own (`pod_log`). A `Reading` outlives the connection: where
credentials are read anew, it goes on as it stands.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import heapq
from collections.abc import Sequence

from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.api_errors import persistently
from fray.cluster.kubernetes.pod_log import PodLog
from fray.cluster.kubernetes.watching import Subject, list_subject, watch_until_complete
from fray.kube.api import Manifest, WatchEvent
from fray.types import LogLine

__all__ = ["Reading", "await_end", "read_logs"]

MOST_AT_ONCE = 64
"""Logs that are merged by time; of more of them the others follow, as these end."""
LAST_SECONDS = 60.0
"""How long a log may be silent and not end once nothing more is printed: that of a dead node never ends."""


class Reading(abc.ABC):
    """What is read of the logs of the pods of a `subject`, and how far; lists and watches tell it of pods."""

    def __init__(self, subject: Subject, *, follow: bool) -> None:
        self.subject, self.follow = subject, follow
        self.unfinished = False
        """Whether the states of lines that are written over are read too, while they are followed."""
        self.version: str | None = None
        self._logs: dict[str, PodLog] = {}
        self._news = asyncio.Event()
        self._arrived = asyncio.Event()
        self._over = False
        self._error: BaseException | None = None

    @abc.abstractmethod
    async def look_up(self, access: Access) -> None:
        """Look whether that whose pods are read is there. Raises an error if it isn't."""

    @abc.abstractmethod
    async def wait_until_over(self, access: Access) -> None:
        """Return once no pod prints any more, or those that do are ending; called after `look_up`."""

    @abc.abstractmethod
    def tell_of_lost_hosts(self) -> None:
        """Add a line with a gap where pods that ran are gone; called once all pods were listed."""

    @abc.abstractmethod
    def _key(self, pod: Manifest) -> str:
        """Return what tells the log of a pod from the others."""

    @abc.abstractmethod
    def _open_log(self, pod: Manifest) -> PodLog | None:
        """Return the log of a pod; None if it isn't wanted, or there is nothing in it yet."""

    @property
    def complete(self) -> bool:
        """Never: pods may come until the job has ended, which others see."""
        return False

    @property
    def open_logs(self) -> list[PodLog]:
        """The logs that haven't ended."""
        return [log for log in self._logs.values() if not log.ended]

    def take_list(self, objects: Sequence[Manifest], version: str) -> None:
        """Note the pods that there are."""
        for pod in objects:
            self._note(pod)
        for key in self._logs.keys() - {self._key(pod) for pod in objects}:
            self._logs[key].note_gone()
        self.version = version

    def take_event(self, event: WatchEvent) -> None:
        """Note a pod that has changed."""
        self.version = event.object["metadata"]["resourceVersion"]
        if event.type != "BOOKMARK":
            self._note(event.object)
        if event.type == "DELETED" and (log := self._logs.get(self._key(event.object))):
            log.note_gone()

    def end(self, error: BaseException | None) -> None:
        """Note that nothing more is read, and why."""
        self._over, self._error = True, error
        self._news.set()

    async def next_lines(self) -> list[LogLine] | None:
        """Return the next lines; None at the end. Raises what ended the reading."""
        while not (lines := self._pop()):
            if self._over:
                if self._error is not None:
                    raise self._error
                return None
            self._news.clear()
            await self._news.wait()
        return lines

    async def next_arrivals(self) -> list[PodLog]:
        """Return logs that nobody reads yet, once there are some."""
        while not (found := [log for log in self.open_logs if not log.reading]):
            self._arrived.clear()
            await self._arrived.wait()
        return found

    def forget_readers(self) -> None:
        """Note that nobody reads any log: who did was cancelled."""
        for log in self._logs.values():
            log.reading = False

    def _note(self, pod: Manifest) -> None:
        key = self._key(pod)
        if key not in self._logs and (log := self._open_log(pod)) is not None:
            self._logs[key] = log
            self._arrived.set()
        if key in self._logs:
            self._logs[key].note(pod)

    def _pop(self) -> list[LogLine]:
        if self.follow:
            return [line for log in list(self._logs.values()) for line in log.take_lines()]
        left = [log for log in self._logs.values() if log.lines or not log.ended]
        if not left:
            return []
        first = min(log.attempt for log in left)
        # In the order of time, as far as every log that is read now has given its next line.
        merged = [log for log in left if log.attempt == first and (log.reading or log.ended)]
        heap = [(_time(log), index) for index, log in enumerate(merged) if log.lines]
        heapq.heapify(heap)
        lines: list[LogLine] = []
        while heap and len(heap) == len(merged):
            log = merged[heap[0][1]]
            lines.append(log.take_first())
            if log.lines:
                heapq.heapreplace(heap, (_time(log), heap[0][1]))
            else:
                index = heapq.heappop(heap)[1]
                if log.ended:
                    heap = [(at, number - (number > index)) for at, number in heap]
                    del merged[index]
        return lines


async def read_logs(access: Access, reading: Reading) -> None:
    """Read what was asked for to its end; `reading` hands the lines out as they come. Raises `ApiError`."""
    reading.forget_readers()
    reading.version = None
    try:
        if reading.follow:
            await _follow(access, reading)
        else:
            await persistently(lambda: list_subject(access, reading.subject, reading))
            reading.tell_of_lost_hosts()
            await _read_once(access, reading)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def _read_once(access: Access, reading: Reading) -> None:
    slots = asyncio.Semaphore(MOST_AT_ONCE)

    async def read(log: PodLog) -> None:
        async with slots:
            await log.read(access, follow=False)

    async with asyncio.TaskGroup() as group:
        for log in sorted(reading.open_logs, key=lambda log: (log.attempt, log.place)):
            group.create_task(read(log))


async def _follow(access: Access, reading: Reading) -> None:
    await reading.look_up(access)

    async def watch() -> None:
        await watch_until_complete(access, reading.subject, reading)

    async def read_arrivals(group: asyncio.TaskGroup) -> None:
        while True:
            for log in await reading.next_arrivals():
                log.reading = True
                helpers.append(
                    group.create_task(log.read(access, follow=True, unfinished=reading.unfinished))
                )

    helpers: list[asyncio.Task[None]] = []
    async with asyncio.TaskGroup() as group:
        helpers += [group.create_task(watch()), group.create_task(read_arrivals(group))]
        await reading.wait_until_over(access)
        # What began last may have ended before the watch reported it.
        await persistently(lambda: list_subject(access, reading.subject, reading))
        reading.tell_of_lost_hosts()
        await asyncio.gather(*(await_end(log) for log in reading.open_logs))
        for helper in helpers:
            helper.cancel()


async def await_end(log: PodLog) -> None:
    """Return once a log has ended, of a pod that is to print no more, or is given up.

    However long its lines take to be taken: who reads them may be slow, or have paused.
    """
    while not log.ended:
        pieces = log.pieces
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await log.wait_ended()
        if not log.held and log.pieces == pieces:
            log.give_up(f"it is over, and the log was silent for {LAST_SECONDS:.0f} s without an end")


def _time(log: PodLog) -> float:
    at = log.lines[0].at
    return 0.0 if at is None else at.timestamp()
