"""One incarnation of an actor, as its own code meets it: how it ends itself, and learns that it is to end.

Its life is current while an actor is constructed. What users get of it is in `fray.job.actor_groups`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

__all__ = ["PROBE", "ActorLife", "current_life", "find_method", "set_current_life"]

PROBE: Final = "__sizeof__"
"""A method that every object has, and that does nothing: its call waits for the constructor; it is no use."""


def find_method(actor: object, name: str) -> Any:
    """Return a method of an actor; the `PROBE` is Python's own, whatever the actor's class makes of it."""
    return partial(object.__sizeof__, actor) if name == PROBE else getattr(actor, name)


class ActorLife:
    """The life of one incarnation.

    Parameters: `end` ends it: with an exception that made it fail, after which it may be constructed anew, or
    with None, for good. It is called from any thread, and may be called again. `find_handle` returns the
    actor's handle, where it isn't found by its name: None. `label` is its name, or that of its class.
    """

    def __init__(
        self,
        end: Callable[[BaseException | None], None],
        find_handle: Callable[[], Any] = lambda: None,
        label: str = "",
    ) -> None:
        self.label = label
        self._end = end
        self.find_handle = find_handle
        self._shutdown_event = _ShutdownEvent(end)
        self.watched = False
        """Whether the actor's code looks at its `shutdown_event`, so that it is to have time to end."""

    @property
    def shutdown_event(self) -> threading.Event:
        """Is set once it was asked to end; code of the actor that sets it ends the actor for good."""
        self.watched = True
        return self._shutdown_event

    def fail(self, error: BaseException) -> None:
        """End this incarnation with an error."""
        self._end(error)

    def ask_to_end(self) -> None:
        """Let the actor's code know that it is to end."""
        self._shutdown_event.note()


class _ShutdownEvent(threading.Event):
    def __init__(self, end: Callable[[BaseException | None], None]) -> None:
        super().__init__()
        self._end = end

    def set(self) -> None:
        asked = self.is_set()
        super().set()
        if not asked:
            self._end(None)

    def note(self) -> None:
        """Set it on behalf of who ends the actor."""
        super().set()


_current: ContextVar[ActorLife | None] = ContextVar("fray_actor_life", default=None)


def current_life() -> ActorLife | None:
    """Return the life of the actor that is being constructed here; None where none is."""
    return _current.get()


def set_current_life(life: ActorLife) -> None:
    """Let the present context's code construct the actor of this life."""
    _current.set(life)
