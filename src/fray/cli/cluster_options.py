"""Options that commands share: which cluster is asked, in which form is printed, and groups of others."""

# ruff: noqa: PLC0415 - `fray --help` must not wait for pydantic and yaml

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fray.cli import process

if TYPE_CHECKING:
    from fray.cli.listing import DataFormat
    from fray.cluster.base import Cluster

__all__ = ["ClusterOption", "Form", "FormOption", "NamespaceOption", "asking", "data_format", "with_options"]


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


def with_options(kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return what gives a command the options that are the fields of a dataclass.

    They stand where the command's parameter `options` does, which gets the object.
    """
    described = inspect.signature(kind, eval_str=True).parameters

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**values: Any) -> None:
            options = kind(**{name: values.pop(name) for name in described})
            command(**values, options=options)

        # typer reads the parameters from here; `options` is none of them.
        own = inspect.signature(command, eval_str=True).parameters.values()
        parameters = [
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in own
            for each in (described.values() if parameter.name == "options" else [parameter])
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {}
        return run

    return decorate
