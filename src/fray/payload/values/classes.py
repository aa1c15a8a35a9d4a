"""Classes by value that have changed: processes that have one already get it as it is now.

cloudpickle makes a class once in a process, and only sets its attributes when it comes again. So what was
deleted would stay; and what is as it was before has the same pickle as then, which need not come again.
Which classes go by value is for `pickling` to say.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["as_it_is_now"]

SetState = Callable[[type, Any], Any]


class _Sent:
    """How this process has pickled a class: all `names` that it had, its last state, how often it changed."""

    __slots__ = ("changes", "marks", "names")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.marks: tuple[tuple[str, int], ...] = ()
        self.changes = -1


_sent: weakref.WeakKeyDictionary[type, _Sent] = weakref.WeakKeyDictionary()


def as_it_is_now(made: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return how cloudpickle reduces a class, with what it has lost, and which of its states this is.

    A pickle from before deletes nothing, so that an old value can't take away what is new.
    """
    *rest, set_state = reduced
    names = rest[2][0].keys()
    sent = _sent.setdefault(made, _Sent())
    sent.names.update(names)
    # Identities: the values may refer to the class, and would keep it.
    marks = tuple((name, id(value)) for name, value in vars(made).items())
    if marks != sent.marks:
        sent.marks, sent.changes = marks, sent.changes + 1
    if not sent.changes:
        return reduced
    deleted = tuple(sorted(sent.names - names))
    return (*rest, functools.partial(_set_and_delete, set_state, deleted, sent.changes))


def _set_and_delete(set_state: SetState, deleted: tuple[str, ...], _: int, made: type, state: Any) -> Any:
    for name in deleted:
        if name in vars(made):
            with contextlib.suppress(AttributeError):  # its metaclass won't
                delattr(made, name)
    if (sent := _sent.get(made)) is not None:
        sent.names.difference_update(deleted)  # that isn't for this process to delete elsewhere
    return set_state(made, state)
