"""When a finished job is deleted: `spec.ttlSecondsAfterFinished` after its end.

Read from the raw manifest, not from the model: there may be thousands of finished jobs, some of them written
by other versions, and nothing but the time is needed of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from fray.plan.manifests import Manifest, find_condition
from fray.plan.timestamps import parse_time
from fray.vocabulary import ConditionType

__all__ = ["derive_expiry"]


def derive_expiry(manifest: Manifest) -> datetime | None:
    """Return when a FrayJob that has finished is to be deleted, None when it is to be kept.

    It is kept where nothing in it tells when it ended: what was deleted too early doesn't come back. For the
    same reason it never ended before it was made, whatever the clock of the operator said that wrote its end.
    """
    seconds = manifest.get("spec", {}).get("ttlSecondsAfterFinished")
    ends = list(_read_times(_tell_ends(manifest)))
    if seconds is None or not ends:
        return None
    made = _read_times([manifest["metadata"].get("creationTimestamp")])
    try:
        return max([ends[0], *made]) + timedelta(seconds=seconds)
    except OverflowError:
        return None  # after the year 9999


def _tell_ends(manifest: Manifest) -> Iterator[Any]:
    """Yield what tells when the job ended, the best first."""
    yield manifest.get("status", {}).get("completionTime")
    yield find_condition(manifest, ConditionType.FINISHED).get("lastTransitionTime")


def _read_times(texts: Any) -> Iterator[datetime]:
    """Yield the times among what somebody may have edited by hand."""
    for text in texts:
        try:
            yield parse_time(text)
        except (TypeError, ValueError):
            continue
