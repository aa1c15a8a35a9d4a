"""The logs of a job's pods: of all ranks and attempts, in one stream, followed until the job has ended.

Each pod's log is read by a task of its own (`pod_log`). A `LogReading` outlives the connection: where
credentials are read anew, it goes on as it stands.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.pod_log import PodLog, has_begun
from fray.cluster.kubernetes.results import describe_place, read_job
from fray.cluster.kubernetes.retries import persistently
from fray.cluster.kubernetes.waiting import WatchSet, look_up, wait_until_finished
from fray.cluster.kubernetes.watching import Subject, list_subject, watch_until_complete
from fray.cluster.log_choice import check_log_choice
from fray.kube.api import Manifest, WatchEvent
from fray.kube.resources import PODS
from fray.plan.gang import derive_gang
from fray.plan.status import is_finished
from fray.types import JobId, LogLine
from fray.vocabulary import LABEL_ATTEMPT, LABEL_JOB_UID
from fray.wire.frayjob import FrayJob

__all__ = ["LogReading", "PrintedLines", "await_end", "prepare_reading", "read_logs"]

MOST_AT_ONCE = 64
"""Logs that are merged by time; of larger gangs the others follow, as these end."""
LONG_AGO = datetime.min.replace(tzinfo=UTC)
LAST_SECONDS = 60.0
"""How long the log of a job that has ended may be silent and not end: that of a dead node never ends."""


class LogReading:
    """What is read of a job's logs, and how far; it is told of pods by lists and watches."""

    def __init__(self, job: FrayJob, *, follow: bool, ranks: frozenset[int], attempt: int | None) -> None:
        self.job_id = JobId(job.metadata.name)
        self.follow, self.attempt = follow, attempt
        self.version: str | None = None
        labels = f"{LABEL_JOB_UID}={job.metadata.uid}"
        self.subject = Subject(PODS, labels if attempt is None else f"{labels},{LABEL_ATTEMPT}={attempt}")
        self._gang, self._ranks = derive_gang(job.spec), ranks
        self.job = job
        """As it was before anything was read."""
        self._logs: dict[str, PodLog] = {}
        self._news = asyncio.Event()
        self._arrived = asyncio.Event()
        self._over = False
        self._error: BaseException | None = None

    def once(self, attempt: int) -> LogReading:
        """Return a reading of what the same hosts have printed so far in an attempt."""
        return LogReading(self.job, follow=False, ranks=self._ranks, attempt=attempt)

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
        for name in self._logs.keys() - {pod["metadata"]["name"] for pod in objects}:
            self._logs[name].note_gone()
        self.version = version

    def take_event(self, event: WatchEvent) -> None:
        """Note a pod that has changed."""
        self.version = event.object["metadata"]["resourceVersion"]
        if event.type != "BOOKMARK":
            self._note(event.object)
        if event.type == "DELETED" and (log := self._logs.get(event.object["metadata"]["name"])):
            log.note_gone()

    def tell_of_lost_hosts(self, job: FrayJob) -> None:
        """Tell of hosts of attempts that ran and are over, where nobody has seen their pods: each with a gap.

        To be called once pods were listed, with the job as it was before. Where all pods of an attempt are
        gone, as those of a job that was stopped, one line tells so.
        """
        seen = {(log.attempt, log.place[0]) for log in self._logs.values()}
        ranks = sorted(self._ranks)
        for attempt in job.status.attempts:
            if self.attempt not in (None, attempt.number):
                continue
            if attempt.verdict is None or attempt.running_time is None:
                continue
            lost = [rank for rank in ranks if (attempt.number, rank) not in seen]
            why = "its pod is gone, and with it what it printed"
            if len(lost) == len(ranks) > 1:
                lost, why = (
                    lost[:1],
                    f"the pods of attempt {attempt.number} are gone, and their lines with them",
                )
            for rank in lost:
                place = (rank, *divmod(rank, self._gang.hosts_per_slice))
                log = PodLog("", self.job_id, attempt.number, place, self._news.set)
                self._logs[f"{attempt.number}/{rank}"] = log  # no pod's name
                log.give_up(why)

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
        name = pod["metadata"]["name"]
        found = self._gang.find_place(pod["metadata"].get("labels"))
        place = None if found is None else (self._gang.rank(slice_index=found[0], host=found[1]), *found)
        if name not in self._logs and place is not None and has_begun(pod) and place[0] in self._ranks:
            attempt = int(pod["metadata"]["labels"].get(LABEL_ATTEMPT, "1"))
            self._logs[name] = PodLog(name, self.job_id, attempt, place, self._news.set)
            self._arrived.set()
        if name in self._logs:
            self._logs[name].note(pod)

    def _pop(self) -> list[LogLine]:
        if self.follow:
            return [line for log in list(self._logs.values()) for line in log.take_lines()]
        left = [log for log in self._logs.values() if log.lines or not log.ended]
        if not left:
            return []
        first = min(log.attempt for log in left)
        # In the order of time, as far as every log that is read now has told its next line.
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


