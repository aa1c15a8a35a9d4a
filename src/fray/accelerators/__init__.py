"""The one home of TPU and GPU facts: names, topologies, hosts, chips, machine types, node labels.

Everything else in Fray (client checks, the CRD's rules, pod placement) asks here and keeps no copy of
its own. `tpu` and `gpu` turn a user's accelerator name into the hosts that it needs; `tpu_generations` is the
table of TPU facts, `host_sizes` how large hosts are, `beside` what they need that isn't on them, `peak_flops`
how fast chips are at most, and `node_labels` the keys that GKE puts on accelerator nodes. Standard library
only; tables are expanded at first use. What a job does with these facts (selectors, tolerations, child Jobs)
doesn't belong here.
"""

from fray.accelerators import node_labels
from fray.accelerators.gpu import GpuHost, legal_gpu_counts, legal_gpu_types, lookup_gpu, resolve_gpu_type
from fray.accelerators.host_sizes import HostSize
from fray.accelerators.node_labels import *  # noqa: F403 - its `__all__` is the list
from fray.accelerators.tpu import (
    TpuSlice,
    legal_topologies,
    legal_tpu_names,
    lookup_tpu,
)
from fray.accelerators.tpu_generations import (
    TorusRule,
    TpuGeneration,
    TpuMachine,
    generations,
    generations_by_spelling,
)

__all__ = [
    "GpuHost",
    "HostSize",
    "TorusRule",
    "TpuGeneration",
    "TpuMachine",
    "TpuSlice",
    "generations",
    "generations_by_spelling",
    "legal_gpu_counts",
    "legal_gpu_types",
    "legal_topologies",
    "legal_tpu_names",
    "lookup_gpu",
    "lookup_tpu",
    "resolve_gpu_type",
]
__all__ += node_labels.__all__
