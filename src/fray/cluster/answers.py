"""What clusters tell tools: what an apply did, how checks went, what would be made, a dashboard's place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from fray.wire.frayjob import FrayJob

__all__ = ["Applied", "CheckResult", "Dashboard", "Mark", "Preview"]


class Applied(StrEnum):
    """What applying a job did, in kubectl's words."""

    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"


class Mark(StrEnum):
    """How a check went; `UNKNOWN` where this account can't see it."""

    OK = "ok"
    WRONG = "wrong"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class CheckResult:
    """One line of `Cluster.examine`: what was checked, what was seen, and what to do if it isn't right."""

    subject: str
    mark: Mark
    seen: str
    next_step: str = ""


@dataclass(frozen=True)
class Preview:
    """The FrayJob that would be made, and the names of the Secrets that would be made beside it."""

    job: FrayJob
    secrets: tuple[str, ...]


@dataclass(frozen=True)
class Dashboard:
    """The dashboard of a job's engine, at a `url` of this machine until it's closed by `close`.

    `hint` says what it asks for, and `find_problem` why the last connection to it couldn't be made, or ended.
    """

    url: str
    hint: str
    find_problem: Callable[[], Exception | None]
    close: Callable[[], None]
