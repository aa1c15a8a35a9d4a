"""Facts read from the raw manifest of a FrayJob: when it is deleted, and what its end means for children.

Not from the model: there may be thousands of finished jobs, some of them written by other versions, and few
fields are needed of each. Child jobs end with their parent, unless it succeeded: a job may launch others and
be done. Which FrayJob is the parent, and not merely one of its name, is decided by times: a parent is there
before its child.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fray.plan.manifests import Manifest, find_condition
from fray.plan.timestamps import parse_time
from fray.vocabulary import FRAYJOB_KIND, ConditionType

__all__ = ["ParentState", "derive_expiry", "derive_parents_end", "get_parent_name", "read_parent"]

SERVER_SKEW = timedelta(seconds=5)
"""How far the clocks of two API servers of a cluster may be apart, which say when their objects were made."""
ENDS = {ConditionType.FAILED: "failed", ConditionType.STOPPED: "was stopped"}


@dataclass(frozen=True)
class ParentState:
    """What children need to know of their parent; `end` says how it ended, None unless that ends them too."""

    uid: str
    made_at: datetime
    end: str | None


def get_parent_name(manifest: Manifest) -> str | None:
    """Return the name of the job that launched a FrayJob, None for one that no job did."""
    name: str | None = (manifest.get("spec", {}).get("parent") or {}).get("name")
    return name


def read_parent(manifest: Manifest) -> ParentState:
    """Return what a FrayJob's manifest tells its children."""
    metadata = manifest["metadata"]
    made_at = parse_time(metadata["creationTimestamp"])
    if "deletionTimestamp" in metadata:
        return ParentState(metadata["uid"], made_at, "is being deleted")
    ended = find_condition(manifest, ConditionType.FINISHED, status="True")
    how = find_condition(manifest, *ENDS, status="True") if ended else {}
    return ParentState(metadata["uid"], made_at, ENDS.get(how.get("type", "")))


def derive_parents_end(child: Manifest, parent: ParentState | None) -> str | None:
    """Return why a job must end with its parent, such as `its parent train failed`; None while it needn't.

    `parent` is the FrayJob that has the parent's name now, None where there is none.
    """
    name = get_parent_name(child)
    if name is None:
        return None
    if parent is None or not _is_parent(child, parent):
        return f"its parent {name} was deleted"
    return None if parent.end is None else f"its parent {name} {parent.end}"


def _is_parent(child: Manifest, parent: ParentState) -> bool:
    """Return whether a FrayJob of the parent's name is the one that the child was made for."""
    metadata = child["metadata"]
    owners = {
        owner["uid"]
        for owner in metadata.get("ownerReferences", [])
        if owner["kind"] == FRAYJOB_KIND and owner["name"] == get_parent_name(child)
    }
    if owners:
        return parent.uid in owners
    return parent.made_at <= parse_time(metadata["creationTimestamp"]) + SERVER_SKEW


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
