"""How the hosts of one attempt reach each other: DNS names in a cluster, loopback on a laptop.

This is the only difference between the environment of a pod and that of a local process.
"""

from __future__ import annotations

from dataclasses import dataclass

from fray.vocabulary import REPLICATED_JOB

__all__ = ["LOOPBACK", "Addresses", "Ports", "build_cluster_addresses", "build_loopback_addresses"]

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Ports:
    """Ports at which rank 0, or every host, offers a rendezvous; each pod has its own address.

    Defaults are those of the libraries: JAX's coordinator on TPU 8482, MXLA's coordinator 8080, the TPU
    slice builder 8471, torch 29500.
    """

    coordinator: int = 8482
    megascale: int = 8080
    tpu_process: int = 8471
    torch: int = 29500


@dataclass(frozen=True)
class Addresses:
    """Names of an attempt's hosts. `pattern` is filled with `slice` and `host`."""

    pattern: str
    ports: Ports = Ports()
    interface: str = "eth0"
    """Network interface by which the hosts reach each other; in a pod without extra networks eth0."""

    def host(self, *, slice_index: int | str, host: int) -> str:
        """Return the name of one host; `slice_index` may be a `$(VARIABLE)` that the kubelet expands."""
        return self.pattern.format(slice=slice_index, host=host)


def build_cluster_addresses(jobset_name: str) -> Addresses:
    """Return the DNS names that JobSet's headless Service gives to the pods of a JobSet.

    Source: JobSet, `network.enableDNSHostnames`: hostname `<jobset>-<replicatedJob>-<job>-<index>`,
    subdomain the JobSet's name. JAX assumes that subdomain, so it is never another.
    """
    return Addresses(f"{jobset_name}-{REPLICATED_JOB}-{{slice}}-{{host}}.{jobset_name}")


def build_loopback_addresses(ports: Ports) -> Addresses:
    """Return the addresses of a gang whose hosts are processes of one machine."""
    return Addresses(LOOPBACK, ports, interface="lo")
