"""What isn't the same in every kind of context: the one table for engines, docs/contexts.md and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fray.errors import UnsupportedFeatureError

__all__ = ["CONTEXTS", "Feature", "Refusal", "Traits", "refuse"]


class Feature(StrEnum):
    """What some engine can't do, as users write it."""

    TASK_ENV = "TaskOptions(env=...)"
    RUNTIME_ENV = "TaskOptions(runtime_env=...)"
    MAX_CALLS = "TaskOptions(max_calls=...)"
    ACTOR_ENV = "ActorOptions(env=...)"
    ACTOR_RESOURCES = "ActorOptions(resources=...)"
    MAX_RESTARTS = "ActorOptions(max_restarts=...)"
    MAX_TASK_RETRIES = "max_task_retries=..."
    STATS = "stats()"
    TIMELINE = "save_timeline()"
    METRICS = "metrics_address"


@dataclass(frozen=True)
class Refusal:
    """Why an engine can't do something, and what to do instead."""

    reason: str
    instead: str


@dataclass(frozen=True)
class Traits:
    """What is special about a kind of context; `refuses` are the features that raise an error in it."""

    concurrent: bool = field(metadata={"label": "tasks run beside their caller"})
    shared_memory: bool = field(metadata={"label": "values are shared, not copied"})
    plain_items: bool = field(metadata={"label": "`next` of a generator gives the item, not a ref of it"})
    context_variables: bool = field(metadata={"label": "tasks see the caller's context variables"})
    own_processes: bool = field(metadata={"label": "tasks run in processes of their own"})
    resources: bool = field(metadata={"label": "`resources` bound what runs"})
    counts: bool = field(metadata={"label": "progress bars count the tasks that run"})
    pausing: bool = field(metadata={"label": "who waits for a reader or for a future lends its place"})
    refuses: Mapping[Feature, Refusal] = field(default_factory=dict)


_NO_METRICS = {Feature.METRICS: Refusal("only a pool serves its counts", "Use `stats()`.")}
_COUNTED_BY_RAY = Refusal(
    "Ray counts the tasks of all its users together",
    "Use Ray's dashboard, `ray summary tasks` or `ray timeline`.",
)
_WORKERS_RUN = Refusal("Dask's workers run already", "Set it where the workers are started.")
_WORKERS_STAY = Refusal("Dask's workers outlive their tasks", "Give Dask's workers a `--lifetime`.")
_NO_RESTARTS = Refusal("Dask doesn't restart actors", "Create the actor again after `ActorDiedError`.")
_NOTHING_HELD = Refusal(
    "Dask's actors hold no resources", "Use CPU and memory alone, or give the calls' work to tasks."
)

CONTEXTS = {
    "sync": Traits(False, True, True, True, False, False, True, True, _NO_METRICS),
    "threadpool": Traits(True, True, True, True, False, False, True, True, _NO_METRICS),
    "pool": Traits(True, False, False, False, True, True, True, True),
    "ray": Traits(
        True,
        False,
        False,
        False,
        True,
        True,
        False,
        False,
        dict.fromkeys((Feature.STATS, Feature.TIMELINE, Feature.METRICS), _COUNTED_BY_RAY),
    ),
    "dask": Traits(
        True,
        False,
        True,
        False,
        True,
        True,
        True,
        True,
        {
            **dict.fromkeys((Feature.TASK_ENV, Feature.RUNTIME_ENV, Feature.ACTOR_ENV), _WORKERS_RUN),
            Feature.MAX_CALLS: _WORKERS_STAY,
            Feature.ACTOR_RESOURCES: _NOTHING_HELD,
            **dict.fromkeys((Feature.MAX_RESTARTS, Feature.MAX_TASK_RETRIES), _NO_RESTARTS),
            **_NO_METRICS,
        },
    ),
}
"""Kind of context -> its traits."""


def refuse(kind: str, feature: Feature) -> UnsupportedFeatureError:
    """Return the error that a kind of context answers this with: one of those that it `refuses`."""
    refusal = CONTEXTS[kind].refuses[feature]
    return UnsupportedFeatureError(f"{feature} in a context of kind {kind}", refusal.reason, refusal.instead)
