"""Which living job a launcher that began anew takes for the one that it asks for: pure, for all backends.

A job that launches others and is tried again runs the same program a second time. Its children live on where
the backend lets them, and must not be launched twice; those of others that have the same name aren't its own.
"""

from __future__ import annotations

from fray.cluster.progress import get_original_name
from fray.plan.status import is_finished
from fray.wire.frayjob import FrayJob, Parent

__all__ = ["is_resumable"]


def is_resumable(job: FrayJob, name: str, parent: Parent | None) -> bool:
    """Return whether a launch of this name, by a process of this job, may go on with a job that is there."""
    if parent is None or job.spec.parent is None or job.spec.parent.name != parent.name:
        return False
    ends = job.spec.stopped or is_finished(job.status) or job.metadata.deletion_timestamp is not None
    return not ends and get_original_name(job) == name
