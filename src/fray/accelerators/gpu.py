"""From a GPU type and count to the hosts that carry them: machine types and architecture.

Facts: GKE's accelerator label values and machine types as XPK (release 1.16.0, 2026-08) and the cluster
autoscaler list them; how many GPUs go with an N1 machine from Compute Engine's page on N1 GPUs. Nothing here
knows of pods or networks between hosts.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from fray.accelerators.host_sizes import GPU_MACHINE_SIZES, HostSize
from fray.errors import AcceleratorShapeError, UnknownAcceleratorError

__all__ = ["GpuHost", "legal_gpu_counts", "legal_gpu_types", "lookup_gpu", "resolve_gpu_type"]

_MOST: Final = 5
# Longer text can't be near any name, and comparing it would take time.
_LONGEST: Final = 40

# GPUs of the host -> the machine types that have as many; none for GPUs that are attached to an N1.
_N1_UP_TO_4: Final[Mapping[int, tuple[str, ...]]] = {1: (), 2: (), 4: ()}
_N1_UP_TO_8: Final[Mapping[int, tuple[str, ...]]] = {1: (), 2: (), 4: (), 8: ()}

_MACHINES: Final[Mapping[str, Mapping[int, tuple[str, ...]]]] = {
    "nvidia-tesla-k80": _N1_UP_TO_8,
    "nvidia-tesla-p4": _N1_UP_TO_4,
    "nvidia-tesla-p100": _N1_UP_TO_4,
    "nvidia-tesla-t4": _N1_UP_TO_4,
    "nvidia-tesla-v100": _N1_UP_TO_8,
    "nvidia-l4": {
        1: ("g2-standard-4", "g2-standard-8", "g2-standard-12", "g2-standard-16", "g2-standard-32"),
        2: ("g2-standard-24",),
        4: ("g2-standard-48",),
        8: ("g2-standard-96",),
    },
    "nvidia-tesla-a100": {
        1: ("a2-highgpu-1g",),
        2: ("a2-highgpu-2g",),
        4: ("a2-highgpu-4g",),
        8: ("a2-highgpu-8g",),
        16: ("a2-megagpu-16g",),
    },
    "nvidia-a100-80gb": {
        1: ("a2-ultragpu-1g",),
        2: ("a2-ultragpu-2g",),
        4: ("a2-ultragpu-4g",),
        8: ("a2-ultragpu-8g",),
    },
    "nvidia-h100-80gb": {
        1: ("a3-highgpu-1g",),
        2: ("a3-highgpu-2g",),
        4: ("a3-highgpu-4g",),
        8: ("a3-highgpu-8g",),
    },
    "nvidia-h100-mega-80gb": {8: ("a3-megagpu-8g",)},
    "nvidia-h200-141gb": {8: ("a3-ultragpu-8g",)},
    "nvidia-b200": {8: ("a4-highgpu-8g",)},
    "nvidia-gb200": {4: ("a4x-highgpu-4g", "a4x-highgpu-4g-nolssd")},
    "nvidia-gb300": {4: ("a4x-maxgpu-4g-metal",)},
    "nvidia-rtx-pro-6000": {
        1: ("g4-standard-48",),
        2: ("g4-standard-96",),
        4: ("g4-standard-192",),
        8: ("g4-standard-384",),
    },
}
# The names that people use -> GKE's, where one of them must be meant: an A100 without more has 40 GB.
# Beside these, each of GKE's names may be written without its brand.
_SHORT_NAMES: Final[Mapping[str, str]] = {
    "a100-40gb": "nvidia-tesla-a100",
    "h100": "nvidia-h100-80gb",
    "h100-mega": "nvidia-h100-mega-80gb",
    "h200": "nvidia-h200-141gb",
}
_BRANDS: Final = ("nvidia-", "nvidia-tesla-")
_MAKERS: Final = frozenset({"nvidia", "tesla"})
# Memory at the end of a name, written as `80G`.
_GIGABYTES: Final = re.compile(r"(-\d+g)$")
_ARM64: Final = frozenset({"nvidia-gb200", "nvidia-gb300"})


@dataclass(frozen=True)
class GpuHost:
    """One host with GPUs, all of the same type.

    Only `lookup_gpu` makes them; a host that it returned is legal.

    Attributes:
        type: The node's value of `cloud.google.com/gke-accelerator`.
        count: GPUs of the host.
        machine_types: The Compute Engine machine types with as many, smallest first; empty where the
            GPUs are attached to an N1 machine of the user's choice.
        architecture: The CPUs' architecture, as in `kubernetes.io/arch`.
    """

    type: str
    count: int
    machine_types: tuple[str, ...]
    architecture: Literal["amd64", "arm64"]

    @property
    def size(self) -> HostSize | None:
        """CPU and memory of the smallest machine with as many; None where no source says so."""
        return GPU_MACHINE_SIZES.get(self.machine_types[0]) if self.machine_types else None


def lookup_gpu(type: str, *, count: int) -> GpuHost:  # noqa: A002 - the field's name in a FrayJob
    """The host that has `count` GPUs of a type.

    Args:
        type: The value of GKE's accelerator label: `nvidia-h100-80gb`. Exact and in lower case, as the
            API server checks it too.
        count: GPUs of one host. Only what machines come with is legal: some types have a single count.

    Raises:
        UnknownAcceleratorError: GKE has no such GPU; the error holds the nearest types.
        AcceleratorShapeError: No machine has that many of it; the error holds the legal counts.
    """
    counts = legal_gpu_counts(type)
    if count not in counts:
        raise AcceleratorShapeError(type, "count", str(count), tuple(str(legal) for legal in counts))
    architecture: Literal["amd64", "arm64"] = "arm64" if type in _ARM64 else "amd64"
    return GpuHost(type, count, _MACHINES[type][count], architecture)


def resolve_gpu_type(name: str) -> str:
    """GKE's name of a GPU type that may be written short, in any case: `H100` is `nvidia-h100-80gb`.

    For what people write in Python, on the command line and in job files that `fray` reads. A FrayJob on
    a cluster has GKE's names.

    Raises:
        UnknownAcceleratorError: GKE has no such GPU; the error holds the nearest types.
    """
    model = name.lower().removeprefix("nvidia-").removeprefix("tesla-")
    model = _GIGABYTES.sub(r"\1b", model)
    candidates = (_SHORT_NAMES.get(model), *(brand + model for brand in _BRANDS))
    found = next((each for each in candidates if each in _MACHINES), None)
    if found is None:
        raise UnknownAcceleratorError("GPU", name, _nearest_types(name))
    return found


def legal_gpu_types() -> tuple[str, ...]:
    """Every GPU type that GKE has machines of, oldest families first."""
    return tuple(_MACHINES)


def legal_gpu_counts(type: str) -> tuple[int, ...]:  # noqa: A002 - the field's name in a FrayJob
    """How many GPUs of a type one host can have, ascending.

    Raises:
        UnknownAcceleratorError: GKE has no such GPU; the error holds the nearest types.
    """
    if type not in _MACHINES:
        raise UnknownAcceleratorError("GPU", type, _nearest_types(type))
    return tuple(_MACHINES[type])


def _nearest_types(name: str) -> tuple[str, ...]:
    """One to five types, likeliest first: those that share a word (`H100`), else one that looks alike."""
    text = name[:_LONGEST].strip().lower()
    words = {word for word in re.split(r"[^a-z0-9]+", text) if len(word) > 1} - _MAKERS
    known = {word for found in _MACHINES for word in found.split("-")} - _MAKERS
    alike = {near for word in words for near in difflib.get_close_matches(word, known)}
    for meant in (words, alike):
        shared = {found: sum(word in found for word in meant) for found in _MACHINES}
        if best := max(shared.values()):
            return tuple(found for found in _MACHINES if shared[found] == best)[:_MOST]
    return tuple(difflib.get_close_matches(text, _MACHINES, n=_MOST) or list(_MACHINES)[-_MOST:])
