"""Whose turn it is to hear the head: the reader's, a thread of the worker, or an actor's own thread.

A call that the reader hears wakes the actor's thread, and that takes longer than short methods do. So the
turn is lent to that thread: it runs the call, and hears the next one itself. What it runs may take long, or
wait for the head's word: then the reader has the turn again.
"""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["HearingTurn"]

LOOK_SECONDS = 0.005
"""The reader takes the turn back from a thread that runs the same call for so long, or twice as long."""
_READERS = 0
_TAKEN = -1


class HearingTurn:
    """Has one holder at each moment. Only `await_turn` is for the reader; it has the turn at first."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._turn = _READERS
        """Another number is that of a loan which hasn't been taken up."""
        self._loans = 0
        self._asleep = False
        """Whether the reader waits to be woken by a loan."""
        self._left: list[Any] = []
        self._problem: BaseException | None = None

    def lend(self) -> int:
        """Lend the turn, which the caller has, to a thread that has something to do first.

        Returns the loan's number, with which that thread takes it up.
        """
        with self._lock:
            self._loans += 1
            self._turn = self._loans
            if self._asleep:
                self._changed.notify()
            return self._loans

    def take_up(self, loan: int) -> bool:
        """Return whether the caller has the turn now; False: it was taken back."""
        with self._lock:
            if self._turn != loan:
                return False
            self._turn = _TAKEN
            return True

    def give_back(self, left: list[Any], problem: BaseException | None = None) -> None:
        """Let the reader have the turn, which the caller has taken up.

        It gets what the caller has heard and `left` undone, and raises the `problem`.
        """
        with self._changed:
            self._left, self._problem = left, problem
            self._turn = _READERS  # last: `await_turn` looks without the lock
            self._changed.notify()

    def recall(self) -> None:
        """Let the reader have the turn unless somebody hears: what was to be done first waits."""
        if self._turn > 0:
            with self._changed:
                if self._turn > 0:
                    self._turn = _READERS
                    self._changed.notify()

    def await_turn(self) -> list[Any]:
        """Return when it's the reader's turn, with what was left to it; raises what a holder has met with."""
        if self._turn == _READERS and self._problem is None and not self._left:
            return []
        with self._changed:
            looked_at, loans = 0, -1
            while self._turn != _READERS:
                if self._turn == looked_at != _TAKEN:
                    self._turn = _READERS
                elif self._turn == _TAKEN and self._loans == loans:
                    self._asleep = True
                    self._changed.wait()
                    self._asleep = False
                else:
                    looked_at, loans = self._turn, self._loans
                    self._changed.wait(LOOK_SECONDS)
            if self._problem is not None:
                raise self._problem
            left, self._left = self._left, []
            return left
