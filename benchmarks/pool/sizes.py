"""How much of each thing is measured. Data only."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["Sizes", "choose_sizes"]

RAY_ACTORS = 20
"""Each is a process of its own that takes a second of a processor to start; a thousand don't fit."""
PEER_QUEUE = 100_000
"""Bytes per task don't depend on it, and Dask needs minutes for a million."""


@dataclass(frozen=True)
class Sizes:
    """Numbers of tasks, calls and objects.

    `array_values` are float64, 8 bytes each; `blockers` keep all workers busy while `queued` tasks wait.
    Words are counted in as many passes over the sources.
    """

    tasks: int = 10_000
    round_trips: int = 1_000
    actor_calls: int = 5_000
    puts: int = 5
    array_values: int = 12_500_000
    readers: int = 50
    queued: int = 1_000_000
    blockers: int = 2
    actors: int = 1_000
    work_parts: int = 64
    word_passes: int = 2
    pi_samples: int = 400_000


QUICK = Sizes(
    tasks=1_000,
    round_trips=100,
    actor_calls=500,
    puts=2,
    array_values=1_250_000,
    readers=10,
    queued=10_000,
    actors=20,
    work_parts=16,
    word_passes=1,
    pi_samples=50_000,
)


def choose_sizes(engine: str, *, quick: bool) -> Sizes:
    """The sizes for an engine: Fray's are those of the goals, peers get less where it takes them minutes."""
    sizes = QUICK if quick else Sizes()
    if engine == "ray":
        sizes = replace(sizes, actors=min(sizes.actors, RAY_ACTORS))
    if engine != "fray":
        sizes = replace(sizes, queued=min(sizes.queued, PEER_QUEUE))
    return sizes
