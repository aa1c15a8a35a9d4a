"""Classes by value that change: no process goes back to what a class was.

cloudpickle makes a class once in a process and sets its attributes whenever it comes again. So an older
pickle would take back what is newer, in the program that defines the class too, and what was deleted would
stay. Here each state of a class has a number, which its pickles bear; a state is taken once, and only if it
is newer than the one that is here. Whoever defines a class takes none.

Which classes go by value is for `pickling` to say, whether one has changed for `captures`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from fray.payload.values.captures import Captures
from fray.payload.values.references import uncollected

__all__ = ["State", "reduce_state", "sent_states", "state_of"]

SetState = Callable[[type, Any], Any]


class State(NamedTuple):
    """One of the states that a process has given numbers to."""

    process: bytes
    number: int


class _Known:
    """What a class is here; `taken` are the last numbers of each process, None where the class is defined."""

    __slots__ = ("captures", "names", "shape", "state", "taken")

    def __init__(self, state: State, taken: dict[bytes, int] | None, names: Collection[str] = ()) -> None:
        self.state = state
        self.taken = taken
        self.names = names
        """Of the attributes that came."""
        self.shape: tuple[int, ...] = ()
        self.captures: Captures | None = None
        """Taken when the class goes: what comes may have parts that aren't whole yet."""

    def changed(self, made: type) -> bool:
        """Return whether the class is another than in `state`."""
        if self.captures is None:
            return self.shape != _shape_of(made)
        return self.captures.changed(now=True)


_known: weakref.WeakKeyDictionary[type, _Known] = weakref.WeakKeyDictionary()
_numbers = itertools.count()
_process = os.urandom(8)


def _begin_anew() -> None:
    global _process  # noqa: PLW0603 - a forked child counts for itself
    _process = os.urandom(8)


os.register_at_fork(after_in_child=_begin_anew)


def state_of(made: type) -> State:
    """Return the state that a class is in. To be called before its attributes are read."""
    with uncollected():
        known = _known.get(made)
        if known is None or known.changed(made):
            taken = None if known is None else known.taken
            # Before the number: of two threads, the one with the later number has seen the later state.
            captures = Captures(made)
            state = State(_process, next(_numbers))
            if taken is not None:
                taken[_process] = state.number
            known = _known[made] = _Known(state, taken, known.names if known is not None else ())
            known.captures = captures
        elif known.captures is None:
            known.captures = Captures(made)
        return known.state


def sent_states(classes: Iterable[weakref.ref[type]]) -> tuple[State | None, ...]:
    """Return the states in which classes were last sent, or came."""
    alive = [made for each in classes if (made := each()) is not None]
    return tuple(known.state if (known := _known.get(made)) is not None else None for made in alive)


def reduce_state(made: type, reduced: tuple[Any, ...], state: State) -> tuple[Any, ...]:
    """Return how cloudpickle reduces a class, so that its state is taken where it is new."""
    *rest, set_state = reduced
    return (*rest, functools.partial(_take_state, set_state, (state.process, state.number), made.__bases__))


def _take_state(
    set_state: SetState, came: tuple[bytes, int], bases: tuple[type, ...], made: type, attributes: Any
) -> type:
    state = State(*came)
    known = _known.get(made)
    if known is not None and (known.taken is None or known.taken.get(state.process, -1) >= state.number):
        return made
    if made.__bases__ != bases:
        with contextlib.suppress(TypeError):  # of another layout
            made.__bases__ = bases
    names = set(attributes[0])
    for name in known.names if known is not None else ():
        if name not in names and name in vars(made):
            with contextlib.suppress(AttributeError):  # its metaclass won't
                delattr(made, name)
    set_state(made, attributes)
    taken = known.taken if known is not None and known.taken is not None else {}
    taken[state.process] = state.number
    # Last: a thread that finds it here finds the attributes too.
    known = _Known(state, taken, names)
    known.shape = _shape_of(made)
    _known[made] = known
    return made


def _shape_of(made: type) -> tuple[int, ...]:
    return tuple(map(id, vars(made).values()))
