"""Takes due keys from the queue and reconciles them; what went wrong decides when a key comes back."""

from __future__ import annotations

import logging

from fray.kube.errors import ApiError, ConflictError
from fray_operator.informer import JobKey
from fray_operator.jobs import JobStore
from fray_operator.lease import LeaseLostError
from fray_operator.logs import job_context
from fray_operator.metrics import Metrics
from fray_operator.queue import WorkQueue
from fray_operator.reconcile import Reconciler, RefusedAttemptError

__all__ = ["work"]

logger = logging.getLogger(__name__)


async def work(queue: WorkQueue[JobKey], reconciler: Reconciler, jobs: JobStore, metrics: Metrics) -> None:
    """Work until cancelled; raises `LeaseLostError` when this process may not write any more."""
    while True:
        key = await queue.get()
        body = jobs.get(key) or {}
        uid = body.get("metadata", {}).get("uid")
        attempt = body.get("status", {}).get("attempt")
        with (
            job_context(namespace=key[0], name=key[1], uid=uid, attempt=attempt),
            metrics.reconcile_seconds.time(),
        ):
            outcome = await _pass(queue, reconciler, key)
        metrics.reconciles.labels(outcome).inc()


async def _pass(queue: WorkQueue[JobKey], reconciler: Reconciler, key: JobKey) -> str:
    """Reconcile one key and say how it went: done, refused, conflict, api_error or error."""
    try:
        again = await reconciler.reconcile(key)
    except LeaseLostError:
        raise
    except ConflictError:
        # The cache was behind; the event that brings it up to date comes by itself, this is for safety.
        queue.failed(key)
        return "conflict"
    except RefusedAttemptError as refused:
        pause = queue.failed(key, at_least=1.0)
        logger.warning("the attempt could not be started; trying again in %.1f s: %s", pause, refused)
        return "refused"
    except ApiError as error:
        pause = queue.failed(key, at_least=error.retry_after_seconds or 0.0)
        logger.warning("the pass failed; trying again in %.1f s: %s", pause, error)
        return "api_error"
    except Exception:
        # One job that trips a bug must not stop the others; the traceback is the bug report.
        queue.failed(key, at_least=1.0)
        logger.exception("the pass failed; this is a bug of the operator")
        return "error"
    queue.done(key)
    if again is not None:
        queue.add_after(key, again)
    return "done"
