"""What tells that a host is or was taken away: data, whose text is shown and never read again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fray.plan.outside_text import clean_text

__all__ = ["Evidence", "EvidenceKind", "EvidenceSource"]


class EvidenceKind(StrEnum):
    """What took a host, or takes it."""

    TAKEN = "Taken"
    """Somebody or something wants its room or its node: an eviction, a preemption, a drain, a shutdown."""
    MISPLACED = "Misplaced"
    """JobSet removes it, since it stands in another slice's node pool: charged to no budget."""
    NODE_SILENT = "NodeSilent"
    """Its node has stopped reporting, or was given up for that."""
    NODE_LOW = "NodeLow"
    """Its node was short of what others used."""
    NODE_LEAVING = "NodeLeaving"
    """Its node is gone, or about to go."""
    CONTAINER_LOST = "ContainerLost"
    """Its node's runtime doesn't know its container any more."""
    END_UNSEEN = "EndUnseen"
    """Nobody has seen its container end, as after a reboot."""
    NOT_STARTED = "NotStarted"
    """Its node's runtime couldn't start what another might."""


class EvidenceSource(StrEnum):
    """What kind of object it was seen on."""

    POD = "Pod"
    NODE = "Node"
    JOB = "Job"
    STATUS = "Status"
    """It was seen before, and noted in the FrayJob's status."""


@dataclass(frozen=True)
class Evidence:
    """One sign: of what, where it was seen, the words to show, and since when it is there if that is told."""

    kind: EvidenceKind
    source: EvidenceSource
    text: str
    at: datetime | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", clean_text(self.text))
