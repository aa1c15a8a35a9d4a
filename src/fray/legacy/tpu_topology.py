"""What an earlier API knew of TPU types; the facts are those of `fray.accelerators`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fray.accelerators import legal_tpu_names, lookup_tpu
from fray.errors import InvalidRequestError
from fray.types.checks import check_count
from fray.types.resources import ANYWHERE, MOST_REPLICAS

__all__ = [
    "ANY_REGION",
    "TPU_TOPOLOGIES",
    "GpuType",
    "TpuRunConfig",
    "TpuTopologyInfo",
    "TpuType",
    "get_tpu_topology",
]

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


@dataclass(frozen=True)
class TpuRunConfig:
    """The slices of a gang call, and how often it is tried again.

    Args:
        tpu_type: Type of the TPU, such as `v5p-16`.
        num_slices: Slices of that type. Of a list the largest number is tried first, and a smaller one each
            time that the hosts don't start within 15 minutes; the smallest is waited for.
        max_retries_preemption: How often it is tried again after it lost its nodes.
        max_retries_failure: How often after failures of its own.

    Raises:
        InvalidRequestError: A number of slices is none, or the list is empty.
    """

    tpu_type: str
    num_slices: int | Sequence[int] = 1
    max_retries_preemption: int = 10_000
    max_retries_failure: int = 10

    def __post_init__(self) -> None:
        if not self._given:
            raise InvalidRequestError("TpuRunConfig.num_slices", "is empty", "Name a number, such as 1.")
        for number in self._given:
            check_count("TpuRunConfig.num_slices", number, least=1, most=MOST_REPLICAS)

    @property
    def slice_counts(self) -> tuple[int, ...]:
        """The numbers of slices to try, the largest first."""
        return tuple(sorted({*self._given}, reverse=True))

    @property
    def _given(self) -> Sequence[int]:
        return self.num_slices if isinstance(self.num_slices, Sequence) else [self.num_slices]


TPU_TOPOLOGIES = [get_tpu_topology(name) for name in legal_tpu_names()]
