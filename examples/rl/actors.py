"""The actors that the jobs share: what is to be tried next, and what came out. Any of them may be lost.

What is lost is asked for again: an episode is named by its round and its number, and its outcome follows from
the weights alone, so that it may run twice and is counted once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from fray.errors import ActorDiedError, ActorNotFoundError, ActorUnavailableError
from fray.job import JobContext

__all__ = ["BUFFERS", "CURRICULUM", "Curriculum", "ReplayBuffer", "Work", "call"]

CURRICULUM, BUFFERS = "rl/curriculum", "rl/buffer"
PATIENCE_SECONDS = 600.0
PAUSE_SECONDS = 0.5
Work = tuple[int, int, Any, list[int]]
"""The number of a round, the steps of its episodes at most, its weights, and some of its episodes."""


class Curriculum:
    """Hands out the episodes of one round, those that aren't done again and again."""

    def __init__(self) -> None:
        self._number = -1
        self._most_steps = 0
        self._weights: Any = None
        self._open: list[int] = []
        self._finished = False

    def publish(self, number: int, most_steps: int, weights: Any, episodes: Iterable[int]) -> None:
        """Begin a round, or go on with it after a restart: these are its episodes that aren't done."""
        self._number, self._most_steps, self._weights = number, most_steps, weights
        self._open = list(episodes)

    def next(self, count: int) -> Work | None:
        """Return what is to be tried next; None when all is done. Nothing is open at times: ask again."""
        if self._finished:
            return None
        taken, self._open = self._open[:count], self._open[count:] + self._open[:count]
        return self._number, self._most_steps, self._weights, taken

    def note_done(self, number: int, episodes: Iterable[int]) -> bool:
        """Hand these out no more; False if this isn't the round, since this is a fresh instance."""
        done = set(episodes)
        self._open = [episode for episode in self._open if episode not in done]
        return number == self._number

    def finish(self) -> None:
        """Let those who ask for more end."""
        self._finished = True


class ReplayBuffer:
    """Keeps the rewards of episodes until they are taken."""

    def __init__(self) -> None:
        self._rewards: dict[tuple[int, int], int] = {}

    def add(self, number: int, rewards: dict[int, int]) -> None:
        """Keep the rewards of some episodes of a round, by their numbers."""
        self._rewards |= {(number, episode): reward for episode, reward in rewards.items()}

    def read(self, number: int) -> dict[int, int]:
        """Return the rewards of a round, and forget those of earlier ones."""
        self._rewards = {key: reward for key, reward in self._rewards.items() if key[0] >= number}
        return {episode: reward for (found, episode), reward in self._rewards.items() if found == number}


def call(ctx: JobContext, name: str, method: str, *args: Any) -> Any:
    """Call an actor, and where it was lost the one that takes its place; all methods here may run twice."""
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return ctx.get(getattr(ctx.get_actor(name), method).remote(*args))
        except (ActorDiedError, ActorNotFoundError, ActorUnavailableError):
            if time.monotonic() > give_up_at:
                raise
        time.sleep(PAUSE_SECONDS)
