"""Which ranks and attempts have lines to read: the same words for every backend."""

from __future__ import annotations

import pytest

from fray.cluster.arguments import SHOWN, LogChoice
from fray.errors import LogsNotFoundError
from tests.unit.cluster.local_jobs import frayjob

JOB = frayjob(replicas=20)


@pytest.mark.parametrize("rank", [None, 0, 19])
@pytest.mark.parametrize("attempt", [None, 3, 40])
def test_what_is_there(rank: int | None, attempt: int | None) -> None:
    LogChoice(rank=rank, attempt=attempt).find_ranks(JOB, range(3, 41))


@pytest.mark.parametrize(
    ("rank", "attempt", "missing", "known"),
    [
        (20, None, "rank 20", range(SHOWN)),
        (-1, 3, "rank -1", range(SHOWN)),
        (None, 2, "logs of attempt 2", range(25, 41)),
        (1, 41, "logs of attempt 41", range(25, 41)),
    ],
)
def test_what_is_not_there_is_told_with_what_is(
    rank: int | None, attempt: int | None, missing: str, known: range
) -> None:
    with pytest.raises(LogsNotFoundError) as caught:
        LogChoice(rank=rank, attempt=attempt).find_ranks(JOB, range(3, 41))
    assert (caught.value.name, caught.value.what) == ("job", missing)
    assert caught.value.known == tuple(map(str, known))