class PrintedLines:
    """Lines that were read before a following began, which reads each log from its beginning again."""

    def __init__(self, lines: Iterable[LogLine], keep: int) -> None:
        self.last: deque[LogLine] = deque(maxlen=keep)
        """The last of them, so many as are to be kept."""
        self._counts: Counter[tuple[int, int]] = Counter()
        self._until: dict[tuple[int, int], datetime] = {}
        for line in lines:
            place = line.attempt, line.rank
            self.last.append(line)
            self._counts[place] += 1
            self._until[place] = max(self._until.get(place, LONG_AGO), line.at or LONG_AGO)

    def skip(self, lines: Iterable[LogLine]) -> Iterator[LogLine]:
        """Yield the lines that are new: by number, and by time where a log lost its beginning since."""
        for line in lines:
            place = line.attempt, line.rank
            if self._counts[place] > 0 and (line.at or LONG_AGO) <= self._until[place]:
                self._counts[place] -= 1
                continue
            yield line


async def prepare_reading(
    access: Access,
    job_id: JobId,
    *,
    follow: bool,
    rank: int | Collection[int] | None,
    attempt: int | None,
) -> LogReading:
    """Return a reading of a job's logs, of which nothing is read yet.

    Raises `JobNotFoundError`, `LogsNotFoundError` where there is no such rank or attempt, or `ApiError`.
    """
    job = await read_job(access, job_id)
    begun = [each.number for each in job.status.attempts]
    ranks = check_log_choice(job, rank=rank, attempt=attempt, kept=begun)
    return LogReading(job, follow=follow, ranks=ranks, attempt=attempt)


async def read_logs(access: Access, reading: LogReading) -> None:
    """Read what was asked for to its end; `reading` hands the lines out as they come. Raises `ApiError`."""
    reading.forget_readers()
    reading.version = None
    try:
        if reading.follow:
            await _follow(access, reading)
        else:
            await persistently(lambda: list_subject(access, reading.subject, reading))
            reading.tell_of_lost_hosts(reading.job)
            await _read_once(access, reading)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def _read_once(access: Access, reading: LogReading) -> None:
    turn = asyncio.Semaphore(MOST_AT_ONCE)

    async def read(log: PodLog) -> None:
        async with turn:
            await log.read(access, follow=False)

    async with asyncio.TaskGroup() as group:
        for log in sorted(reading.open_logs, key=lambda log: (log.attempt, log.place)):
            group.create_task(read(log))


async def _follow(access: Access, reading: LogReading) -> None:
    watched = WatchSet([reading.job_id], describe_place(access), is_over=_end_of(reading.attempt))
    await look_up(access, watched)

    async def watch() -> None:
        await watch_until_complete(access, reading.subject, reading)

    async def read_arrivals(group: asyncio.TaskGroup) -> None:
        while True:
            for log in await reading.next_arrivals():
                log.reading = True
                helpers.append(group.create_task(log.read(access, follow=True)))

    helpers: list[asyncio.Task[None]] = []
    async with asyncio.TaskGroup() as group:
        helpers += [group.create_task(watch()), group.create_task(read_arrivals(group))]
        await wait_until_finished(access, watched)
        # What began last may have ended before the watch told of it.
        await persistently(lambda: list_subject(access, reading.subject, reading))
        reading.tell_of_lost_hosts(watched.seen[reading.job_id])
        await asyncio.gather(*(await_end(log) for log in reading.open_logs))
        for helper in helpers:
            helper.cancel()


async def await_end(log: PodLog) -> None:
    """Return once the log of a job that has ended has ended too, or is given up.

    However long its lines take to be taken: who reads them may be slow, or have paused.
    """
    while not log.ended:
        pieces = log.pieces
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await log.wait_ended()
        if not log.held and log.pieces == pieces:
            log.give_up(f"the job has ended, and the log was silent for {LAST_SECONDS:.0f} s without an end")


def _end_of(attempt: int | None) -> Any:
    """Return what tells whether an attempt is over; the job where it is None."""

    def is_over(job: FrayJob) -> bool:
        ended = [each.number for each in job.status.attempts if each.verdict is not None]
        return is_finished(job.status) or attempt in ended

    return is_over


def _time(log: PodLog) -> float:
    at = log.lines[0].at
    return 0.0 if at is None else at.timestamp()
