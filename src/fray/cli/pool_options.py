"""The options of `fray pools` that say which node pools are meant."""

# ruff: noqa: PLC0415 - `fray --help` must not wait for pydantic

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fray.nodepools.requests import PoolChoices

__all__ = ["ClusterOption", "GkeOption", "PoolOptions"]

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


@dataclass(frozen=True)
class PoolOptions:
    """What was typed: the job's file, the cluster, and how its nodes are to be bought."""

    file: Annotated[str, typer.Option("--file", "-f", help="Job file, YAML or JSON; - is stdin.")]
    cluster: ClusterOption = None
    gke: GkeOption = None
    zones: Annotated[
        list[str] | None,
        typer.Option("--zone", help="Zone of the nodes; may be repeated where hosts are single."),
    ] = None
    spot: Annotated[bool, typer.Option("--spot", help="Spot nodes, where the job allows them.")] = False
    flex_start: Annotated[bool, typer.Option("--flex-start", help="Flex-start nodes.")] = False
    queued: Annotated[bool, typer.Option("--queued", help="Flex-start nodes that Kueue asks for.")] = False
    reservation: Annotated[
        str | None,
        typer.Option("--reservation", metavar="NAME", help="Reservation, or the path of a block of it."),
    ] = None
    machine_type: Annotated[
        str | None, typer.Option("--machine-type", help="Machine type, where several fit.")
    ] = None
    policy: Annotated[
        str | None, typer.Option("--policy", metavar="NAME", help="Workload policy that is there (tpu7x).")
    ] = None
    service_account: Annotated[
        str | None, typer.Option("--service-account", metavar="EMAIL", help="Service account of the nodes.")
    ] = None
    dynamic_slices: Annotated[
        bool, typer.Option("--dynamic-slices", help="Cubes of 4x4x4 that GKE forms tpu7x slices of.")
    ] = False

    @property
    def choices(self) -> PoolChoices:
        """What the job leaves open."""
        from fray.nodepools.requests import PoolChoices

        chosen = {each.name: getattr(self, each.name) for each in fields(PoolChoices)}
        return PoolChoices(**{**chosen, "zones": tuple(self.zones or ())})
