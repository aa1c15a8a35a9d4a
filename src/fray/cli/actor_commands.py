"""`fray actors`: the FrayActors of a cluster listed, described, deleted, and what their members printed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

from fray.cli.actor_story import describe_actor, format_actor_table
from fray.cli.lines import print_log
from fray.cli.listing import DataFormat, print_lines, print_resources
from fray.cli.streams import OutputStream
from fray.cluster.base import Cluster
from fray.errors import ActorCallFailedError, FrayError, InvalidRequestError, RemoteTracebackError
from fray.job.refs import GeneratorFuture
from fray.plan.texts import format_count
from fray.wire.frayactor import FrayActor

__all__ = ["ActorLogRequest", "call_actor", "delete_actors", "print_actor_logs", "show_actor", "show_actors"]


ARGUMENTS_REMEDY: Final = """Write '{"step": 3}' for arguments by name, '[3]' for those by position."""


@dataclass(frozen=True)
class ActorLogRequest:
    """What `fray actors logs` was asked for: of one member, or of all where it is None."""

    follow: bool = False
    member: int | None = None
    tail: int | None = None
    timestamps: bool = False


def show_actors(
    form: DataFormat | None, *, cluster: Cluster, output: OutputStream, notes: OutputStream
) -> None:
    """Print actors, a line for each member; with a format, their resources as a List."""
    actors = cluster.get_actors()
    if form is not None:
        print_resources(actors, form, output)
    elif not actors:
        notes.write(f"no actors in {cluster.place}\n")
    else:
        print_lines(format_actor_table(actors, now=datetime.now(UTC), width=output.width), output)


def show_actor(actor: FrayActor, form: DataFormat | None, *, output: OutputStream) -> None:
    """Print the story of an actor; with a format, its resource."""
    if form is not None:
        print_resources(actor, form, output)
    else:
        print_lines(describe_actor(actor, now=datetime.now(UTC)), output)


def call_actor(
    name: str,
    method: str,
    arguments: str | None,
    timeout: float | None,
    *,
    cluster: Cluster,
    output: OutputStream,
) -> None:
    """Call a method of an actor, and print what it returns as JSON; of a generator, a line for each item.

    `arguments` is JSON: an object holds those by name, an array those by position.

    Raises:
        InvalidRequestError: They aren't that, or the actor has no such method.
        ActorCallFailedError: The method has raised.
    """
    from fray.runtime.pool.local_pool import stop_pools  # noqa: PLC0415 - which listing doesn't need

    args, kwargs = _read_arguments(arguments)
    handle = cluster.get_actor(name)
    try:
        try:
            ref = getattr(handle, method).options(timeout=timeout).remote(*args, **kwargs)
        except AttributeError as missing:
            raise InvalidRequestError("METHOD", f"is {method!r}", f"{missing}.") from missing
        for value in (item.result() for item in ref) if isinstance(ref, GeneratorFuture) else [ref.result()]:
            output.write(_write_json(value) + "\n")
    except FrayError:
        raise
    except Exception as error:
        cause = error.__cause__
        story = cause.traceback.splitlines() if isinstance(cause, RemoteTracebackError) else ()
        raise ActorCallFailedError(name, method, type(error).__name__, str(error), tuple(story)) from error
    finally:
        # The command ends without atexit, and its nanny would outlive it, with what lies in the store.
        stop_pools()


def _read_arguments(text: str | None) -> tuple[list[Any], dict[str, Any]]:
    try:
        found = json.loads(text, parse_constant=_refuse_constant) if text else []
    except (RecursionError, ValueError) as error:
        raise InvalidRequestError("ARGUMENTS", f"are no JSON: {error}", ARGUMENTS_REMEDY) from error
    if isinstance(found, list):
        return found, {}
    if isinstance(found, dict):
        return [], found
    raise InvalidRequestError("ARGUMENTS", f"are {text}", ARGUMENTS_REMEDY)


def _refuse_constant(word: str) -> NoReturn:
    """Refuse what Python reads as JSON, and nobody else."""
    raise ValueError(f"{word} is no JSON")


def _write_json(value: Any) -> str:
    """Return a value as JSON; what that doesn't know, such as NaN, as its `repr`."""
    try:
        return json.dumps(value, default=repr, allow_nan=False)
    except (RecursionError, ValueError):
        return json.dumps(repr(value))


def delete_actors(actors: Sequence[FrayActor], *, cluster: Cluster, output: OutputStream) -> None:
    """Delete actors, and report each as kubectl does."""
    for actor in actors:
        cluster.delete_actor(actor)
        output.write(f"frayactor.fray.dev/{actor.metadata.name} deleted\n")


def print_actor_logs(
    request: ActorLogRequest, actor: FrayActor, *, cluster: Cluster, output: OutputStream
) -> None:
    """Print what an actor's members printed, each line behind `[member/host]`.

    Raises `InvalidRequestError` if it has no such member, or none of its own since a process hosts it.
    """
    count = actor.spec.replicas
    if (hosted := actor.spec.entrypoint.hosted) is not None:
        problem = f"is {actor.metadata.name}, an object of a process of {hosted.pod}, which prints its lines"
        raise InvalidRequestError("NAME", problem, "Read the log of the job or the program that hosts it.")
    if request.member is not None and request.member >= count:
        remedy = f"{actor.metadata.name} has {format_count(count, 'member')}, counted from 0."
        raise InvalidRequestError("--member", f"is {request.member}", remedy)
    lines = cluster.actor_logs(actor, follow=request.follow, member=request.member, tail=request.tail)
    print_log(lines, output, timestamps=request.timestamps)
