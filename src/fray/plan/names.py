"""Names of the objects made for a FrayJob, all within the limits of Kubernetes, and addresses of its hosts.

A FrayJob's name may take 63 characters, but its attempts' pods add to it. Names that don't fit are cut
and made unique again by a hash of the whole, so every legal FrayJob has legal children, and the same
FrayJob always has the same ones.

The hosts of an attempt reach each other by DNS names in a cluster, by loopback on a laptop: that is the only
difference between the environment of a pod and that of a local process.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from fray.plan.gang import Gang
from fray.vocabulary import REPLICATED_JOB

__all__ = [
    "LOOPBACK",
    "MAX_ENV_VALUE",
    "Addresses",
    "Ports",
    "build_cluster_addresses",
    "build_jobset_name",
    "build_loopback_addresses",
    "build_object_name",
    "build_worker_job_name",
    "jobset_name_limit",
    "read_attempt",
    "read_generation",
]

LABEL_LIMIT = 63
HASH_LENGTH = 8
WORKER_SUFFIX = len("-99999-abcde")
"""What names of a worker Job's pods add to its own."""
POD_SUFFIX = 9
"""JobSet's webhook refuses names with fewer than 9 characters to spare: three dashes and `-abcde`."""
SLICE_LIMIT = 49
"""GKE takes no longer names of dynamic slices."""
MAX_ENV_VALUE = 120_000
"""Linux refuses to start a process with one environment string over 128 KiB (MAX_ARG_STRLEN)."""

LOOPBACK = "127.0.0.1"


def build_jobset_name(job_name: str, *, attempt: int, gang: Gang) -> str:
    """Return the name of an attempt's JobSet: `<job>-a<attempt>`, cut and hashed where it must be."""
    return _fit(job_name, suffix=f"-a{attempt}", limit=jobset_name_limit(gang))


def build_worker_job_name(job_name: str, *, attempt: int, generation: int) -> str:
    """Return the name of a Job of an attempt's workers: `<job>-a<attempt>-w<generation>`, cut as others."""
    return _fit(job_name, suffix=f"-a{attempt}-w{generation}", limit=LABEL_LIMIT - WORKER_SUFFIX)


def read_attempt(child: str) -> int:
    """Return of which attempt the JobSet or Job of this name is, from 1; 0 where it is no such name."""
    found = re.search(r"-a([1-9][0-9]{0,8})(-w[0-9]+)?$", child)
    return int(found[1]) if found else 0


def read_generation(worker_job: str) -> int:
    """Return which Job of an attempt's workers has this name, from 1; 0 where it is no such name."""
    found = re.search(r"-w([1-9][0-9]{0,8})$", worker_job)
    return int(found[1]) if found else 0


def jobset_name_limit(gang: Gang) -> int:
    """Return how long a JobSet's name may be for this gang.

    Three limits hold. Pods are called `<jobset>-slice-<i>-<j>-abcde` and must fit 63 characters. And the
    list of a slice's host names (TPU_WORKER_HOSTNAMES) must fit one environment string: each entry holds
    the JobSet's name twice. And slices that may be formed on demand are called after their child Job.
    """
    digits = len(str(gang.slices - 1)) + len(str(gang.hosts_per_slice - 1))
    by_pod_name = LABEL_LIMIT - POD_SUFFIX - len(REPLICATED_JOB) - digits
    if not gang.multi_host_slices:
        return by_pod_name
    around = len(f"-{REPLICATED_JOB}-") + digits + len("-.:8471,")
    by_host_list = (MAX_ENV_VALUE // gang.hosts_per_slice - around) // 2
    by_slice_name = LABEL_LIMIT
    if gang.tpu is not None and gang.tpu.cubes:
        by_slice_name = SLICE_LIMIT - len(f"-{REPLICATED_JOB}-{gang.slices - 1}")
    return min(by_pod_name, by_host_list, by_slice_name)


def build_object_name(original: str) -> str:
    """Return a legal FrayJob name for a name that may not be one, such as `train_lm`.

    A legal name comes back as it is; any other is lowered, its illegal characters become dashes, and a
    hash of the original keeps two such names apart.
    """
    if re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", original):
        return original
    cleaned = re.sub(r"[^a-z0-9]+", "-", original.lower()).strip("-") or "job"
    return f"{cleaned[: LABEL_LIMIT - HASH_LENGTH - 1].rstrip('-')}-{_digest(original)}"


def _fit(name: str, *, suffix: str, limit: int) -> str:
    """Return name + suffix if it is a DNS-1035 label within the limit, else a cut and hashed form."""
    if len(name) + len(suffix) <= limit and name[0].isalpha():
        return name + suffix
    stem = name if name[0].isalpha() else f"j{name}"
    room = limit - len(suffix) - HASH_LENGTH - 1
    if room < 1:
        # Slices of over 2,000 hosts after thousands of attempts leave no room for the name itself.
        return f"j{_digest(name)}"[: limit - len(suffix)] + suffix
    return f"{stem[:room].rstrip('-')}-{_digest(name)}{suffix}"


def _digest(text: str) -> str:
    # surrogatepass: a name from the command line may hold bytes that are no UTF-8.
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:HASH_LENGTH]


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
