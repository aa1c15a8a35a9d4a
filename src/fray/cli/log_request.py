"""What `fray logs` was asked for, and which of a job's hosts that means."""

from __future__ import annotations

from dataclasses import dataclass

from fray.errors import LogsNotFoundError
from fray.plan.gang import derive_gang
from fray.wire.frayjob import FrayJob

__all__ = ["HostChoice", "LogRequest", "choose_hosts"]

NUMBERS_TOLD = 16


@dataclass(frozen=True)
class LogRequest:
    """What `fray logs` was asked for. `rank`, or `slice_index` and `host`, choose hosts; all when unset."""

    name: str
    follow: bool = False
    attempt: int | None = None
    rank: int | None = None
    slice_index: int | None = None
    host: int | None = None
    tail: int | None = None
    timestamps: bool = False


@dataclass(frozen=True)
class HostChoice:
    """Hosts by their places; what is None leaves all."""

    rank: int | None
    slice_index: int | None
    host: int | None

    def holds(self, *, rank: int, slice_index: int, host: int) -> bool:
        """Whether a host is among them."""
        return (
            self.rank in (None, rank)
            and self.slice_index in (None, slice_index)
            and self.host in (None, host)
        )


def choose_hosts(request: LogRequest, job: FrayJob) -> HostChoice:
    """Return the hosts of a job that a request means; raises `LogsNotFoundError` where it has no such."""
    gang = derive_gang(job.spec)
    limits = (
        ("rank", request.rank, gang.hosts),
        ("slice", request.slice_index, gang.slices),
        ("host", request.host, gang.hosts_per_slice),
    )
    for what, asked, count in limits:
        if asked is not None and not 0 <= asked < count:
            known = tuple(map(str, range(min(count, NUMBERS_TOLD))))
            raise LogsNotFoundError(request.name, f"{what} {asked}", known)
    return HostChoice(request.rank, request.slice_index, request.host)
