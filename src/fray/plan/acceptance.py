"""What the API server accepts and can't be run: answered by `Accepted=False`, never ignored.

That is what isn't built yet, whose entries disappear as features arrive, and a podTemplate that can't be
merged. Each answer names its field and what to do.
"""

from __future__ import annotations

from fray.plan.observation import Waiting
from fray.plan.overlay_shape import find_overlay_problems
from fray.vocabulary import Reason
from fray.wire.frayjob import FrayJob, FrayJobSpec

__all__ = ["derive_unsupported", "describe_ignored"]

MOST_PROBLEMS = 5


def derive_unsupported(job: FrayJob) -> Waiting | None:
    """Return why the operator can't run this job, or None.

    What can change while a job lives, such as by `kubectl scale`, doesn't keep one from going on that has
    begun: see `describe_ignored`.
    """
    if _wants_workers(job.spec) and not job.status.attempts:
        message = "worker pods don't exist yet: set spec.workers.replicas to 0"
        return Waiting(Reason.WORKERS_NOT_SUPPORTED, message)
    problems = [str(problem) for problem in find_overlay_problems(job.spec.pod_template or {})]
    if problems:
        more = [f"and {len(problems) - MOST_PROBLEMS} more"] if len(problems) > MOST_PROBLEMS else []
        return Waiting(Reason.POD_TEMPLATE_INVALID, "; ".join([*problems[:MOST_PROBLEMS], *more]))
    return None


def describe_ignored(spec: FrayJobSpec) -> str | None:
    """Return what a job that has begun was given since and has no effect, or None."""
    if not _wants_workers(spec):
        return None
    return "worker pods don't exist yet, so spec.workers.replicas is ignored"


def _wants_workers(spec: FrayJobSpec) -> bool:
    return spec.workers is not None and spec.workers.replicas > 0
