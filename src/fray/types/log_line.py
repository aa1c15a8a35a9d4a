"""One line that a host of a job printed, as every backend hands it out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fray.types.job_info import JobId

__all__ = ["LogLine"]


@dataclass(frozen=True)
class LogLine:
    """One line of a job's output; as text it begins with its place: `[slice/host attempt] `.

    Attributes:
        job_id: The job.
        attempt: Number of the attempt, from 1.
        rank: The host within the gang, from 0.
        slice_index: Its slice, from 0; the only one of GPU and CPU gangs.
        host: The host within its slice, from 0.
        text: What it printed, without the newline; bytes that are no UTF-8 are replaced. A line of more than
            1 MiB comes in several, all but the last with `goes_on`.
        at: When it was printed, as far as the backend knows.
        gap: Whether nothing printed this line: it says that, and why, lines of this host are missing here.
        goes_on: Whether the next line of this host is the rest of this one.
        unfinished: Whether the program is still writing this line over and over, as progress bars do: the
            next line of this host takes its place.
    """

    job_id: JobId
    attempt: int
    rank: int
    slice_index: int
    host: int
    text: str
    at: datetime | None = None
    gap: bool = False
    goes_on: bool = False
    unfinished: bool = False

    def __str__(self) -> str:
        return f"[{self.slice_index}/{self.host} {self.attempt}] {self.text}"
