"""Which JobSets an actor has whose members are TPU slices of several hosts: one for each, or none.

A JobSet is made once and never changed. A member that starts again gets another one, of a higher number, and
only when nothing is left of the one before: no JobSet of the index, and no pod, whatever controls it. After a
JobSet that completed or failed there is also a pause: the more of them did so in a row, the longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fray.plan.manifests import Manifest, read_attempt_label, read_label
from fray.plan.pod_observation import is_ending, is_jobset_finished
from fray.plan.settings import RetryPolicy
from fray.plan.timestamps import parse_time
from fray.vocabulary import LABEL_POD_INDEX
from fray.wire.frayactor import MemberStatus

__all__ = ["EndSlice", "SlicePlan", "StartSlice", "plan_slice", "read_index"]


@dataclass(frozen=True)
class StartSlice:
    """Create the JobSet of a member."""

    index: int
    attempt: int


@dataclass(frozen=True)
class EndSlice:
    """Delete a JobSet with its pods."""

    jobset: Manifest


@dataclass(frozen=True)
class SlicePlan:
    """What becomes of a member: the number of the JobSet that it has, or has next, and the next steps.

    `begun` is the highest number that there is, 0 without any. `current` is the JobSet that stays. `failed`
    says that it may not start again. `ends` is how many of its JobSets ended in a row, and `start_after` is
    when the next one may start, None where no pause is left.
    """

    attempt: int
    ends: int = 0
    start_after: datetime | None = None
    begun: int = 0
    current: Manifest | None = None
    failed: bool = False
    steps: Sequence[StartSlice | EndSlice] = ()


def read_index(manifest: Manifest) -> str | None:
    """Return the index of the member that an object says it is of."""
    return read_label(manifest, LABEL_POD_INDEX)


def plan_slice(  # noqa: PLR0913 - all that a decision rests on
    before: MemberStatus,
    *,
    wanted: bool,
    restarts: int | None,
    jobsets: Sequence[Manifest],
    occupied: bool,
    policy: RetryPolicy,
    now: datetime,
) -> SlicePlan:
    """Return what becomes of a member.

    `before` is its status as it was written last, with an `attempt` of 0 if it never had a JobSet. `restarts`
    is how often it may start again, None without limit; `jobsets` are those of its index, `occupied` says
    whether there is any pod of it.
    """
    begun = max([before.begun, *map(read_attempt_label, jobsets)])
    number = max(before.attempt, begun, 1 if wanted else 0)
    ends = before.ends_in_a_row
    start_after = None if before.start_after is None else parse_time(before.start_after)
    current = next((each for each in jobsets if read_attempt_label(each) == number), None)
    if current is not None and (not wanted or is_ending(current) or is_jobset_finished(current)):
        # Noted before anything is deleted: its number is never used again.
        number += 1
        if is_jobset_finished(current):
            age = now - parse_time(current["metadata"]["creationTimestamp"])
            ends = 1 if age.total_seconds() > policy.cap_seconds else ends + 1
            start_after = now + timedelta(seconds=policy.delay(ends))
        current = None
    elif current is None and 0 < begun == number:
        number += 1  # somebody deleted it, and it was gone before a pass saw that
    failed = restarts is not None and number - 1 > restarts
    if not wanted:
        ends = 0
    if not wanted or failed or (start_after and start_after <= now):
        start_after = None
    if wanted and not failed and not start_after and not jobsets and not occupied:
        return SlicePlan(number, ends, begun=begun, steps=[StartSlice(before.index, number)])
    over = [each for each in jobsets if each is not current and not is_ending(each)]
    return SlicePlan(number, ends, start_after, begun, current, failed, [EndSlice(each) for each in over])
