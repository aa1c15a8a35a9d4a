"""What hosts need beside themselves to reach each other as fast as they can, or to be had at all.

Facts: XPK's decorators of pods for TCPX, TCPXO and RDMA, its node pools of tpu7x, and GKE's pages, each named
with its need. People prepare it. Only what a job of that shape needs: GPUs of one host reach each other
without a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fray.accelerators.gpu import GpuHost
from fray.accelerators.tpu import TpuSlice

__all__ = ["Need", "list_gpu_needs", "list_tpu_needs"]


@dataclass(frozen=True)
class Need:
    """Something to be prepared: what, in one sentence, and the page that says how."""

    what: str
    source: str


_TCPX_PAGE: Final = "https://docs.cloud.google.com/kubernetes-engine/docs/how-to/gpu-bandwidth-gpudirect-tcpx"
_RDMA_PAGE: Final = "https://docs.cloud.google.com/ai-hypercomputer/docs/create/gke-ai-hypercompute-custom"
_IRONWOOD_PAGE: Final = "https://docs.cloud.google.com/kubernetes-engine/docs/concepts/tpu-ironwood"

_IN_TEMPLATE: Final = "what the pods need for it goes into podTemplate, or NCCL takes the slow network"
_RDMA: Final = Need(
    "for GPUDirect RDMA between hosts a pool with RDMA networks and Google's NCCL plugin (gIB); "
    f"{_IN_TEMPLATE}",
    _RDMA_PAGE,
)
_NVLINK: Final = Need(
    "for NVLink between hosts a reservation whose machines share a domain of 72 GPUs, a pool with compact "
    "placement, and a ComputeDomain of NVIDIA's DRA driver that the pods claim",
    _RDMA_PAGE,
)
# By GKE's name of the GPU, and only for hosts with as many as the network was made for.
_BETWEEN_HOSTS: Final[Mapping[str, tuple[int, tuple[Need, ...]]]] = {
    "nvidia-h100-80gb": (
        8,
        (
            Need(
                "for GPUDirect-TCPX between hosts a pool with four more networks, the TCPX installer and a "
                f"sidecar; {_IN_TEMPLATE}",
                _TCPX_PAGE,
            ),
        ),
    ),
    "nvidia-h100-mega-80gb": (
        8,
        (
            Need(
                "for GPUDirect-TCPXO between hosts a pool with eight more networks, the TCPXO installer and "
                f"a sidecar; {_IN_TEMPLATE}",
                _TCPX_PAGE,
            ),
        ),
    ),
    "nvidia-h200-141gb": (8, (_RDMA,)),
    "nvidia-b200": (8, (_RDMA,)),
    "nvidia-gb200": (4, (_RDMA, _NVLINK)),
    "nvidia-gb300": (4, (_RDMA, _NVLINK)),
}
_POLICY: Final = Need(
    "for each topology a workload policy of Compute Engine, and GKE 1.34.0-gke.2201000 or newer; "
    "`fray pools create` makes the policy, `fray pools plan` prints the command that does",
    _IRONWOOD_PAGE,
)


def list_gpu_needs(host: GpuHost, *, hosts: int) -> tuple[Need, ...]:
    """Return what a gang of so many of these hosts needs beside its pool."""
    count, needs = _BETWEEN_HOSTS.get(host.type, (0, ()))
    return needs if hosts > 1 and host.count == count else ()


def list_tpu_needs(tpu: TpuSlice) -> tuple[Need, ...]:
    """Return what slices of this type need beside their pools."""
    return (_POLICY,) if tpu.generation == "tpu7x" and tpu.multi_host else ()
