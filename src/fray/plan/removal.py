"""Which children of an attempt that is ending are deleted, and which are left to end by themselves.

A JobSet that has ended stays, with the logs of what failed. One that hasn't would run on, or make hosts
anew, under a job that has long ended: it is never left behind. What serves later attempts too stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TypeVar

from fray.plan.children import ROLES, read_role
from fray.plan.manifests import Manifest
from fray.plan.observation import GangObservation
from fray.plan.pod_observation import is_jobset_finished
from fray.plan.reasons import REASONS
from fray.vocabulary import Reason, Role

__all__ = ["find_removed", "is_left_to_itself"]

Object = TypeVar("Object", bound=Manifest)

PATIENCE = timedelta(seconds=60)
"""How long after its hosts ended a JobSet may take to say so; usually it takes less than a second."""


def find_removed(
    reason: Reason, children: Iterable[Object], observed: GangObservation | None, *, now: datetime
) -> list[Object]:
    """Return which children of an attempt that is ending are to be deleted, for it to end."""

    def stays(child: Object) -> bool:
        role = read_role(child)
        if ROLES[role].outlives_attempt:
            return True
        if role is Role.HOST:
            return observed is not None and is_left_to_itself(reason, child, observed, now=now)
        return is_jobset_finished(child) is not None

    return [child for child in children if not stays(child)]


def is_left_to_itself(reason: Reason, jobset: Manifest, observed: GangObservation, *, now: datetime) -> bool:
    """Return whether the JobSet of an attempt that is ending has ended, or will without being deleted.

    It won't when somebody suspends it, when the host that failed is no longer there (its Job was deleted,
    and JobSet makes another), or when another container with accelerators keeps a pod alive.
    """
    if not REASONS[reason].ends_by_itself:
        return False
    if is_jobset_finished(jobset) is not None:
        return True
    if observed.suspended:
        return False
    failed = [host.ended_at for host in observed.hosts if host.failed and host.ended_at]
    if failed:
        return now < min(failed) + PATIENCE
    ends = [host.ended_at for host in observed.hosts if host.ended_at is not None]
    return observed.succeeded and bool(ends) and now < max(ends) + PATIENCE
