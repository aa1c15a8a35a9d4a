"""Every actor of a test as a FrayActor, in a process of a job: what the kind "job" is."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from fray.cluster import current_cluster
from fray.errors import ActorDiedError
from fray.job import ActorHandle, ActorOptions, JobContext
from fray.job.named_actors import end_named_actor
from fray.job.traits import CONTEXTS, Traits
from fray.vocabulary import ENV_ROOT_JOB

__all__ = ["JOB", "KindTraits", "name_all_actors"]


@dataclass(frozen=True)
class KindTraits(Traits):
    """What is special about a kind of context, and about where its actors are."""

    fray_actors: bool = False
    """Each actor has a name, and is one that jobs share; see docs/actors.md."""

    def raised_in_constructor(self, error: type[Exception]) -> type[Exception]:
        """What callers of an actor get whose constructor has raised this; the message has its text."""
        return ActorDiedError if self.fray_actors else error

    @property
    def killed(self) -> str:
        """Why an actor died that was killed."""
        return "it was deleted" if self.fray_actors else "it was killed"


JOB = KindTraits(**vars(CONTEXTS["pool"]), fray_actors=True)
"""The traits of a job's process: a pool runs its tasks, and pods or processes hold its actors."""
_numbers = itertools.count(1)


@contextlib.contextmanager
def name_all_actors() -> Iterator[None]:
    """Give actors that this process creates without a name one of their own; delete all at the end.

    Those that other processes create are deleted too, but for detached ones.
    """
    create = JobContext.create_actor
    made: list[ActorHandle[Any]] = []

    def create_named(
        ctx: JobContext,
        cls: Callable[..., Any],
        /,
        *args: Any,
        name: str | None = None,
        options: Any = None,
        **more: Any,
    ) -> ActorHandle[Any]:
        if name is None and not (isinstance(options, ActorOptions) and options.name):
            name = f"unnamed-{next(_numbers)}"
        made.append(create(ctx, cls, *args, name=name, options=options, **more))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JobContext, "create_actor", create_named)
        yield
    for handle in made:
        end_named_actor(handle)
    cluster = current_cluster()
    for actor in cluster.get_actors():
        if actor.spec.root_job == os.environ[ENV_ROOT_JOB]:
            cluster.delete_actor(actor)
