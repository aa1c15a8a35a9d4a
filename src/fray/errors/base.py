"""What every error of Fray has in common. Kinds of errors stand in the modules beside it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

__all__ = ["FrayError"]


@dataclass(eq=False)
class FrayError(Exception):
    """The root of all errors of Fray: `str()` is the message followed by the next step."""

    @property
    def message(self) -> str:
        """What happened, in one sentence or a short list."""
        return type(self).__name__

    @property
    def next_step(self) -> str:
        """What the reader should do now; groups of errors have none, each error has one."""
        return ""

    def __str__(self) -> str:
        return f"{self.message}\n{self.next_step}" if self.next_step else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))
