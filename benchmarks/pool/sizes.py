"""How much of each thing is measured. Data only."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["Sizes", "choose_sizes"]

RAY_ACTORS = 20
"""Each is a process of its own that takes a second of a processor to start; a thousand don't fit."""
PEER_QUEUE = 100_000
"""Bytes per task don't depend on it, and Dask needs minutes for a million."""

PEER_ENDED = 100_000
PEER_ITEMS = 20_000
"""Rates don't depend on it; Ray gives some 8,000 items of a generator a second."""
PEER_HEADED_PARTS = 50
"""For the same reason: 5,000 items instead of 500,000."""


@dataclass(frozen=True)
class Sizes:
    """Numbers of tasks, calls and objects.

    `array_values` are float64, 8 bytes each; `blockers` keep all workers busy while `queued` tasks wait.
    `items` are those of a generator and of a `map`. A shuffle has as many map tasks as reduce tasks, each of
    as many parts; `headed_parts` are two items each. `waits` take one each from `refs`. Words are counted in
    as many passes over the sources.
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
    items: int = 200_000
    shuffle_parts: int = 100
    headed_parts: int = 500
    refs: int = 100_000
    waits: int = 200
    ended_tasks: int = 1_000_000
    hosts: int = 4
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
    items=5_000,
    shuffle_parts=10,
    headed_parts=10,
    refs=1_000,
    waits=20,
    ended_tasks=5_000,
    hosts=2,
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
        sizes = replace(
            sizes,
            queued=min(sizes.queued, PEER_QUEUE),
            ended_tasks=min(sizes.ended_tasks, PEER_ENDED),
            items=min(sizes.items, PEER_ITEMS),
            headed_parts=min(sizes.headed_parts, PEER_HEADED_PARTS),
        )
    return sizes
