"""The commands `fray pools ...` with their options and help; each imports its module only when it is used."""

# ruff: noqa: PLC0415 - `fray --help` must not wait for pydantic, rich and yaml

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fray.cli import process
from fray.cli.cluster_options import with_options
from fray.cli.pool_options import ClusterOption, GkeOption, PoolOptions

if TYPE_CHECKING:
    from fray.cli.pool_commands import PoolShell
    from fray.nodepools.bodies import Form

__all__ = ["pools"]

pools = typer.Typer(
    name="pools",
    help="Plan, create, list and delete the node pools of GKE that jobs need. Needs the extra fray[gke].",
    short_help="Node pools on GKE.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the requests, and change nothing.")]
FormOption = Annotated[
    Literal["request", "gcloud", "terraform"] | None,
    typer.Option("--output", "-o", help="With --dry-run: GKE's request (default), or what does the same."),
]
PricesOption = Annotated[
    str | None,
    typer.Option(
        "--prices",
        metavar="FILE",
        help="Your prices, YAML: machine type (with /spot, /flex-start): per hour.",
    ),
]


@pools.command(short_help="Show what pools a job needs.")
@with_options(PoolOptions)
def plan(options: PoolOptions, prices: PricesOption = None) -> None:
    """Show what node pools a job needs, and which of them exist. Nothing is changed.

    Where GKE can't be asked, the pools are shown without a comparison.
    """
    from fray.cli.pool_commands import plan_pools

    plan_pools(options, prices, _shell())


@pools.command(short_help="Create the pools that a job lacks.")
@with_options(PoolOptions)
def create(
    options: PoolOptions,
    dry_run: DryRunOption = False,  # noqa: FBT002
    output: FormOption = None,
) -> None:
    """Create the node pools that a job lacks, all at once, and wait until they are there.

    After Ctrl-C GKE goes on; the same command follows what it does. Exit code: 1 if a pool couldn't be made.
    """
    from fray.cli.pool_commands import create_missing, print_requests

    form = _choose_form(output, dry_run=dry_run)
    if form is not None:
        print_requests(options, form, _shell())
        return
    raise typer.Exit(create_missing(options, _shell()))


@pools.command("list", short_help="List node pools, and which jobs use them.")
def list_(cluster: ClusterOption = None, gke: GkeOption = None) -> None:
    """List the cluster's node pools: type, topology, nodes, which jobs use them, how long they are idle."""
    from fray.cli.pool_commands import list_pools

    list_pools(cluster, gke, _shell())


@pools.command(short_help="Delete node pools that nobody uses.")
def delete(  # noqa: PLR0913, PLR0917 - one parameter for each option
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Names of pools.")] = None,
    idle: Annotated[bool, typer.Option("--idle", help="All idle pools that `create` made.")] = False,  # noqa: FBT002
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,  # noqa: FBT002
    cluster: ClusterOption = None,
    gke: GkeOption = None,
    dry_run: DryRunOption = False,  # noqa: FBT002
    output: FormOption = None,
) -> None:
    """Delete node pools, after asking. One that is in use, or that a live job may want, is never deleted."""
    from fray.cli.pool_commands import delete_unused

    form = _choose_form(output, dry_run=dry_run)
    code = delete_unused(tuple(names or ()), cluster, gke, _shell(), idle=idle, yes=yes, form=form)
    raise typer.Exit(code)


def _choose_form(output: Form | None, *, dry_run: bool) -> Form | None:
    """Return what to print; None where it is to be done."""
    from fray.errors import InvalidRequestError

    if output is not None and not dry_run:
        problem = "is for --dry-run, without which GKE is asked to do it"
        raise InvalidRequestError("--output", problem, "Add --dry-run, or leave it out.")
    return (output or "request") if dry_run else None


def _shell() -> PoolShell:
    from fray.cli.pool_commands import PoolShell

    return PoolShell(process.environ(), process.stdin(), process.output(), process.notes())
