"""Which JobSets an actor has whose members are TPU slices of several hosts: one for each, or none.

A JobSet is made once and never changed. A member that starts again gets another one, of a higher number, and
only when nothing is left of the one before: no JobSet of the index, and no pod, whatever controls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fray.plan.manifests import Manifest, read_attempt_label, read_label
from fray.plan.pod_observation import is_ending, is_jobset_finished
from fray.vocabulary import LABEL_POD_INDEX

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
    says that it may not start again.
    """

    attempt: int
    begun: int = 0
    current: Manifest | None = None
    failed: bool = False
    steps: Sequence[StartSlice | EndSlice] = ()


def read_index(manifest: Manifest) -> str | None:
    """Return the index of the member that an object says it is of."""
    return read_label(manifest, LABEL_POD_INDEX)


def plan_slice(
    index: int,
    *,
    wanted: bool,
    attempt: int,
    restarts: int | None,
    jobsets: Sequence[Manifest],
    occupied: bool,
) -> SlicePlan:
    """Return what becomes of a member, by the number of its JobSet that the status says; 0: it had none.

    `restarts` is how often it may start again, None without limit; `jobsets` are those of its index,
    `occupied` says whether there is any pod of it.
    """
    begun = max(map(read_attempt_label, jobsets), default=0)
    number = max(attempt, begun, 1 if wanted else 0)
    current = next((each for each in jobsets if read_attempt_label(each) == number), None)
    if current is not None and (not wanted or is_ending(current) or is_jobset_finished(current)):
        # Noted before anything is deleted: its number is never used again.
        number, current = number + 1, None
    failed = restarts is not None and number - 1 > restarts
    if wanted and not failed and not jobsets and not occupied:
        return SlicePlan(number, steps=[StartSlice(index, number)])
    over = [each for each in jobsets if each is not current and not is_ending(each)]
    return SlicePlan(number, begun, current, failed, [EndSlice(each) for each in over])
