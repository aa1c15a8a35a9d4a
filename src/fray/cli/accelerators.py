"""`fray accelerators`: the TPU slices and GPU hosts that a job can ask for, as a table.

All of it is from `fray.accelerators`; no cluster is asked which of them it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fray.accelerators import (
    HostSize,
    generations,
    legal_gpu_counts,
    legal_gpu_types,
    legal_tpu_names,
    lookup_gpu,
    lookup_tpu,
    resolve_gpu_type,
)
from fray.accelerators.peak_flops import lookup_peak_flops
from fray.cli.columns import format_columns
from fray.cli.streams import OutputStream
from fray.errors import UnknownAcceleratorError

__all__ = ["Row", "find_rows", "show_accelerators"]

HEAD = ("TYPE", "HOSTS", "CHIPS", "MACHINE", "TOPOLOGY", "CPU", "MEMORY", "FLOP/S")
DISPENSABLE = ("CPU", "MACHINE", "MEMORY", "TOPOLOGY", "FLOP/S")
"""Columns that a narrow terminal doesn't get, in the order in which they go."""
DTYPES = ("bf16", "fp16")


@dataclass(frozen=True)
class Row:
    """One TPU slice, or one host with GPUs. `spellings` are its names for a filter."""

    option: str
    spellings: tuple[str, ...]
    hosts: int
    chips: int
    machines: tuple[str, ...]
    topology: str | None
    host_size: HostSize | None
    peak_flops: float | None
    dtype: str

    def matches(self, text: str) -> bool:
        """Whether a name, a machine type or the topology contains a text in lower case."""
        return any(text in each.lower() for each in (*self.spellings, *self.machines, self.topology or ""))

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of a table."""
        peak = "?" if self.peak_flops is None else _format_flops(self.peak_flops)
        return (
            self.option,
            str(self.hosts),
            str(self.chips),
            _format_machines(self.machines),
            self.topology or "-",
            "?" if self.host_size is None else str(self.host_size.cpu),
            "?" if self.host_size is None else f"{self.host_size.memory_gb} GB",
            peak if self.dtype == DTYPES[0] else f"{peak} ({self.dtype})",
        )


def show_accelerators(text: str | None, *, output: OutputStream, notes: OutputStream) -> None:
    """Print a table of all accelerators whose name, machine type or topology contains a text."""
    rows = find_rows(text or "")
    if not rows:
        notes.write(f"no accelerator has {text!r} in its name, machine type or topology\n")
        return
    lines = _format_table([HEAD, *(row.cells for row in rows)], output.width)
    output.write("".join(f"{line}\n" for line in lines))


def _format_table(rows: list[tuple[str, ...]], width: int | None, dropped: int = 0) -> list[str]:
    """Return aligned lines, without some columns where the terminal is too narrow for all."""
    kept = [number for number, name in enumerate(HEAD) if name not in DISPENSABLE[:dropped]]
    lines = format_columns([[row[number] for number in kept] for row in rows])
    if width is None or max(map(len, lines)) <= width or dropped == len(DISPENSABLE):
        return lines
    return _format_table(rows, width, dropped + 1)


def find_rows(text: str) -> list[Row]:
    """Return the accelerators that a filter leaves, TPUs first."""
    rows = [*_tpus(), *_gpus()]
    found = [row for row in rows if row.matches(text.strip().lower())]
    if found:
        return found
    try:
        meant = resolve_gpu_type(text)  # a short name that is no part of GKE's, such as A100-40GB
    except UnknownAcceleratorError:
        return []
    return [row for row in rows if meant in row.spellings]


def _tpus() -> Iterator[Row]:
    spellings = {each.name: each.spellings for each in generations()}
    for name in legal_tpu_names():
        found = lookup_tpu(name)
        size = name.partition("-")[2]
        peak, dtype = _peak(found.generation)
        yield Row(
            option=name,
            spellings=tuple(f"{each}-{size}" for each in spellings[found.generation]),
            hosts=found.hosts,
            chips=found.chips,
            machines=(found.machine_type,),
            topology=found.topology,
            host_size=found.size,
            peak_flops=None if peak is None else peak * found.chips,
            dtype=dtype,
        )


def _gpus() -> Iterator[Row]:
    for name in legal_gpu_types():
        peak, dtype = _peak(name)
        for count in legal_gpu_counts(name):
            host = lookup_gpu(name, count=count)
            yield Row(
                option=f"{name}:{count}",
                spellings=(name,),
                hosts=1,
                chips=count,
                machines=host.machine_types,
                topology=None,
                host_size=host.size,
                peak_flops=None if peak is None else peak * count,
                dtype=dtype,
            )


def _peak(device: str) -> tuple[float | None, str]:
    """Return the FLOP/s of one chip and the type of number that they are for."""
    for dtype in DTYPES:
        if (found := lookup_peak_flops(device, dtype)) is not None:
            return found, dtype
    return None, DTYPES[0]


def _format_machines(machines: tuple[str, ...]) -> str:
    """Return the smallest machine, with a sign where there are larger ones."""
    if not machines:
        return "n1-*"
    return machines[0] if len(machines) == 1 else f"{machines[0]}, ..."


def _format_flops(flops: float) -> str:
    for unit, size in (("E", 1e18), ("P", 1e15)):
        if flops >= size:
            return f"{flops / size:.3g} {unit}"
    return f"{flops / 1e12:.3g} T"
