"""`fray actors`: the FrayActors of a cluster listed, described, deleted, and what their members printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fray.cli.actor_story import describe_actor, format_actor_table
from fray.cli.lines import LineFormatter
from fray.cli.listing import DataFormat, print_lines, print_resources
from fray.cli.streams import Stream
from fray.cluster.base import Cluster
from fray.errors import InvalidRequestError
from fray.plan.counts import format_count
from fray.wire.frayactor import FrayActor

__all__ = ["ActorLogRequest", "delete_actors", "print_actor_logs", "show_actor", "show_actors"]


@dataclass(frozen=True)
class ActorLogRequest:
    """What `fray actors logs` was asked for: of one member, or of all where it is None."""

    follow: bool = False
    member: int | None = None
    tail: int | None = None
    timestamps: bool = False


def show_actors(form: DataFormat | None, *, cluster: Cluster, output: Stream, notes: Stream) -> None:
    """Print actors, a line for each member; with a format, their resources as a List."""
    actors = cluster.get_actors()
    if form is not None:
        print_resources(actors, form, output)
    elif not actors:
        notes.write(f"no actors in {cluster.place}\n")
    else:
        print_lines(format_actor_table(actors, now=datetime.now(UTC), width=output.width), output)


def show_actor(actor: FrayActor, form: DataFormat | None, *, output: Stream) -> None:
    """Print the story of an actor; with a format, its resource."""
    if form is not None:
        print_resources(actor, form, output)
    else:
        print_lines(describe_actor(actor, now=datetime.now(UTC)), output)


def delete_actors(actors: Sequence[FrayActor], *, cluster: Cluster, output: Stream) -> None:
    """Delete actors, and report each as kubectl does."""
    for actor in actors:
        cluster.delete_actor(actor)
        output.write(f"frayactor.fray.dev/{actor.metadata.name} deleted\n")


def print_actor_logs(request: ActorLogRequest, actor: FrayActor, *, cluster: Cluster, output: Stream) -> None:
    """Print what an actor's members printed, each line behind `[member/host]`.

    Raises `InvalidRequestError` if it has no such member.
    """
    count = actor.spec.replicas
    if request.member is not None and request.member >= count:
        remedy = f"{actor.metadata.name} has {format_count(count, 'member')}, counted from 0."
        raise InvalidRequestError("--member", f"is {request.member}", remedy)
    formatter = LineFormatter(
        terminal=output.is_terminal, color=output.has_color, timestamps=request.timestamps
    )
    lines = cluster.actor_logs(actor, follow=request.follow, member=request.member, tail=request.tail)
    for line in lines:
        output.write(formatter.format(line))
    output.write(formatter.end())
