"""Whether a job that another one launched may go on without it: children end with their parent.

They don't when it succeeded, until it is deleted: a job may launch others and be done. Which FrayJob is the
parent, and not merely one of its name, is decided by times: a parent is there before its child.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from fray.plan.manifests import Manifest, find_condition
from fray.plan.timestamps import parse_time
from fray.vocabulary import FRAYJOB_KIND, ConditionType

__all__ = ["ParentState", "derive_parents_end", "get_parent_name", "read_parent"]

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
