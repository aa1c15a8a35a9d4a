"""The lives of tasks and actors as tables: which state follows which, and for what cause.

What is done on a transition stands in tasks, calls and actors; here is only what is legal, so that a
mistake there ends in an error that tells the story instead of in a state that nobody meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from fray.errors import FrayError

__all__ = ["ACTOR_TRANSITIONS", "TASK_TRANSITIONS", "Cause", "InvalidTransition", "StateName"]

StateName: TypeAlias = str
Cause: TypeAlias = str

WAITING: Final = "waiting"
"""An argument isn't there yet. (A call of a method: or it waits behind such a one.)"""
READY: Final = "ready"
"""All arguments are there; it's queued at the head."""
SENT: Final = "sent"
"""It was sent ahead to a worker, and isn't known to have begun."""
RUNNING: Final = "running"
BLOCKED: Final = "blocked"
"""It waits for other tasks, inside its worker; what it held is free."""
KEPT: Final = "kept"
"""It has ended and is kept as the lineage of its result."""
ENDED: Final = "ended"

PENDING: Final = "pending"
"""An actor that waits for arguments, resources or its process."""
STARTING: Final = "starting"
"""Its constructor runs."""
ALIVE: Final = "alive"
RESTARTING: Final = "restarting"
"""As pending, after its worker was lost."""
DEAD: Final = "dead"

STARTED: Final = "started"
SENT_AHEAD: Final = "sent ahead"
RETURNED: Final = "returned"
DONE: Final = "done"
FAILED: Final = "failed"
LOST: Final = "lost"
RETRIED: Final = "retried"
UNREADY: Final = "unready"
UNBLOCKED: Final = "unblocked"
REBUILT: Final = "rebuilt"
FORGOTTEN: Final = "forgotten"
PLACED: Final = "placed"

TASK_TRANSITIONS: Mapping[tuple[StateName, Cause], StateName] = MappingProxyType(
    {
        (WAITING, READY): READY,
        (WAITING, FAILED): ENDED,
        (READY, UNREADY): WAITING,
        (READY, STARTED): RUNNING,
        (READY, SENT_AHEAD): SENT,
        (READY, FAILED): ENDED,
        (SENT, STARTED): RUNNING,
        (SENT, RETURNED): READY,
        (SENT, BLOCKED): BLOCKED,
        (SENT, DONE): ENDED,
        (SENT, KEPT): KEPT,
        (SENT, FAILED): ENDED,
        (SENT, LOST): READY,
        (SENT, RETRIED): READY,
        (RUNNING, BLOCKED): BLOCKED,
        (RUNNING, DONE): ENDED,
        (RUNNING, KEPT): KEPT,
        (RUNNING, FAILED): ENDED,
        (RUNNING, LOST): READY,
        (RUNNING, RETRIED): READY,
        (BLOCKED, UNBLOCKED): RUNNING,
        (BLOCKED, DONE): ENDED,
        (BLOCKED, KEPT): KEPT,
        (BLOCKED, FAILED): ENDED,
        (BLOCKED, LOST): READY,
        (BLOCKED, RETRIED): READY,
        (KEPT, REBUILT): WAITING,
        (KEPT, FORGOTTEN): ENDED,
    }
)
"""(state, cause) -> state of a task or a call."""

ACTOR_TRANSITIONS: Mapping[tuple[StateName, Cause], StateName] = MappingProxyType(
    {
        (PENDING, PLACED): STARTING,
        (PENDING, LOST): RESTARTING,
        (PENDING, ENDED): DEAD,
        (STARTING, READY): ALIVE,
        (STARTING, LOST): RESTARTING,
        (STARTING, ENDED): DEAD,
        (ALIVE, LOST): RESTARTING,
        (ALIVE, ENDED): DEAD,
        (RESTARTING, PLACED): STARTING,
        (RESTARTING, LOST): RESTARTING,
        (RESTARTING, ENDED): DEAD,
    }
)
"""(state, cause) -> state of an actor."""


class InvalidTransition(FrayError):  # noqa: N818 - the name the field uses, as dask's
    """The state machine was about to do what its tables don't allow: a defect of Fray itself.

    `story` is what befell the task or actor before, as far as it's remembered, oldest first.
    """

    message = "{what} is {state!r}, where {cause!r} is not legal{story:lines}"
    next_step = "Report this to Fray's authors with the lines above: no use of it should lead here."

    what: str
    state: StateName
    cause: Cause
    story: tuple[str, ...] = ()
