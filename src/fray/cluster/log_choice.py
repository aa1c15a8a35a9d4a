"""Whether a job has the rank and the attempt whose lines somebody wants to read: for all backends."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set

from fray.cluster.arguments import check_whole_number
from fray.errors import LogsNotFoundError
from fray.plan.gang import derive_gang
from fray.types import JobId
from fray.wire.frayjob import FrayJob

__all__ = ["check_log_choice"]

SHOWN = 16
"""Ranks and attempts that an error names at most: the first ranks, the last attempts."""


def check_log_choice(
    job: FrayJob, *, rank: int | Collection[int] | None, attempt: int | None, kept: Sequence[int]
) -> frozenset[int]:
    """Return the ranks that are meant, where a job has them, and this attempt among those `kept`.

    Raises:
        InvalidRequestError: One is no whole number.
        LogsNotFoundError: It has no such rank or attempt.
    """
    check_whole_number("attempt", attempt)
    name, hosts = JobId(job.metadata.name), derive_gang(job.spec).hosts
    ranks = list(rank) if isinstance(rank, Set | list | tuple | range) else [rank]
    for each in ranks:
        check_whole_number("rank", each)
    wanted = frozenset(each for each in ranks if isinstance(each, int))
    for each in wanted:
        if not 0 <= each < hosts:
            raise LogsNotFoundError(name, f"rank {each}", tuple(map(str, range(min(hosts, SHOWN)))))
    if attempt is not None and attempt not in kept:
        raise LogsNotFoundError(name, f"logs of attempt {attempt}", tuple(map(str, kept[-SHOWN:])))
    return frozenset(range(hosts)) if rank is None else wanted
