"""Whether an attempt that is ending has its JobSet deleted, or left to end by itself.

A JobSet that has ended stays, with the logs of what failed. One that hasn't would run on, or make hosts
anew, under a job that has long ended: it is never left behind.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from fray.plan.manifests import Manifest
from fray.plan.observation import GangObservation
from fray.plan.pod_observation import is_jobset_finished
from fray.plan.reasons import REASONS
from fray.vocabulary import Reason

__all__ = ["is_left_to_itself"]

PATIENCE = timedelta(seconds=60)
"""How long after its hosts ended a JobSet may take to say so; usually it takes less than a second."""


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
