"""The options that describe a job, as `fray run` and `fray explain` take them."""

# ruff: noqa: PLC0415 - `fray --help` must not wait for the tables of accelerators

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

import typer

__all__ = ["JobOptions", "complete_gpu", "complete_tpu"]

WITHOUT_FILE: Final = ("tpu", "gpu", "cpu", "memory", "disk", "spot", "queue", "pip")
"""Those that only a job without a file can have."""


def complete_tpu(incomplete: str) -> list[str]:
    """Return the names of TPU slices that begin with what is typed, also under other spellings (`v5e-8`)."""
    from fray.accelerators import generations

    names = [
        f"{spelling}-{size}"
        for generation in generations()
        for spelling in generation.spellings
        for size in generation.sizes
    ]
    return [name for name in names if name.startswith(incomplete)]


def complete_gpu(incomplete: str) -> list[str]:
    """Return GPU types that begin with what is typed; behind a colon, the counts that there are."""
    from fray.accelerators import legal_gpu_counts, legal_gpu_types, resolve_gpu_type
    from fray.errors import UnknownAcceleratorError

    name, colon, count = incomplete.partition(":")
    if colon:
        try:
            counts = legal_gpu_counts(resolve_gpu_type(name))
        except UnknownAcceleratorError:
            return []
        return [f"{name}:{each}" for each in counts if str(each).startswith(count)]
    types = legal_gpu_types()
    names = [*(each.removeprefix("nvidia-").removeprefix("tesla-") for each in types), *types]
    # In the case in which it was typed, since shells drop what doesn't begin so.
    return [incomplete + each[len(incomplete) :] for each in names if each.startswith(incomplete.lower())]


@dataclass(frozen=True)
class JobOptions:
    """What is asked for of a job; what is None, or empty, is left to its file or to the defaults.

    `gpu` is a type, or a type and how many of it a host has: `H100:8`. `env` are texts `NAME=VALUE`, or
    `NAME` for the variable of this process. `spot` is True for spot nodes only, False for none of them.
    """

    name: Annotated[str | None, typer.Option("--name", help="Name of the job, instead of metadata.name.")] = (
        None
    )
    tpu: Annotated[
        str | None,
        typer.Option("--tpu", help="TPU slice, such as v5p-16; without a file.", autocompletion=complete_tpu),
    ] = None
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu", help="GPUs of a host, such as H100:8; without a file.", autocompletion=complete_gpu
        ),
    ] = None
    cpu: Annotated[str | None, typer.Option("--cpu", help="Cores of a host; without a file.")] = None
    memory: Annotated[
        str | None, typer.Option("--memory", help="Memory of a host, such as 16g; without a file.")
    ] = None
    disk: Annotated[
        str | None, typer.Option("--disk", help="Local disk of a host, such as 100g; without a file.")
    ] = None
    spot: Annotated[
        bool | None,
        typer.Option(
            "--spot/--no-spot", help="Spot nodes only, or none; any nodes by default; without a file."
        ),
    ] = None
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="NAME", help="LocalQueue of Kueue; without a file.")
    ] = None
    pip: Annotated[
        list[str] | None,
        typer.Option(
            "--pip", metavar="PACKAGE", help="A Python package to install; may be repeated; without a file."
        ),
    ] = None
    replicas: Annotated[int | None, typer.Option("--replicas", min=1, help="Slices, or hosts.")] = None
    image: Annotated[str | None, typer.Option("--image", help="Container image.")] = None
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME[=VALUE]", help="A variable; may be repeated."),
    ] = field(default=None, repr=False)
    retries: Annotated[
        int | None, typer.Option("--retries", min=0, help="Tries after failures; 0 without a file.")
    ] = None
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="DURATION", help="Limit for all attempts, such as 90m."),
    ] = None

    @property
    def without_file_only(self) -> tuple[str, ...]:
        """The options that only a job without a file can have, of those that were given."""
        return self._list_given(WITHOUT_FILE)

    @property
    def given(self) -> tuple[str, ...]:
        """All options that say something of a job but its name, of those that were given."""
        return self._list_given((*WITHOUT_FILE, "replicas", "image", "env", "retries", "timeout"))

    def _list_given(self, names: Sequence[str]) -> tuple[str, ...]:
        given = (name for name in names if getattr(self, name) not in (None, (), []))
        return tuple("--no-spot" if name == "spot" and not self.spot else f"--{name}" for name in given)
