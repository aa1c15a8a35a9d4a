"""The logs of a job's pods: of all ranks and attempts, in one stream, followed until the job has ended."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from fray.cluster.arguments import LogChoice
from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.log_reading import Reading
from fray.cluster.kubernetes.pod_log import PodLog, has_begun
from fray.cluster.kubernetes.results import describe_place, read_job
from fray.cluster.kubernetes.waiting import WatchSet, look_up, wait_until_finished
from fray.cluster.kubernetes.watching import Subject
from fray.kube.api import Manifest
from fray.kube.resources import PODS
from fray.plan.gang import derive_gang
from fray.plan.status import is_finished
from fray.types import JobId, LogLine
from fray.vocabulary import LABEL_ATTEMPT, LABEL_JOB_UID
from fray.wire.frayjob import FrayJob

__all__ = ["LogReading", "PrintedLines", "prepare_reading"]

LONG_AGO = datetime.min.replace(tzinfo=UTC)


class LogReading(Reading):
    """What is read of a job's logs."""

    def __init__(self, job: FrayJob, *, follow: bool, ranks: frozenset[int], attempt: int | None) -> None:
        labels = f"{LABEL_JOB_UID}={job.metadata.uid}"
        if attempt is not None:
            labels += f",{LABEL_ATTEMPT}={attempt}"
        super().__init__(Subject(PODS, labels), follow=follow)
        self.job_id, self.attempt = JobId(job.metadata.name), attempt
        self.job = job
        """As it was seen last."""
        self._gang, self._ranks = derive_gang(job.spec), ranks
        self._watched: WatchSet | None = None

    def once(self, attempt: int) -> LogReading:
        """Return a reading of what the same hosts have printed so far in an attempt."""
        return LogReading(self.job, follow=False, ranks=self._ranks, attempt=attempt)

    async def look_up(self, access: Access) -> None:
        """Look whether the job is there; raises `JobNotFoundError`."""
        watched = WatchSet([self.job_id], describe_place(access), is_over=_end_of(self.attempt))
        await look_up(access, watched)
        self._watched = watched

    async def wait_until_over(self, access: Access) -> None:
        """Return once the job, or the chosen attempt, is over; raises `JobDeletedError`."""
        assert self._watched is not None
        await wait_until_finished(access, self._watched)
        self.job = self._watched.seen[self.job_id]

    def tell_of_lost_hosts(self) -> None:
        """Tell of hosts of attempts that ran and are over, where nobody has seen their pods: each with a gap.

        Where all pods of an attempt are
        gone, as those of a job that was stopped, one line tells so.
        """
        seen = {(log.attempt, log.place[0]) for log in self._logs.values()}
        ranks = sorted(self._ranks)
        for attempt in self.job.status.attempts:
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

    def _key(self, pod: Manifest) -> str:
        name: str = pod["metadata"]["name"]
        return name

    def _open_log(self, pod: Manifest) -> PodLog | None:
        labels = pod["metadata"].get("labels")
        found = self._gang.find_place(labels)
        if found is None or not has_begun(pod):
            return None
        rank = self._gang.rank(slice_index=found[0], host=found[1])
        if rank not in self._ranks:
            return None
        attempt = int(labels.get(LABEL_ATTEMPT, "1"))
        return PodLog(pod["metadata"]["name"], self.job_id, attempt, (rank, *found), self._news.set)


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
            known = self._counts[place] > 0 and not line.unfinished
            if known and (line.at or LONG_AGO) <= self._until[place]:
                self._counts[place] -= 1
                continue
            yield line


async def prepare_reading(access: Access, job_id: JobId, choice: LogChoice) -> LogReading:
    """Return a reading of a job's logs, of which nothing is read yet.

    Raises `JobNotFoundError`, `LogsNotFoundError` where there is no such rank or attempt, or `ApiError`.
    """
    job = await read_job(access, job_id)
    ranks = choice.find_ranks(job, [each.number for each in job.status.attempts])
    return LogReading(job, follow=choice.follow, ranks=ranks, attempt=choice.attempt)


def _end_of(attempt: int | None) -> Any:
    """Return what tells whether an attempt is over; the job where it is None."""

    def is_over(job: FrayJob) -> bool:
        ended = [each.number for each in job.status.attempts if each.verdict is not None]
        return is_finished(job.status) or attempt in ended

    return is_over
