"""The objects that a FrayJob has in a cluster: one row for each role says what it is, and how long it stays.

All of them are created once, adopted when they exist already, found again by their labels and deleted by
the same code; only here does it stand which there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fray.plan.jobset import build_attempt
from fray.plan.manifests import Manifest
from fray.plan.settings import PlanSettings
from fray.vocabulary import LABEL_ROLE, Role
from fray.wire.frayjob import FrayJob

__all__ = ["ROLES", "Child", "RoleRow", "build_children", "read_role"]


@dataclass(frozen=True)
class RoleRow:
    """What all objects of a role have in common."""

    kind: str
    """Their kind."""
    outlives_attempt: bool = False
    """Whether one serves all attempts of its job, and goes with the job."""


ROLES: Final[Mapping[Role, RoleRow]] = {
    Role.HOST: RoleRow("JobSet"),
    Role.WORKER: RoleRow("Job"),
}


@dataclass(frozen=True)
class Child:
    """One object of a job: its role, and its manifest."""

    role: Role
    manifest: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the object."""
        return str(self.manifest["metadata"]["name"])

    @property
    def row(self) -> RoleRow:
        """What it has in common with all of its role."""
        return ROLES[self.role]


def build_children(job: FrayJob, *, attempt: int, settings: PlanSettings) -> tuple[Child, ...]:
    """Return the objects that attempt number `attempt` needs, in the order in which they are created.

    Raises what `build_attempt` raises.
    """
    plan = build_attempt(job, attempt=attempt, settings=settings)
    return (Child(Role.HOST, plan.jobset),)


def read_role(manifest: Manifest) -> Role:
    """Return an object's role; one that doesn't say belongs to the gang, as all once did."""
    role = (manifest["metadata"].get("labels") or {}).get(LABEL_ROLE)
    return Role(role) if role in list(Role) else Role.HOST
