"""One line of an examination of what jobs need: the same for all clusters."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Finding", "Mark"]


class Mark(StrEnum):
    """What is thought of an observation."""

    OK = "ok"
    WRONG = "wrong"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Finding:
    """One line of an examination: what was looked at, what was seen, and what to do where it isn't right."""

    subject: str
    mark: Mark
    told: str
    next_step: str = ""
