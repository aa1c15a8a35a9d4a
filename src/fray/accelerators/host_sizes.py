"""CPU and memory of the hosts that carry accelerators, and how much of them the system leaves to pods.

Sizes of GPU machines are from Compute Engine's pages on accelerator-optimized machines; TPU machines have
theirs in `tpu_generations`. What a kubelet keeps for itself is from GKE's page on node sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["GPU_MACHINE_SIZES", "HostSize"]

_SHARE: Final = 0.9
"""Share of a host that pods may ask for: the kubelet and system pods take the rest."""
_SMALL_SHARE: Final = 0.75
"""The same for memory on hosts with less than `_SMALL_GB`: GKE keeps a quarter of the first 4 GB, a fifth of
the next 4, a tenth of the next 8, and less of what is above."""
_SMALL_GB: Final = 64


@dataclass(frozen=True)
class HostSize:
    """vCPUs of a host, and its memory in GB."""

    cpu: int
    memory_gb: int

    @property
    def for_pods(self) -> HostSize:
        """What a pod may ask for that has the host for itself, beside system pods."""
        share = _SHARE if self.memory_gb >= _SMALL_GB else _SMALL_SHARE
        return HostSize(int(self.cpu * _SHARE), int(self.memory_gb * share))


GPU_MACHINE_SIZES: Final[Mapping[str, HostSize]] = MappingProxyType(
    {
        "g2-standard-4": HostSize(4, 16),
        "g2-standard-8": HostSize(8, 32),
        "g2-standard-12": HostSize(12, 48),
        "g2-standard-16": HostSize(16, 64),
        "g2-standard-32": HostSize(32, 128),
        "g2-standard-24": HostSize(24, 96),
        "g2-standard-48": HostSize(48, 192),
        "g2-standard-96": HostSize(96, 384),
        "a2-highgpu-1g": HostSize(12, 85),
        "a2-highgpu-2g": HostSize(24, 170),
        "a2-highgpu-4g": HostSize(48, 340),
        "a2-highgpu-8g": HostSize(96, 680),
        "a2-megagpu-16g": HostSize(96, 1360),
        "a2-ultragpu-1g": HostSize(12, 170),
        "a2-ultragpu-2g": HostSize(24, 340),
        "a2-ultragpu-4g": HostSize(48, 680),
        "a2-ultragpu-8g": HostSize(96, 1360),
        "a3-highgpu-1g": HostSize(26, 234),
        "a3-highgpu-2g": HostSize(52, 468),
        "a3-highgpu-4g": HostSize(104, 936),
        "a3-highgpu-8g": HostSize(208, 1872),
        "a3-megagpu-8g": HostSize(208, 1872),
        "a3-ultragpu-8g": HostSize(224, 2952),
        "a4-highgpu-8g": HostSize(224, 3968),
        "a4x-highgpu-4g": HostSize(140, 884),
        "a4x-highgpu-4g-nolssd": HostSize(140, 884),
        "g4-standard-48": HostSize(48, 180),
        "g4-standard-96": HostSize(96, 360),
        "g4-standard-192": HostSize(192, 720),
        "g4-standard-384": HostSize(384, 1440),
    }
)
"""By machine type; those that aren't here have a size that no source gives."""
