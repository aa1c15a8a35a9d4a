"""Takes due keys from the queue and reconciles them; what went wrong decides when a key comes back."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Mapping

from fray.kube.errors import ApiError, ConflictError, NotFoundError, ThrottledError
from fray_operator.kinds import Controller, Key, RefusedError, UnreadableError
from fray_operator.lease import LeaseLostError
from fray_operator.list_watch import Place
from fray_operator.logs import job_context
from fray_operator.metrics import Metrics
from fray_operator.queue import WorkQueue
from fray_operator.store import Store

__all__ = ["work"]

logger = logging.getLogger(__name__)


async def work(queue: WorkQueue[Key], controllers: Mapping[str, Controller], metrics: Metrics) -> None:
    """Work until cancelled, each kind by its controller.

    Raises `LeaseLostError` when this process may not write any more.
    """
    while True:
        key = await queue.get()
        controller, place = controllers[key.kind], (key.namespace, key.name)
        uid = (controller.store.get(place) or {}).get("metadata", {}).get("uid")
        # The pass may begin an attempt: a line tells the one that is current when it is written.
        attempt = functools.partial(_find_attempt, controller.store, place)
        with (
            job_context(kind=key.kind, namespace=key.namespace, name=key.name, uid=uid, attempt=attempt),
            metrics.reconcile_seconds.labels(key.kind).time(),
        ):
            outcome = await _pass(queue, controller.reconcile(place), key)
        metrics.reconciles.labels(key.kind, outcome).inc()


async def _pass(queue: WorkQueue[Key], reconciling: Awaitable[float | None], key: Key) -> str:
    """Wait for a pass and say how it went: done, refused, unreadable, conflict, api_error or error."""
    try:
        again = await reconciling
    except LeaseLostError:
        raise
    except ConflictError:
        # The cache was behind; the event that brings it up to date comes by itself, this is for safety.
        pause = queue.failed(key)
        logger.debug("the object has changed since; trying again in %.1f s", pause)
        return "conflict"
    except RefusedError as refused:
        pause = queue.failed(key, at_least=1.0)
        # Tried again for as long as it takes, while the status and an event tell why.
        logger.debug("it can't be started yet; trying again in %.1f s: %s", pause, refused)
        return "refused"
    except UnreadableError as error:
        # Not tried again: only an edit, which is an event, or another version of the operator mends it.
        queue.done(key)
        logger.warning("the object is left alone until it changes: %s", error)
        return "unreadable"
    except ApiError as error:
        pause = queue.failed(key, at_least=error.retry_after_seconds or 0.0)
        # A job or namespace that was deleted since, and a server that is busy, need nobody's attention.
        level = logging.INFO if isinstance(error, NotFoundError | ThrottledError) else logging.WARNING
        logger.log(level, "the pass failed; trying again in %.1f s: %s", pause, error)
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


def _find_attempt(store: Store, place: Place) -> int | None:
    attempt: int | None = (store.get(place) or {}).get("status", {}).get("attempt")
    return attempt
