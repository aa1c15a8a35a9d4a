"""The commands `fray actors ...` with their options and help; each imports its module when it is used."""

# ruff: noqa: PLC0415 - `fray --help` must not wait for pydantic, rich and yaml

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fray.cli import process
from fray.cli.cluster_options import (
    ClusterOption,
    Form,
    FormOption,
    NamespaceOption,
    asking,
    data_format,
)

__all__ = ["actors"]

LIST = "list"


class _ListByDefault(TyperGroup):
    """A group whose options without a command are those of `list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = [LIST, *args]
        return super().parse_args(ctx, args)


actors = typer.Typer(
    name="actors",
    cls=_ListByDefault,
    help="List, describe and delete the FrayActors of a cluster, and print what their members printed. "
    "Without a command: list.",
    short_help="Named actors on a cluster.",
    rich_markup_mode=None,
)

NAME_HELP = "The name that programs call the actor by, or that of its FrayActor."
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help=NAME_HELP)]


@actors.command(LIST, short_help="List actors, a line for each member.")
def list_(
    cluster: ClusterOption = None, namespace: NamespaceOption = None, output: FormOption = Form.TABLE
) -> None:
    """List actors, a line for each member: its state, the number of its start, and its restarts."""
    from fray.cli.actor_commands import show_actors

    with asking(cluster, namespace) as asked:
        show_actors(data_format(output), cluster=asked, output=process.output(), notes=process.notes())


@actors.command(short_help="Tell how an actor stands, member by member.")
def describe(
    name: NameArgument,
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
    output: FormOption = Form.TABLE,
) -> None:
    """Tell how an actor stands, member by member, with the last error of each."""
    from fray.cli.actor_commands import show_actor

    with asking(cluster, namespace) as asked:
        show_actor(asked.find_actor(name), data_format(output), output=process.output())


@actors.command(short_help="Call a method of an actor.")
def call(
    name: NameArgument,
    method: Annotated[str, typer.Argument(metavar="METHOD", help="The method's name.")],
    arguments: Annotated[
        str | None,
        typer.Argument(metavar="JSON", help="An object of arguments by name, or an array of them in order."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds to wait at most; the method goes on all the same.")
    ] = None,
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Call a method of an actor, and print what it returns as JSON; of a generator, a line for each item.

    From outside of the cluster it opens a port-forward: that needs the rights to read the Secret fray-auth,
    and to get and create pods/portforward.
    """
    from fray.cli.actor_commands import call_actor

    with asking(cluster, namespace) as asked:
        call_actor(name, method, arguments, timeout, cluster=asked, output=process.output())


@actors.command(short_help="Print what an actor's members printed.")
def logs(  # noqa: PLR0913, PLR0917 - one parameter for each option
    name: NameArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the actor has ended.")] = False,  # noqa: FBT002
    member: Annotated[
        int | None, typer.Option("--member", min=0, help="Only the member of this index.")
    ] = None,
    tail: Annotated[int | None, typer.Option(min=0, help="Only the last lines, that many in all.")] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Put the time before each line.")] = False,  # noqa: FBT002
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Print what an actor's members printed, each line behind [member/host].

    Members that are started again are followed on. What a pod printed is gone with the pod.
    """
    from fray.cli.actor_commands import ActorLogRequest, print_actor_logs

    request = ActorLogRequest(follow, member, tail, timestamps)
    with asking(cluster, namespace) as asked:
        actor = asked.find_actor(name)
    print_actor_logs(request, actor, cluster=asked, output=process.output())


@actors.command(short_help="Delete actors.")
def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help=NAME_HELP)],
    cluster: ClusterOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Delete actors: their members are ended, and their state and logs are gone."""
    from fray.cli.actor_commands import delete_actors

    with asking(cluster, namespace) as asked:
        found = [asked.find_actor(name) for name in names]
        delete_actors(found, cluster=asked, output=process.output())
