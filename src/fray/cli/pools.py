"""The commands `fray pools ...` with their options and help; each imports its module only when it is used."""

# ruff: noqa: PLC0415 - `fray --help` must not wait for pydantic, rich and yaml

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fray.cli import process
from fray.cli.cluster_options import with_options

if TYPE_CHECKING:
    from fray.cli.pool_commands import PoolOptions, PoolShell
    from fray.nodepools.bodies import Form

__all__ = ["pools"]

pools = typer.Typer(
    name="pools",
    help="Plan, create, list and delete the node pools of GKE that jobs need. Needs the extra fray[gke].",
    short_help="Node pools on GKE.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


FileOption = Annotated[str, typer.Option("--file", "-f", help="Job file, YAML or JSON; - is stdin.")]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", metavar="SPEC", help="Such as k8s?context=gke; else FRAY_CLUSTER_SPEC."),
]
GkeOption = Annotated[
    str | None,
    typer.Option(
        "--gke",
        metavar="PATH",
        help="projects/P/locations/L/clusters/C, where the kubeconfig doesn't tell.",
    ),
]
ZoneOption = Annotated[
    list[str] | None,
    typer.Option("--zone", help="Zone of the nodes; may be repeated where hosts are single."),
]
SpotOption = Annotated[bool, typer.Option("--spot", help="Spot nodes, where the job allows them.")]
FlexOption = Annotated[bool, typer.Option("--flex-start", help="Flex-start nodes.")]
QueuedOption = Annotated[bool, typer.Option("--queued", help="Flex-start nodes that Kueue asks for.")]
ReservationOption = Annotated[
    str | None,
    typer.Option("--reservation", metavar="NAME", help="Reservation, or the path of a block of it."),
]
MachineOption = Annotated[str | None, typer.Option("--machine-type", help="Machine type, where several fit.")]
PolicyOption = Annotated[
    str | None, typer.Option("--policy", metavar="NAME", help="Workload policy that is there (tpu7x).")
]
AccountOption = Annotated[
    str | None, typer.Option("--service-account", metavar="EMAIL", help="Service account of the nodes.")
]
DynamicOption = Annotated[
    bool, typer.Option("--dynamic-slices", help="Cubes of 4x4x4 that GKE forms tpu7x slices of.")
]
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


def _read_options(  # noqa: PLR0913, PLR0917 - one parameter for each option
    file: FileOption,
    cluster: ClusterOption = None,
    gke: GkeOption = None,
    zone: ZoneOption = None,
    spot: SpotOption = False,  # noqa: FBT002
    flex_start: FlexOption = False,  # noqa: FBT002
    queued: QueuedOption = False,  # noqa: FBT002
    reservation: ReservationOption = None,
    machine_type: MachineOption = None,
    policy: PolicyOption = None,
    service_account: AccountOption = None,
    dynamic_slices: DynamicOption = False,  # noqa: FBT002
) -> PoolOptions:
    """Return the options that say which pools are meant, as typer has read them."""
    from fray.cli.pool_commands import PoolOptions
    from fray.nodepools.requests import PoolChoices

    choices = PoolChoices(
        spot,
        flex_start,
        queued,
        reservation,
        machine_type,
        policy,
        tuple(zone or ()),
        service_account,
        dynamic_slices,
    )
    return PoolOptions(file, cluster, gke, choices)


@pools.command(short_help="Show what pools a job needs.")
@with_options(_read_options)
def plan(options: PoolOptions, prices: PricesOption = None) -> None:
    """Show what node pools a job needs, and which of them exist. Nothing is changed.

    Where GKE can't be asked, the pools are shown without a comparison.
    """
    from fray.cli.pool_commands import plan_pools

    plan_pools(options, prices, _shell())


@pools.command(short_help="Create the pools that a job lacks.")
@with_options(_read_options)
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
