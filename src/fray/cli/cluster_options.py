"""The options that say which cluster a command asks and in which form it prints, and what they mean."""

# ruff: noqa: PLC0415 - `fray --help` must not wait for pydantic and yaml

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from fray.cli import process

if TYPE_CHECKING:
    from fray.cli.listing import DataFormat
    from fray.cluster.base import Cluster

__all__ = ["ClusterOption", "Form", "FormOption", "NamespaceOption", "asking", "data_format"]


class Form(StrEnum):
    """What is printed: a table for people, or data."""

    TABLE = "table"
    YAML = "yaml"
    JSON = "json"


FormOption = Annotated[Form, typer.Option("--output", "-o", help="A table, or data for programs.")]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="SPEC",
        help="local, or such as k8s?namespace=ml&context=gke; else FRAY_CLUSTER_SPEC, else local.",
    ),
]
NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Namespace of a cluster, instead of the spec's.")
]


@contextmanager
def asking(cluster: str | None, namespace: str | None) -> Iterator[Cluster]:
    """Open the cluster that is meant, and tell within the context that it is silent."""
    from fray.cli.clusters import choose_cluster, open_cluster, patience

    spec = choose_cluster(cluster, namespace, environ=process.environ())
    with patience(process.notes(), spec):
        yield open_cluster(spec, environ=process.environ())


def data_format(form: Form) -> DataFormat | None:
    """Return the format for programs; None for a table."""
    from fray.cli.listing import DataFormat

    return None if form is Form.TABLE else DataFormat(form.value)
