"""The few words that a callable's process leaves for the operator: the termination message of its container.

The kubelet hands on 4096 bytes of it, so a message is cut, at characters, to stay one JSON object. The
process writes it, and programs that never import what ran read it: the operator and the client. Standard
library only. What came back of the callable itself is in `fray.payload.outcome`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["LIMIT", "Ending", "TerminationMessage"]

LIMIT = 4096
"""Bytes: https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/"""
TYPE_BYTES = 300
MESSAGE_BYTES = 1200
_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


class Ending(StrEnum):
    """How a callable's process came to its end."""

    RETURNED = "returned"
    RAISED = "raised"
    EXITED = "exited"
    """By `sys.exit`, or because of a signal."""
    NEVER_RAN = "neverRan"
    """The payload couldn't be run: an exit code of 114 to 118 means that."""


@dataclass(frozen=True)
class TerminationMessage:
    """How the process ended; for an exception its type, its text and the end of its traceback.

    `sha256` is the digest of the outcome that was kept for the client, None where none was.
    """

    ending: Ending
    type: str = ""
    message: str = ""
    traceback: str = ""
    sha256: str | None = None

    def to_json(self) -> str:
        """Return it as one line of at most `LIMIT` bytes of UTF-8, valid whatever is in it.

        The text is cut at its end, the traceback at its beginning.
        """
        known: dict[str, str | int] = {"fray": 1, "ending": str(self.ending)}
        if self.sha256 is not None:
            known["sha256"] = self.sha256
        known["type"] = _cut(self.type, TYPE_BYTES)
        known["message"] = _cut(self.message, MESSAGE_BYTES)
        known["traceback"] = ""
        left = LIMIT - len(_to_json(known).encode())
        known["traceback"] = _cut(self.traceback[::-1], left)[::-1]
        return _to_json(known)

    @classmethod
    def from_json(cls, text: str) -> TerminationMessage | None:
        """Return the message in a container's termination message; None for any other text."""
        try:
            known = json.loads(text)
            if not isinstance(known, dict) or known.get("fray") != 1:
                return None
            kind, message, traceback = known["type"], known["message"], known["traceback"]
            sha256 = known.get("sha256")
            if not all(isinstance(each, str) for each in (kind, message, traceback)):
                return None
            if not isinstance(sha256, str | None):
                return None
            return cls(Ending(known["ending"]), kind, message, traceback, sha256)
        except (ValueError, KeyError, RecursionError):
            return None

    @property
    def lines(self) -> tuple[str, ...]:
        """What a person reads: the end of the traceback, or else the text."""
        if self.traceback:
            return tuple(self.traceback.splitlines())
        text = ": ".join(part for part in (self.type, self.message) if part)
        return tuple(text.splitlines())


def _to_json(known: dict[str, str | int]) -> str:
    return json.dumps(known, ensure_ascii=False, separators=(",", ":"))


def _cut(text: str, limit: int) -> str:
    """Return the beginning of a text whose JSON takes at most `limit` bytes, quotes not counted."""
    # A character takes at least a byte. Halves of surrogate pairs have no UTF-8.
    part = text[: limit + 1].encode("utf-8", "replace").decode()
    costs = [len(_to_json_character(character)) for character in part]
    if len(part) == len(text) and sum(costs) <= limit:
        return part
    left = limit - len(_ELLIPSIS.encode())
    for index, cost in enumerate(costs):
        left -= cost
        if left < 0:
            return part[:index] + _ELLIPSIS
    return part + _ELLIPSIS


def _to_json_character(character: str) -> bytes:
    return json.dumps(character, ensure_ascii=False).encode()[1:-1]
