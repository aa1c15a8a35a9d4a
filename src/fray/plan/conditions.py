"""Conditions of a status, built from what holds now and from those before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from fray.plan.timestamps import format_time
from fray.vocabulary import ActorReason, ConditionType, Reason
from fray.wire.status import Condition

__all__ = ["Claim", "build_conditions"]


@dataclass(frozen=True)
class Claim:
    """A condition without its history."""

    type: ConditionType
    holds: bool
    reason: Reason | ActorReason
    message: str


def build_conditions(
    claims: Iterable[Claim], previous: Sequence[Condition], *, generation: int | None, now: datetime
) -> list[Condition]:
    """Return conditions whose transition time is kept while their status stays the same."""
    conditions = []
    for claim in claims:
        status = "True" if claim.holds else "False"
        before = next((each for each in previous if each.type == claim.type), None)
        since = (
            before.last_transition_time
            if before is not None and before.status == status
            else format_time(now)
        )
        conditions.append(
            Condition(
                type=claim.type.value,
                status=status,
                reason=claim.reason.value,
                message=_fuller(claim, before),
                last_transition_time=since,
                observed_generation=generation,
            )
        )
    return conditions


def _fuller(claim: Claim, before: Condition | None) -> str:
    """Return a claim's message, or the one before: an old kubelet drops the cause while it waits to pull."""
    if before is None or not before.reason == claim.reason == Reason.IMAGE_PULL_FAILED:
        return claim.message
    return before.message if before.message.startswith(claim.message) else claim.message
