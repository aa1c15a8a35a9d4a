"""The body of a frame of messages: a pickled list of the tuples in `messages`.

Those of each task go as plain tuples that begin with a number: pickle takes five times as long for the first
tuple of a class. Read only what an authenticated peer has sent.
"""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from fray.runtime.pool.messages.commands import Deliver, DeliverItems, RunTask
from fray.runtime.pool.messages.events import ItemsProduced, TaskDone, TaskSubmitted
from fray.runtime.pool.messages.specs import PLAIN, Inline, Stored, TaskSpec

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
_RUN_TASK = 1
_TASK_DONE = 2
_TASK_SUBMITTED = 3
_DELIVER = 4
_ITEMS_PRODUCED = 5
_DELIVER_ITEMS = 6
_PROFILE = TaskSpec._fields.index("profile")
_DEPS = RunTask._fields.index("deps")


def encode_messages(messages: list[Any]) -> bytes:
    """Return the messages as the body of a frame."""
    if len(messages) < _FEW:
        return pickle.dumps([_flatten(message) for message in messages], 5)
    return pickle.dumps(messages, 5)


def decode_messages(body: bytes) -> list[Any]:
    """Return what `encode_messages` was given."""
    return [_restore(item) if type(item) is tuple else item for item in pickle.loads(body)]


def _flatten(message: Any) -> Any:
    kind = type(message)
    if kind is TaskDone:
        outcome = message.outcome
        if type(outcome) is Inline:
            return (_TASK_DONE, message[0], *outcome, *message[2:])
    elif kind is Deliver:
        outcome = message.outcome
        if type(outcome) is Inline:
            return (_DELIVER, message[0], message[1], *outcome)
    elif kind is RunTask:
        spec = message.spec
        if spec.profile == PLAIN:
            deps = _flatten_values(message.deps)
            return (
                _RUN_TASK,
                message.worker,
                (*spec[:_PROFILE], None, *spec[_PROFILE + 1 :]),
                message.blob,
                message.deps if deps is None else deps,
                *message[_DEPS + 1 :],
            )
    elif kind is TaskSubmitted:
        spec = message.spec
        if spec.profile == PLAIN:
            return (_TASK_SUBMITTED, (*spec[:_PROFILE], None, *spec[_PROFILE + 1 :]), *message[1:])
    elif kind is ItemsProduced:
        return _flatten_items(_ITEMS_PRODUCED, message)
    elif kind is DeliverItems:
        return _flatten_items(_DELIVER_ITEMS, message)
    return message


def _flatten_items(number: int, message: ItemsProduced | DeliverItems) -> Any:
    """Return identities and bytes as a row each, where all items are small: there are many in a message."""
    rows = _flatten_values([outcome for _, outcome in message.items])
    if rows is None:
        return message
    return (number, *message[:-1], [identity for identity, _ in message.items], rows)


def _flatten_values(values: Sequence[Inline | Stored]) -> list[bytes] | None:
    """Return the bytes of values that are small and hold no references; None: not all are."""
    rows: list[bytes] = []
    for value in values:
        if type(value) is not Inline or value.contained:
            return None
        rows.append(value.data)
    return rows


def _restore_values(rows: list[bytes]) -> list[Inline]:
    new = tuple.__new__
    return [new(Inline, (data, ())) for data in rows]


def _restore(item: tuple[Any, ...]) -> Any:
    new = tuple.__new__
    if item[0] == _TASK_DONE:
        _, identity, data, contained, *rest = item
        return new(TaskDone, (identity, new(Inline, (data, contained)), *rest))
    if item[0] == _DELIVER:
        _, client, identity, data, contained = item
        return new(Deliver, (client, identity, new(Inline, (data, contained))))
    if item[0] == _TASK_SUBMITTED:
        _, spec, *rest = item
        return new(TaskSubmitted, (_plain(spec), *rest))
    if item[0] == _ITEMS_PRODUCED or item[0] == _DELIVER_ITEMS:
        *fields, identities, rows = item[1:]
        kind = ItemsProduced if item[0] == _ITEMS_PRODUCED else DeliverItems
        return new(kind, (*fields, tuple(zip(identities, _restore_values(rows), strict=True))))
    _, worker, spec, blob, deps, *rest = item
    values = tuple(_restore_values(deps)) if type(deps) is list else deps
    return new(RunTask, (worker, _plain(spec), blob, values, *rest))


def _plain(spec: tuple[Any, ...]) -> Any:
    return tuple.__new__(TaskSpec, (*spec[:_PROFILE], PLAIN, *spec[_PROFILE + 1 :]))


def _frozen(counts: dict[Any, Any]) -> Any:
    return MappingProxyType(counts)


# The counts that the head answers with are frozen mappings.
copyreg.pickle(MappingProxyType, lambda counts: (_frozen, (dict(counts),)))
