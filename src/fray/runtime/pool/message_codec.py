"""The body of a frame of messages: a pickled list of the tuples in `messages`.

Those of each task go as plain tuples that begin with a number: pickle takes five times as long for the first
tuple of a class. Read only what an authenticated peer has sent.
"""

from __future__ import annotations

import copyreg
import pickle
from types import MappingProxyType
from typing import Any

from fray.runtime.pool.messages.commands import Deliver, DeliverItems, RunTask
from fray.runtime.pool.messages.events import ItemsProduced, RefsReleased, TaskDone, TaskSubmitted
from fray.runtime.pool.messages.specs import PLAIN, TaskSpec

__all__ = ["MESSAGES", "OVER", "REFUSAL", "STAMP", "decode_messages", "encode_messages"]

MESSAGES = 1
"""The kind of frames that have such a body."""
STAMP = 2
"""The kind of those with a peer's versions as their body, in JSON: they come before all messages, whose form
depends on them."""
REFUSAL = 3
"""The kind of the head's answer to versions that it can't work with: why, in words."""
OVER = 4
"""The kind of the head's last word to nannies and clients, of whichever version: the attempt of their job is
over, and why, in words."""

_FEW = 8
"""From so many messages on, pickle is as fast with classes, and they go as they stand."""
_KINDS: dict[int, type] = dict(
    enumerate((RunTask, TaskDone, TaskSubmitted, Deliver, ItemsProduced, DeliverItems, RefsReleased), 1)
)
_NUMBERS = {kind: number for number, kind in _KINDS.items()}
_WITH_SPEC: dict[type, int] = {kind: kind._fields.index("spec") for kind in (RunTask, TaskSubmitted)}
"""Where the spec stands in those that have one."""
_PROFILE = TaskSpec._fields.index("profile")


def encode_messages(messages: list[Any]) -> bytes:
    """Return the messages as the body of a frame."""
    if len(messages) < _FEW:
        return pickle.dumps(list(map(_flatten, messages)), 5)
    return pickle.dumps(messages, 5)


def decode_messages(body: bytes) -> list[Any]:
    """Return what `encode_messages` was given."""
    messages: list[Any] = pickle.loads(body)
    for place, item in enumerate(messages):
        if type(item) is tuple:
            messages[place] = _restore(item)
    return messages


def _flatten(message: Any) -> Any:
    kind = type(message)
    number = _NUMBERS.get(kind)
    if number is None:
        return message
    place = _WITH_SPEC.get(kind)
    if place is None:
        return (number, *message)
    spec = message[place]
    profile = spec[_PROFILE]
    if profile is not PLAIN and profile != PLAIN:
        return message
    flat = list(spec)
    flat[_PROFILE] = None
    fields = [number, *message]
    fields[place + 1] = tuple(flat)
    return tuple(fields)


def _restore(item: tuple[Any, ...]) -> Any:
    kind = _KINDS[item[0]]
    place = _WITH_SPEC.get(kind)
    if place is None:
        return tuple.__new__(kind, item[1:])
    fields = list(item[1:])
    spec = list(fields[place])
    spec[_PROFILE] = PLAIN
    fields[place] = tuple.__new__(TaskSpec, spec)
    return tuple.__new__(kind, fields)


def _frozen(counts: dict[Any, Any]) -> Any:
    return MappingProxyType(counts)


# The counts that the head answers with are frozen mappings.
copyreg.pickle(MappingProxyType, lambda counts: (_frozen, (dict(counts),)))
