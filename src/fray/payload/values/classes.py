"""Classes by value that change: a process has the newest state that has come to it, and never goes back.

cloudpickle makes a class whenever it comes, keeps the first one and sets its attributes each time. So an
older pickle would take back what is newer, in the program that defines the class too, what was deleted would
stay, and `__init_subclass__` would run again and again. Here each state of a class has a number. Who defines
the class gives it, and takes none; all others take a state once, and only if it is newer than theirs. What
they change themselves stays with them.

Which classes go by value is for `pickling` to say, whether one has changed for `captures`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any

from cloudpickle import cloudpickle  # type: ignore[import-untyped]

from fray.payload.values.captures import Captures
from fray.payload.values.references import uncollected

__all__ = ["define_here", "reduce_class", "sent_states", "state_of"]


class _Known:
    """The state of a class here; `names` are those of the attributes that came."""

    __slots__ = ("captures", "is_own", "names", "number")

    def __init__(self, number: int, *, is_own: bool, names: Collection[str] = ()) -> None:
        self.number = number
        self.is_own = is_own
        """Whether it is defined here."""
        self.names = names
        self.captures: Captures | None = None
        """What it was when it got its number here."""


_known: weakref.WeakKeyDictionary[type, _Known] = weakref.WeakKeyDictionary()
_last_number = 0
_lock = threading.RLock()


def _unlock_in_child() -> None:
    global _lock  # noqa: PLW0603 - another thread of the parent may have had it
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_unlock_in_child)


def define_here() -> None:
    """Let this process define the classes that have come to it: it runs the program that they came with."""
    with _lock:
        for known in _known.values():
            known.is_own = True


def state_of(made: type) -> int:
    """Return the number of the state that a class is in. To be called before its attributes are read."""
    global _last_number  # noqa: PLW0603 - one for all classes
    known = _known.get(made)
    if known is not None and not known.is_own:
        return known.number
    with uncollected():
        if known is not None and known.captures is not None and not known.captures.changed(now=True):
            return known.number
        # Before the number: of two threads, the one with the later number has seen the later state.
        captures = Captures(made, alone=True)
    with _lock:
        _last_number += 1
        known = _known[made] = _Known(_last_number, is_own=True)
        known.captures = captures
        return known.number


def sent_states(classes: Iterable[weakref.ref[type]]) -> tuple[int, ...]:
    """Return the numbers of the states in which classes were last sent, or came."""
    alive = [made for each in classes if (made := each()) is not None]
    return tuple(known.number if (known := _known.get(made)) is not None else 0 for made in alive)


def reduce_class(made: type, reduced: tuple[Any, ...], number: int) -> tuple[Any, ...]:
    """Return how cloudpickle reduces a class, so that it is made once, and takes this state if it is new."""
    make, arguments, state, *rest, set_state = reduced
    slots = vars(made).get("__slots__")
    if make is cloudpickle._make_skeleton_class and isinstance(slots, tuple | list | str | dict) and slots:
        # Without them, instances would have a dictionary there, which the class here couldn't take back.
        kind, name, bases, keywords, *more = arguments
        arguments = (kind, name, bases, {**keywords, "__slots__": slots}, *more)
        state = ({name: value for name, value in state[0].items() if name != "__slots__"}, *state[1:])
    take = functools.partial(_take_state, set_state, number, made.__bases__)
    return (functools.partial(_make_once, make), arguments, state, *rest, take)


def _make_once(make: Callable[..., type], *arguments: Any) -> type:
    *_, identity, _ = arguments
    known: type | None = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(identity)
    return make(*arguments) if known is None else known


def _take_state(
    set_state: Callable[[type, Any], Any], number: int, bases: tuple[type, ...], made: type, state: Any
) -> type:
    global _last_number  # noqa: PLW0603 - one for all classes
    with _lock:
        known = _known.get(made)
        if known is not None and (known.is_own or known.number >= number):
            return made
        if made.__bases__ != bases:
            with contextlib.suppress(TypeError):  # of another layout
                made.__bases__ = bases
        names = set(state[0])
        for name in known.names if known is not None else ():
            if name not in names and name in vars(made):
                with contextlib.suppress(AttributeError):  # its metaclass won't
                    delattr(made, name)
        set_state(made, state)
        _known[made] = _Known(number, is_own=False, names=names)
        # Who defines it here later counts on.
        _last_number = max(_last_number, number)
        return made
