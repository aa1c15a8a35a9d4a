"""What each reason of a FrayActor means: one row with everything that the operator and callers ask of it.

To add a reason, add its word in `fray.vocabulary` and its row here; the table of docs/actors.md is
generated from the rows (`make docs`). Reasons that jobs have too stand in `fray.plan.reasons`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fray.vocabulary import ActorReason, ConditionType

__all__ = ["ACTOR_REASONS", "ActorReasonRow", "get_actor_row"]


@dataclass(frozen=True)
class ActorReasonRow:
    """Everything that anything asks of a reason."""

    meaning: str = ""
    """What happened, for docs/actors.md; empty for one that only tells how far an actor is."""
    stands_on: tuple[ConditionType, ...] = (ConditionType.READY,)
    """Conditions that have it."""
    ends: bool = False
    """Whether the actor has ended for it, or does as soon as its pods have: no call reaches it any more."""
    by_members: bool = False
    """Whether its members have decided on that end: it stays so when they are gone, who reported it."""


_ENDS = (ConditionType.READY, ConditionType.FINISHED)

ACTOR_REASONS: Final[Mapping[ActorReason, ActorReasonRow]] = {
    ActorReason.ALL_MEMBERS_READY: ActorReasonRow(),
    ActorReason.MEMBERS_STARTING: ActorReasonRow(),
    ActorReason.MEMBER_FAILED: ActorReasonRow(
        "a member isn't ready after its constructor raised or its process ended, or `maxRestarts` is used "
        "up; the message has its index and the last error",
    ),
    ActorReason.SOME_MEMBERS_ENDED: ActorReasonRow(
        "some members have ended themselves, and all others take calls; the message says how many do",
    ),
    ActorReason.ROOT_JOB_ENDED: ActorReasonRow(
        "the job that it belongs to (`rootJob`) has ended, or was deleted", _ENDS, ends=True
    ),
    ActorReason.IDLE: ActorReasonRow(
        "no member was called for `idleSeconds`", _ENDS, ends=True, by_members=True
    ),
    ActorReason.MEMBERS_ENDED: ActorReasonRow(
        "all members have ended themselves", _ENDS, ends=True, by_members=True
    ),
    ActorReason.HOST_ENDED: ActorReasonRow(
        "the pod of the process that hosted it has ended, or is gone", _ENDS, ends=True
    ),
    ActorReason.MORE_THAN_ONE_POD: ActorReasonRow(
        "a member has more than one pod that lives; the message names them. Delete all but one",
        (ConditionType.MULTIPLE_PODS,),
    ),
    ActorReason.ONE_POD_EACH: ActorReasonRow(stands_on=(ConditionType.MULTIPLE_PODS,)),
}

_UNKNOWN: Final = ActorReasonRow()


def get_actor_row(word: str | None) -> ActorReasonRow:
    """Return the row of a reason that stands in a status; an empty one for a word that only jobs have."""
    return ACTOR_REASONS[ActorReason(word)] if word in list(ActorReason) else _UNKNOWN
