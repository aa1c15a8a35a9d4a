"""What an earlier API's client calls the options of an actor."""

from __future__ import annotations

import warnings

from fray.job.options import ActorOptions

__all__ = ["ActorConfig"]


def ActorConfig(  # noqa: N802 - it was a class
    max_concurrency: int = 1,
    max_restarts: int | None = None,
    max_task_retries: int | None = None,
    priority: int = 0,
) -> ActorOptions:
    """Return the options of actors that `Client.create_actor` takes as its `actor_config`.

    Args:
        max_concurrency: Calls that run at once.
        max_restarts: How often it is started again: 0 never, None or -1 without limit.
        max_task_retries: How often lost calls are made again, and a constructor that failed; None: never.
        priority: Not used, with a warning.

    Raises:
        InvalidOptionError: A number is too small.
    """
    if priority:
        warnings.warn("ActorConfig.priority isn't used; actors are in no queue", stacklevel=2)
    return ActorOptions(
        max_concurrency=max_concurrency, max_restarts=max_restarts, max_task_retries=max_task_retries or 0
    )
