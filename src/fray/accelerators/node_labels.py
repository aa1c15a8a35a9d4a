"""Keys of the labels, taints and resources of GKE's accelerator nodes.

Only keys: values follow from a `TpuSlice`, a `GpuHost` or the job's placement, and which key a pod
selects or tolerates is decided where pods are placed. Source: the GKE cluster autoscaler's labels, XPK's
scheduling code, and GKE's pages on TPUs, GPUs, spot VMs, flex-start, reservations and compute classes.
"""

from typing import Final

__all__ = [
    "GPU_RESOURCE",
    "LABEL_ACCELERATOR_COUNT",
    "LABEL_COMPUTE_CLASS",
    "LABEL_FLEX_START",
    "LABEL_GPU_ACCELERATOR",
    "LABEL_HOSTNAME",
    "LABEL_NODE_POOL",
    "LABEL_REGION",
    "LABEL_RESERVATION_AFFINITY",
    "LABEL_RESERVATION_NAME",
    "LABEL_RESERVATION_PROJECT",
    "LABEL_SPOT",
    "LABEL_TPU_ACCELERATOR",
    "LABEL_TPU_CUBE",
    "LABEL_TPU_SLICE",
    "LABEL_TPU_TOPOLOGY",
    "LABEL_ZONE",
    "TAINT_ARCH",
    "TAINT_COMPUTE_CLASS",
    "TAINT_FLEX_START",
    "TAINT_GPU",
    "TAINT_QUEUED",
    "TAINT_SPOT",
    "TAINT_TPU",
    "TPU_RESOURCE",
]

TPU_RESOURCE: Final = "google.com/tpu"
"""Extended resource: a pod asks for all chips of its host, and its limit equals its request."""
GPU_RESOURCE: Final = "nvidia.com/gpu"
"""Extended resource: a pod's limit equals its request."""

# --- what the node carries

LABEL_TPU_ACCELERATOR: Final = "cloud.google.com/gke-tpu-accelerator"
LABEL_TPU_TOPOLOGY: Final = "cloud.google.com/gke-tpu-topology"
LABEL_GPU_ACCELERATOR: Final = "cloud.google.com/gke-accelerator"
LABEL_ACCELERATOR_COUNT: Final = "cloud.google.com/gke-accelerator-count"
"""Chips or GPUs of the node: the only label that tells the two machines of topology 2x4 apart."""

# --- what slices are formed of on demand

LABEL_TPU_CUBE: Final = "cloud.google.com/gke-tpu-partition-4x4x4-id"
"""On nodes of which slices are formed: which cube they are a part of."""
LABEL_TPU_SLICE: Final = "cloud.google.com/gke-tpu-slice"
"""On nodes of a slice that was formed: which one."""

# --- how the node was bought

LABEL_SPOT: Final = "cloud.google.com/gke-spot"
"""On spot nodes only, with the value `true`."""
LABEL_FLEX_START: Final = "cloud.google.com/gke-flex-start"
"""On flex-start nodes only, with the value `true`."""
LABEL_COMPUTE_CLASS: Final = "cloud.google.com/compute-class"
LABEL_RESERVATION_NAME: Final = "cloud.google.com/reservation-name"
LABEL_RESERVATION_PROJECT: Final = "cloud.google.com/reservation-project"
LABEL_RESERVATION_AFFINITY: Final = "cloud.google.com/reservation-affinity"

# --- where the node is

LABEL_NODE_POOL: Final = "cloud.google.com/gke-nodepool"
LABEL_ZONE: Final = "topology.kubernetes.io/zone"
LABEL_HOSTNAME: Final = "kubernetes.io/hostname"
"""On GKE, and on most clusters, the node's name."""
LABEL_REGION: Final = "topology.kubernetes.io/region"

# --- taints, all with the effect NoSchedule

TAINT_TPU: Final = TPU_RESOURCE
TAINT_GPU: Final = GPU_RESOURCE
TAINT_SPOT: Final = LABEL_SPOT
TAINT_FLEX_START: Final = LABEL_FLEX_START
TAINT_COMPUTE_CLASS: Final = LABEL_COMPUTE_CLASS
TAINT_QUEUED: Final = "cloud.google.com/gke-queued"
TAINT_ARCH: Final = "kubernetes.io/arch"
"""On arm64 nodes only, with the value `arm64`."""
