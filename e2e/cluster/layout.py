"""Which hosts a cluster has, and what each claims to be: names, labels, taints, chips.

Pure data, the same for every provider; the addresses are the provider `local`'s. The TPU hosts imitate two
GKE v5p-16 node pools (topology 2x2x2: two hosts of four chips); the values are literals on purpose, so that
tests check Fray's own table of accelerators against something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from e2e.cluster.servers import SERVICE_RANGE

__all__ = [
    "APISERVER_PORT",
    "BRIDGE_ADDRESS",
    "DNS_ADDRESS",
    "HOST_NETWORK",
    "LINK_PREFIX",
    "POD_NETWORK",
    "SERVICE_NETWORK",
    "Host",
    "Layout",
    "build_cpu_host",
    "build_layout",
    "build_tpu_host",
    "parse_taint",
]

HOST_NETWORK = "172.30.0.0/24"
BRIDGE_ADDRESS = "172.30.0.1"
POD_NETWORK = "10.244.0.0/16"
SERVICE_NETWORK = SERVICE_RANGE
DNS_ADDRESS = "10.96.0.10"
APISERVER_PORT = 6443
LINK_PREFIX = "fray-h"
_MOST_HOSTS = 200
_POOL = "cloud.google.com/gke-nodepool"


@dataclass(frozen=True, kw_only=True)
class Host:
    """One machine of the cluster: a network namespace with a kubelet of its own.

    The first one also runs the control plane.
    """

    name: str
    number: int
    labels: Mapping[str, str]
    taints: tuple[str, ...] = ()
    """`key=value:effect`, as the kubelet registers them."""
    chips: Mapping[str, int] = field(default_factory=dict)
    """Extended resources to advertise, such as `google.com/tpu`."""

    @property
    def is_control_plane(self) -> bool:
        """Whether the apiserver and its companions run here."""
        return self.number == 0

    @property
    def pool(self) -> str:
        """Name of its node pool."""
        return self.labels[_POOL]

    @property
    def address(self) -> str:
        """Its address on the bridge between all hosts."""
        return f"172.30.0.{10 + self.number}"

    @property
    def pod_subnet(self) -> str:
        """Where its pods get their addresses."""
        return f"10.244.{self.number}.0/24"

    @property
    def link(self) -> str:
        """Name of the machine's end of its network cable (at most 15 characters)."""
        return f"{LINK_PREFIX}{self.number}"


@dataclass(frozen=True)
class Layout:
    """All hosts, the control plane's first."""

    hosts: tuple[Host, ...]

    @property
    def control_plane(self) -> Host:
        """The host that runs the apiserver."""
        return self.hosts[0]

    @property
    def url(self) -> str:
        """Address of the apiserver, reachable from the machine and from every host."""
        return f"https://{self.control_plane.address}:{APISERVER_PORT}"

    def host_named(self, name: str) -> Host:
        """The host called `name`. Raises KeyError with the names that exist."""
        for host in self.hosts:
            if host.name == name:
                return host
        raise KeyError(f"no host {name!r}; there are: {', '.join(host.name for host in self.hosts)}")

    def pool(self, name: str) -> tuple[Host, ...]:
        """The hosts of the node pool `name`, such as `tpu-a`. Raises KeyError with the pools that exist."""
        found = tuple(host for host in self.hosts if host.pool == name)
        if not found:
            pools = sorted({host.pool for host in self.hosts})
            raise KeyError(f"no node pool {name!r}; there are: {', '.join(pools)}")
        return found


def build_layout(*, cpu_hosts: int = 0, gpu_hosts: int = 0) -> Layout:
    """A control plane, which also takes ordinary pods, and two v5p-16 pools `tpu-a` and `tpu-b`.

    Parameters: `cpu_hosts` more hosts for ordinary pods, `gpu_hosts` hosts of eight H100 each.
    Raises ValueError for a negative number or more hosts than there are addresses.
    """
    if min(cpu_hosts, gpu_hosts) < 0 or cpu_hosts + gpu_hosts > _MOST_HOSTS:
        raise ValueError(f"between 0 and {_MOST_HOSTS} more hosts, not {cpu_hosts} and {gpu_hosts}")
    hosts = [build_cpu_host(0, "cp")]
    for pool in ("tpu-a", "tpu-b"):
        for index in range(2):
            hosts.append(build_tpu_host(len(hosts), pool, index))
    for index in range(cpu_hosts):
        hosts.append(build_cpu_host(len(hosts), f"cpu-{index}"))
    for index in range(gpu_hosts):
        hosts.append(_gpu(len(hosts), f"gpu-{index}"))
    return Layout(tuple(hosts))


def _common(pool: str, machine: str) -> dict[str, str]:
    return {
        _POOL: pool,
        "node.kubernetes.io/instance-type": machine,
        "topology.kubernetes.io/region": "us-east5",
        "topology.kubernetes.io/zone": "us-east5-a",
    }


def build_cpu_host(number: int, name: str) -> Host:
    """A host for ordinary pods."""
    return Host(name=name, number=number, labels=_common("default-pool", "e2-standard-4"))


def build_tpu_host(number: int, pool: str, index: int) -> Host:
    """One of the two hosts of a v5p-16 slice, with four of its eight chips."""
    accelerator = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice",
        "cloud.google.com/gke-tpu-topology": "2x2x2",
        "cloud.google.com/gke-accelerator-count": "4",
    }
    return Host(
        name=f"{pool}-{index}",
        number=number,
        labels=_common(pool, "ct5p-hightpu-4t") | accelerator,
        taints=("google.com/tpu=present:NoSchedule",),
        chips={"google.com/tpu": 4},
    )


def _gpu(number: int, name: str) -> Host:
    accelerator = {
        "cloud.google.com/gke-accelerator": "nvidia-h100-80gb",
        "cloud.google.com/gke-accelerator-count": "8",
    }
    return Host(
        name=name,
        number=number,
        labels=_common("gpu", "a3-highgpu-8g") | accelerator,
        taints=("nvidia.com/gpu=present:NoSchedule",),
        chips={"nvidia.com/gpu": 8},
    )


def parse_taint(text: str) -> dict[str, str]:
    """The object form of `key=value:effect`."""
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}
