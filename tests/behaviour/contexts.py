"""The kinds of contexts that the suite runs against, and the one table of what differs between them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

__all__ = ["CONTEXTS", "Traits", "labels"]


@dataclass(frozen=True)
class Traits:
    """What is not the same in every kind of context; the labels are those of docs/contexts.md."""

    concurrent: bool = field(metadata={"label": "tasks run beside their caller"})
    shared_memory: bool = field(metadata={"label": "values are shared, not copied"})
    plain_items: bool = field(metadata={"label": "`next` of a generator gives the item, not a ref of it"})
    context_variables: bool = field(metadata={"label": "tasks see the caller's context variables"})
    own_processes: bool = field(metadata={"label": "tasks run in processes of their own"})
    resources: bool = field(metadata={"label": "`resources` bound what runs"})
    counts: bool = field(metadata={"label": "`stats()`, `save_timeline()` and progress count tasks"})
    pausing: bool = field(metadata={"label": "a generator that waits for its reader lends its place"})


CONTEXTS = {
    "sync": Traits(False, True, True, True, False, False, True, True),
    "threadpool": Traits(True, True, True, True, False, False, True, True),
    "pool": Traits(True, False, False, False, True, True, True, True),
    "ray": Traits(True, False, False, False, True, True, False, False),
    "dask": Traits(True, False, True, False, True, True, True, True),
}


def labels() -> dict[str, str]:
    """Return the label of each trait by its name."""
    return {item.name: item.metadata["label"] for item in fields(Traits)}
