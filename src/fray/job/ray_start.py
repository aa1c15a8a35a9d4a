"""Ray is started again where it gives up: on a busy machine it does after 30 s, which can't be set.

The time is `raylet_start_wait_time_s` in Ray's `node.py`. That of a raylet for its agents is none, by
`ray_start_node`; that of its first task for one of them can be set.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from traceback import walk_tb
from typing import Any, Final, TypeVar

from fray.job.ray_start_node import agents_unawaited

__all__ = ["start_here", "try_to_start"]

_log = logging.getLogger(__name__)

T = TypeVar("T")
SYSTEM: Final = {"_system_config": {"agent_register_timeout_ms": 600_000}}
"""Parameters of `ray.init`: a raylet ends if its agent doesn't answer for that long, by default for 30 s."""
TRIES: Final = 3
"""Of a start: the next one finds Ray's files in memory."""


def try_to_start(start: Callable[[], T]) -> T:
    """Return what `start` returns; where it raises `OSError`, try again, and raise that of the last try.

    A try that has failed leaves no process.
    """
    for _ in range(TRIES - 1):
        try:
            return start()
        except OSError as error:
            _log.warning("Ray is started again: %s", error)
    return start()


def start_here(**options: Any) -> None:
    """Start a Ray on this machine by `ray.init` with these options, and join it.

    Raises `OSError` where Ray gives up, and what `ray.init` raises for options that are wrong.
    """
    try_to_start(lambda: _init(options))


def _init(options: dict[str, Any]) -> None:
    import ray  # noqa: PLC0415 - an extra, and a second to import

    try:
        with agents_unawaited():
            ray.init(address="local", **(SYSTEM | options))
    except Exception as error:
        _end_processes(error)
        if isinstance(error, ValueError | TypeError):
            raise  # it's of the options
        raise OSError(f"Ray couldn't be started: {error}") from error


def _end_processes(error: Exception) -> None:
    """End what a `ray.init` that raised has started, and would leave to the end of this process.

    `ray.shutdown` ends the node that `ray.init` knows. One that wasn't complete only the error leads to.
    """
    import ray  # noqa: PLC0415 - an extra, and a second to import
    from ray._private.node import Node  # noqa: PLC0415 - as above

    ray.shutdown()
    for frame, _ in walk_tb(error.__traceback__):
        if isinstance(node := frame.f_locals.get("self"), Node):
            node.kill_all_processes(check_alive=False, allow_graceful=True, wait=True)
