"""Who holds which item of a FileQueue, read from names and records: pure decisions, no files.

An item is a file that is never changed. Beside it stand numbered claims, each created by exactly one
process; the one with the highest number says what the item is: held until a time, released, or done.
To change that, a process creates the next number, and one that fails to has lost the race. So one
creation decides at a time, and a process may die before or after any of its calls:

- no claim is deleted before its item is: a number can't be had twice by somebody who saw an older state;
- a done item is deleted after the mark that says so, and before its claims: it can't come back;
- claims are listed before items, and an item exists before its claims: a claim whose item isn't in the
  list is litter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Literal

__all__ = [
    "Claim",
    "Kind",
    "State",
    "claim_name",
    "claims_of",
    "highest_claims",
    "is_item",
    "litter",
    "state_of",
]

_ITEM = re.compile(r"\d{20}-[0-9a-f]{32}")
_CLAIM = re.compile(rf"({_ITEM.pattern})\.(\d{{8}})")

Kind = Literal["held", "released", "done"]


class State(StrEnum):
    """What a claim makes of its item at a time."""

    WAITING = "waiting"
    LEASED = "leased"
    DONE = "done"


@dataclass(frozen=True)
class Claim:
    """The record in a claim's file: `until` is in seconds since 1970 and counts for held items only."""

    kind: Kind
    token: str = field(repr=False)
    until: float = 0.0

    def encode(self) -> bytes:
        """The content of the claim's file."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Claim:
        """Read such a file. Raises `ValueError` when it is none."""
        found = json.loads(data)
        if not isinstance(found, dict) or found.get("kind") not in ("held", "released", "done"):
            raise ValueError("not a claim")
        return cls(found["kind"], str(found.get("token", "")), float(found.get("until", 0.0)))


def is_item(name: str) -> bool:
    """Whether a file among the items is one."""
    return _ITEM.fullmatch(name) is not None


def claim_name(item: str, number: int) -> str:
    """The name of an item's claim."""
    return f"{item}.{number:08d}"


def highest_claims(claims: Iterable[str]) -> dict[str, int]:
    """The highest claim's number for each item that has one; files that are no claims don't count."""
    highest: dict[str, int] = {}
    for name in claims:
        match = _CLAIM.fullmatch(name)
        if match is not None:
            highest[match[1]] = max(int(match[2]), highest.get(match[1], 0))
    return highest


def litter(claims: Iterable[str], items: Iterable[str]) -> list[str]:
    """The claims whose items are gone, of a list taken before that of the items."""
    known = set(items)
    matches = (_CLAIM.fullmatch(name) for name in claims)
    return [match[0] for match in matches if match is not None and match[1] not in known]


def claims_of(item: str, claims: Iterable[str]) -> list[str]:
    """The claims of one item."""
    return [name for name in claims if name.rpartition(".")[0] == item]


def state_of(claim: Claim | None, now: float) -> State:
    """What an item with this highest claim is; without one nobody has ever taken it."""
    if claim is None or claim.kind == "released":
        return State.WAITING
    if claim.kind == "done":
        return State.DONE
    return State.LEASED if now < claim.until else State.WAITING
