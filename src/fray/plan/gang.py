"""How many slices, hosts and chips a FrayJob asks for.

All hosts of a gang start together, and one that fails ends the attempt. Hardware facts come from
`fray.accelerators`; what goes on the pods is decided in `pod` and `placement`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fray.accelerators import GpuHost, TpuSlice, lookup_gpu, lookup_tpu
from fray.plan.texts import format_count
from fray.vocabulary import LABEL_COMPLETION_INDEX, LABEL_JOB_INDEX
from fray.wire.frayjob import FrayJobSpec

__all__ = ["Gang", "GangKind", "derive_gang"]


class GangKind(StrEnum):
    """What a gang's hosts have in common."""

    TPU = "TPU"
    GPU = "GPU"
    CPU = "CPU"


@dataclass(frozen=True)
class Gang:
    """The shape of one attempt.

    A TPU gang has `slices` slices of `hosts_per_slice` hosts each; GPU and CPU gangs are one slice whose
    hosts are the replicas. Rank = slice x hosts_per_slice + host. `multislice` says whether the slices work
    together over the data centre network.
    """

    kind: GangKind
    slices: int
    hosts_per_slice: int
    tpu: TpuSlice | None = None
    gpu: GpuHost | None = None
    multislice: bool = False

    @property
    def hosts(self) -> int:
        """All hosts of the gang, which is also its world size."""
        return self.slices * self.hosts_per_slice

    @property
    def multi_host_slices(self) -> bool:
        """Whether a slice spans several hosts, which makes it one node pool on GKE."""
        return self.tpu is not None and self.hosts_per_slice > 1

    def rank(self, *, slice_index: int, host: int) -> int:
        """Return the rank of a host in the whole gang."""
        return slice_index * self.hosts_per_slice + host

    def find_place(self, labels: Mapping[str, str] | None) -> tuple[int, int] | None:
        """Return slice and host of the pod that has these labels; None where no controller has set them."""
        labels = labels or {}
        slice_index = labels.get(LABEL_JOB_INDEX, "0") if self.kind is GangKind.TPU else "0"
        host = labels.get(LABEL_COMPLETION_INDEX, "")
        return (int(slice_index), int(host)) if slice_index.isdecimal() and host.isdecimal() else None

    def describe(self) -> str:
        """Return the shape in a few words, such as `2 slices of v5p-16 (2 hosts x 4 chips each)`."""
        if self.tpu is not None:
            slices, hosts = format_count(self.slices, "slice"), format_count(self.hosts_per_slice, "host")
            return f"{slices} of {self.tpu.type} ({hosts} x {self.tpu.chips_per_host} chips each)"
        if self.gpu is not None:
            return f"{format_count(self.hosts, 'host')} with {self.gpu.count} {self.gpu.type} each"
        return f"{format_count(self.hosts, 'copy', 'copies')} on CPU"


def derive_gang(spec: FrayJobSpec) -> Gang:
    """Return the shape that a spec asks for.

    Raises `UnknownAcceleratorError` or `AcceleratorShapeError` for hardware that doesn't exist; a spec
    that the API server accepted never does.
    """
    tpu, gpu = spec.resources.tpu, spec.resources.gpu
    if tpu is not None:
        found = lookup_tpu(tpu.type, topology=tpu.topology, chips_per_host=tpu.chips_per_host)
        joined = tpu.multislice == "Enabled" if tpu.multislice else found.hosts > 1
        return Gang(
            GangKind.TPU,
            slices=spec.replicas,
            hosts_per_slice=found.hosts,
            tpu=found,
            multislice=joined and spec.replicas > 1,
        )
    if gpu is not None:
        host = lookup_gpu(gpu.type, count=gpu.count)
        return Gang(GangKind.GPU, slices=1, hosts_per_slice=spec.replicas, gpu=host)
    return Gang(GangKind.CPU, slices=1, hosts_per_slice=spec.replicas)
