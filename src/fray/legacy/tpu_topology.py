"""What an earlier API knew of TPU types; the facts are those of `fray.accelerators`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from fray.accelerators import legal_tpu_names, lookup_tpu
from fray.types.resources import ANYWHERE

__all__ = ["ANY_REGION", "TPU_TOPOLOGIES", "GpuType", "TpuTopologyInfo", "TpuType", "get_tpu_topology"]

ANY_REGION = ANYWHERE
GpuType: TypeAlias = str
TpuType: TypeAlias = str


@dataclass(frozen=True)
class TpuTopologyInfo:
    """A slice of a TPU type: its chips, and its hosts (`host_count` and `vm_count` are the same here)."""

    name: str
    chip_count: int
    host_count: int
    vm_count: int
    chips_per_vm: int


def get_tpu_topology(tpu_type: str) -> TpuTopologyInfo:
    """Return the slice that a TPU type means.

    Raises:
        UnknownAcceleratorError: There is no such type. It is a ValueError, too.
    """
    found = lookup_tpu(tpu_type)
    return TpuTopologyInfo(tpu_type, found.chips, found.hosts, found.hosts, found.chips_per_host)


TPU_TOPOLOGIES = [get_tpu_topology(name) for name in legal_tpu_names()]
