"""What a test cluster is asked to be, and what it was made from: both decide whether it can be used again.

How a cluster is made is the providers' part (`local`, `kind`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.layout import Layout, build_layout

__all__ = ["Options", "derive_fingerprint"]


@dataclass(frozen=True)
class Options:
    """What a cluster may have beyond its two TPU pools: more hosts for ordinary pods, and for GPUs."""

    cpu_hosts: int = 0
    gpu_hosts: int = 0

    def layout(self) -> Layout:
        """The hosts that these options ask for. Raises ValueError."""
        return build_layout(cpu_hosts=self.cpu_hosts, gpu_hosts=self.gpu_hosts)


def derive_fingerprint() -> str:
    """A digest that changes with anything a cluster was made from: versions, manifests, these files."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted(path for path in here.rglob("*") if path.suffix in {".py", ".toml", ".yaml", ".sum"}):
        digest.update(path.relative_to(here).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
