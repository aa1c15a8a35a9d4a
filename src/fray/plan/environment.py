"""The environment that tells a process its place in the gang, each variable with its reason.

One list serves every host: what differs between hosts refers to labels that JobSet and the Job
controller put on the pods (downward API) and is expanded by the kubelet. Which variables exist is
`fray.vocabulary`; reading them in the pod is `fray.runtime.identity`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fray.plan.command import HEAD_MOUNT, KEYS_MOUNT
from fray.plan.gang import Gang, GangKind
from fray.plan.kueue import derive_queue
from fray.plan.manifests import Fact
from fray.plan.names import Addresses
from fray.plan.settings import PlanSettings
from fray.plan.workers import describe_offer, has_fixed_size, has_keys, has_workers
from fray.vocabulary import (
    ACCEPTED_FILE,
    CERTIFICATE_FILE,
    ENV_ATTEMPT,
    ENV_COORDINATOR_ADDRESS,
    ENV_DASK_PREFIX,
    ENV_FRAY_RANK,
    ENV_FRAY_WORLD_SIZE,
    ENV_GPUS_PER_NODE,
    ENV_HOST,
    ENV_HOSTS_PER_SLICE,
    ENV_JAX_COORDINATOR_ADDRESS,
    ENV_JAX_COORDINATOR_PORT,
    ENV_JAX_NUM_PROCESSES,
    ENV_JAX_PLATFORMS,
    ENV_JAX_PROCESS_ID,
    ENV_JOB_INDEX,
    ENV_JOB_NAME,
    ENV_JOB_UID,
    ENV_JOBSET_NAME,
    ENV_LIBTPU_INIT_ARGS,
    ENV_MASTER_ADDR,
    ENV_MASTER_PORT,
    ENV_MEGASCALE_COORDINATOR_ADDRESS,
    ENV_MEGASCALE_NUM_SLICES,
    ENV_MEGASCALE_PORT,
    ENV_MEGASCALE_SLICE_ID,
    ENV_NCCL_DEBUG,
    ENV_NCCL_SOCKET_IFNAME,
    ENV_NNODES,
    ENV_NODE_RANK,
    ENV_NUM_SLICES,
    ENV_PET_MASTER_ADDR,
    ENV_PET_MASTER_PORT,
    ENV_PET_NNODES,
    ENV_PET_NODE_RANK,
    ENV_PET_NPROC_PER_NODE,
    ENV_POD_IP,
    ENV_POD_NAME,
    ENV_POD_UID,
    ENV_POOL_HEAD,
    ENV_POOL_KEY,
    ENV_POOL_OBJECTS,
    ENV_POOL_SOCKET,
    ENV_PORT_PREFIX,
    ENV_RANK,
    ENV_RAY_AUTH_MODE,
    ENV_RAY_TOKEN_PATH,
    ENV_REPLICA_COUNT,
    ENV_REPLICA_ID,
    ENV_REPLICATED_JOB,
    ENV_ROOT_JOB,
    ENV_SLICE,
    ENV_TPU_PROCESS_ADDRESSES,
    ENV_TPU_PROCESS_PORT,
    ENV_TPU_WORKER_HOSTNAMES,
    ENV_TPU_WORKER_ID,
    ENV_WORKERS_ENGINE,
    ENV_WORKERS_IDLE_SECONDS,
    ENV_WORKERS_MAX,
    ENV_WORKERS_MIN,
    ENV_WORKERS_SHAPE,
    ENV_WORLD_SIZE,
    LABEL_ATTEMPT,
    LABEL_COMPLETION_INDEX,
    LABEL_JOB_INDEX,
    LABEL_JOB_UID,
    LABEL_JOBSET_NAME,
    LABEL_REPLICATED_JOB,
    POOL_OBJECT_PORTS,
    POOL_PORTS,
    PRIVATE_KEY_FILE,
    REPLICATED_JOB,
)
from fray.wire.frayjob import FrayJob, FrayJobSpec

__all__ = [
    "MULTISLICE",
    "PROTECTED_PREFIX",
    "RAY_TOKEN_FILE",
    "EnvEntry",
    "build_accelerator_environment",
    "build_bounds",
    "build_dask_tls",
    "build_environment",
    "build_host_environment",
    "build_offer",
    "build_worker_environment",
    "port_variable",
]

PROTECTED_PREFIX = "FRAY_"
"""Variables a user can't override: the runtime and `fray.runtime.identity` rely on them."""

JAX_TPU_DOCS = "https://docs.cloud.google.com/tpu/docs/jax-on-gke"
JAX_DISTRIBUTED = "https://docs.jax.dev/en/latest/multi_process.html"
JOBSET_LABELS = "https://jobset.sigs.k8s.io/docs/concepts/"
TORCH_ENV = "https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization"
TORCHRUN = "https://github.com/pytorch/pytorch/blob/main/torch/distributed/argparse_util.py"
NCCL_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
TPU_SLICES = "https://docs.cloud.google.com/kubernetes-engine/docs/concepts/tpus"
MULTISLICE = "https://docs.cloud.google.com/kubernetes-engine/docs/how-to/tpu-multislice"

RAY_TOKEN = "https://docs.ray.io/en/latest/ray-security/token-auth.html"
RAY_TOKEN_FILE = "/dev/shm/fray-ray-token"
"""In memory, and writable in every container."""
DASK_TLS = "https://distributed.dask.org/en/stable/tls.html"

FINDS_HEAD = "by it processes find the pod of rank 0, where the head of their pool is"

LIBTPU_SCOPED_VMEM_KIB = {"v5p": 50000, "v5litepod": 50000, "v6e": 98304}
"""Scoped VMEM limits that Fray's users have measured to serve their models best; user values win."""


@dataclass(frozen=True)
class EnvEntry:
    """One environment variable: a literal value, or a pod label or another field of it that holds it."""

    name: str
    because: str
    value: str | None = field(default=None, repr=False)
    label: str | None = None
    source: str = ""
    path: str | None = None
    """The field, such as `status.podIP`."""

    def to_manifest(self) -> dict[str, Any]:
        """Return the entry of a container's `env`."""
        path = f"metadata.labels['{self.label}']" if self.label is not None else self.path
        if path is not None:
            return {"name": self.name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        return {"name": self.name, "value": self.value or ""}

    def to_fact(self) -> Fact:
        """Return the entry's line in `fray explain`."""
        value = f"(label {self.label})" if self.label is not None else f"({self.path})"
        if self.label is None and self.path is None:
            value = self.value or '""'
        return Fact(f"env {self.name}", value, self.because, self.source)


def port_variable(port_name: str) -> str:
    """Return the variable that holds the number of a named port: FRAY_PORT_HTTP_API for `http-api`."""
    return ENV_PORT_PREFIX + port_name.upper().replace("-", "_")


def build_environment(
    job: FrayJob, gang: Gang, addresses: Addresses, *, attempt: int, metadata_server: bool
) -> list[EnvEntry]:
    """Return the variables of every host of an attempt, in an order in which each may refer to earlier ones.

    `metadata_server` says whether the machine has Google's metadata server; where it hasn't, JAX must be
    needs the word that a single slice is one, or it asks that server for minutes.
    """
    entries = [*_identity(job, gang, addresses, attempt), *_controllers(gang)]
    if gang.kind is GangKind.TPU:
        entries += _tpu(gang, addresses, metadata_server=metadata_server)
    else:
        entries += [*_jax(gang, addresses), *_torch(gang, addresses)]
    return entries


def build_host_environment(gang: Gang, addresses: Addresses, *, metadata_server: bool) -> list[EnvEntry]:
    """Return the variables that tell a host of a TPU gang its place in it, whatever the gang runs."""
    return [
        *_place(gang, addresses),
        *_controllers(gang),
        *_tpu(gang, addresses, metadata_server=metadata_server),
    ]


def build_worker_environment(
    job: FrayJob, gang: Gang, *, attempt: int, metadata_server: bool
) -> list[EnvEntry]:
    """Return the variables of a worker: whose it is, and what its own accelerators need; it has no rank."""
    entries = [
        *_job(job),
        _attempt(job, attempt),
        EnvEntry(ENV_JOB_UID, FINDS_HEAD, label=LABEL_JOB_UID),
        *_pool(job.spec),
        *_pod(),
        *build_offer(job.spec),
    ]
    return [*entries, *build_accelerator_environment(gang, metadata_server=metadata_server)]


def build_accelerator_environment(gang: Gang, *, metadata_server: bool) -> list[EnvEntry]:
    """Return what a process that has no rank needs for its own accelerators."""
    return _tpu(gang, Addresses(""), metadata_server=metadata_server) if gang.kind is GangKind.TPU else []


def _job(job: FrayJob) -> list[EnvEntry]:
    root = job.spec.parent.root if job.spec.parent else job.metadata.name
    return [
        EnvEntry(ENV_JOB_NAME, "names the FrayJob", job.metadata.name),
        EnvEntry(ENV_ROOT_JOB, "names of actors are scoped by the job at the top of the tree", root),
    ]


def _pod() -> list[EnvEntry]:
    """Return what names the pod: an actor that a process of it hosts ends with it."""
    why = "an actor that a process of this pod hosts ends with it"
    return [
        EnvEntry(ENV_POD_NAME, why, path="metadata.name"),
        EnvEntry(ENV_POD_UID, why, path="metadata.uid"),
    ]


def build_offer(spec: FrayJobSpec) -> list[EnvEntry]:
    """Return what one worker offers, where its job says how many CPUs that are."""
    offer = describe_offer(spec)
    # A pod without a limit of its own sees all CPUs of its node.
    return [] if offer is None else [EnvEntry(ENV_WORKERS_SHAPE, "spec.workers.resources say so", offer)]


def build_bounds(job: FrayJob, settings: PlanSettings) -> list[EnvEntry]:
    """Return what the head keeps the number of workers by; users write it without maxReplicas, never both.

    Nothing where that number is fixed: workers that went wouldn't be followed by others.
    """
    workers = job.spec.workers
    if workers.max_replicas is None:
        if has_fixed_size(job, elastic=settings.kueue_elastic_jobs):
            return []
        why = "the head lets workers go, idle ones first, that are more than spec.workers.replicas"
        return [EnvEntry(ENV_WORKERS_MIN, why, str(workers.min_replicas))]
    why = "the head asks for workers by demand"
    bounds = (
        (ENV_WORKERS_MIN, workers.min_replicas),
        (ENV_WORKERS_MAX, workers.max_replicas),
        (ENV_WORKERS_IDLE_SECONDS, workers.idle_seconds),
    )
    return [*(EnvEntry(name, why, str(value)) for name, value in bounds), *build_offer(job.spec)]


def _pool(spec: FrayJobSpec) -> list[EnvEntry]:
    """Return what processes of a job with workers join its pool by."""
    first, last = POOL_OBJECT_PORTS
    engine: list[EnvEntry] = []
    if spec.workers.engine != "fray":
        engine = [EnvEntry(ENV_WORKERS_ENGINE, "spec.workers.engine says so", spec.workers.engine)]
    if spec.workers.engine == "dask":
        engine += build_dask_tls()
    if spec.workers.engine == "ray":
        why = "Ray's processes know each other by a token of this job"
        engine += [
            EnvEntry(ENV_RAY_AUTH_MODE, why, "token", source=RAY_TOKEN),
            EnvEntry(ENV_RAY_TOKEN_PATH, why, RAY_TOKEN_FILE, source=RAY_TOKEN),
        ]
    return [
        *engine,
        EnvEntry(ENV_POD_IP, "where this pod serves its objects", path="status.podIP"),
        EnvEntry(
            ENV_POOL_HEAD, "the head of the pool is beside rank 0, without any DNS", f"rank-0:{POOL_PORTS[0]}"
        ),
        EnvEntry(ENV_POOL_KEY, "processes of a pool know each other by these keys", KEYS_MOUNT),
        EnvEntry(
            ENV_POOL_OBJECTS,
            "each process serves its objects at the first free port of these",
            f"tcp:$({ENV_POD_IP}):{first}-{last}",
        ),
    ]


def _head_socket() -> list[EnvEntry]:
    """Return where processes of rank 0's pod reach the head without TLS."""
    why = "processes of rank 0's pod reach the head by it"
    return [EnvEntry(ENV_POOL_SOCKET, why, f"pod:{HEAD_MOUNT}/socket")]


def build_dask_tls(keys: str = KEYS_MOUNT) -> list[EnvEntry]:
    """Return what makes all that a process does with Dask mutual TLS, by the keys in a directory."""
    settings = f"{ENV_DASK_PREFIX}DISTRIBUTED__COMM__"
    tls = f"{settings}TLS__"
    roles = ("CLIENT", "SCHEDULER", "WORKER")
    why = "Dask's connections show and accept the keys of the pool"
    return [
        EnvEntry(f"{settings}REQUIRE_ENCRYPTION", why, "True", source=DASK_TLS),
        EnvEntry(f"{tls}MIN_VERSION", why, "1.3", source=DASK_TLS),
        EnvEntry(f"{tls}CA_FILE", why, f"{keys}/{ACCEPTED_FILE}", source=DASK_TLS),
        *(EnvEntry(f"{tls}{role}__CERT", why, f"{keys}/{CERTIFICATE_FILE}") for role in roles),
        *(EnvEntry(f"{tls}{role}__KEY", why, f"{keys}/{PRIVATE_KEY_FILE}") for role in roles),
    ]


def _dask_client(addresses: Addresses) -> list[EnvEntry]:
    """Return by what `distributed.Client()` finds the scheduler in the pod of rank 0."""
    address = f"tls://{addresses.host(slice_index=0, host=0)}:{POOL_PORTS[0]}"
    wait = f"{ENV_DASK_PREFIX}DISTRIBUTED__COMM__TIMEOUTS__CONNECT"
    return [
        EnvEntry(
            f"{ENV_DASK_PREFIX}SCHEDULER_ADDRESS", "distributed.Client() finds the scheduler by it", address
        ),
        EnvEntry(wait, "the scheduler may start later, and its name be known later", "120s"),
    ]


def _place(gang: Gang, addresses: Addresses) -> list[EnvEntry]:
    """Return where a host is in its gang, and where rank 0 is."""
    coordinator = f"{addresses.host(slice_index=0, host=0)}:{addresses.ports.coordinator}"
    one_slice = "GPU and CPU gangs are one slice"
    return [
        EnvEntry(ENV_SLICE, "index of this host's slice", label=LABEL_JOB_INDEX, source=JOBSET_LABELS)
        if gang.kind is GangKind.TPU
        else EnvEntry(ENV_SLICE, one_slice, "0"),
        EnvEntry(ENV_NUM_SLICES, f"the job asks for {gang.describe()}", str(gang.slices)),
        EnvEntry(
            ENV_HOST, "index of this host in its slice", label=LABEL_COMPLETION_INDEX, source=JOBSET_LABELS
        ),
        EnvEntry(ENV_HOSTS_PER_SLICE, f"the job asks for {gang.describe()}", str(gang.hosts_per_slice)),
        *_rank(gang),
        EnvEntry(ENV_COORDINATOR_ADDRESS, "rank 0 may offer a rendezvous here", coordinator),
    ]


def _identity(job: FrayJob, gang: Gang, addresses: Addresses, attempt: int) -> list[EnvEntry]:
    entries = [*_job(job), _attempt(job, attempt), *_place(gang, addresses)]
    pooled = has_workers(job.spec)
    if job.spec.entrypoint.callable is not None or pooled:
        why = FINDS_HEAD if pooled else "the FrayJob owns what the callable leaves behind"
        entries.append(EnvEntry(ENV_JOB_UID, why, label=LABEL_JOB_UID))
    if pooled:
        entries += _pool(job.spec)
        entries += _head_socket() if job.spec.workers.engine == "fray" else []
        entries += _dask_client(addresses) if job.spec.workers.engine == "dask" else []
    elif has_keys(job.spec):
        entries.append(EnvEntry(ENV_POOL_KEY, "actors know their callers by these keys", KEYS_MOUNT))
    entries += _pod() if has_keys(job.spec) else []
    entries += [
        EnvEntry(port_variable(port.name), f"number of port {port.name!r}", str(port.port))
        for port in job.spec.ports
    ]
    return entries


def _attempt(job: FrayJob, attempt: int) -> EnvEntry:
    """Return the attempt's number; of a queued job by a label, which can change while Kueue holds it."""
    why = "counts attempts from 1; a program resumes from its checkpoint when > 1"
    if derive_queue(job).name is None:
        return EnvEntry(ENV_ATTEMPT, why, str(attempt))
    why = f"{why}; Kueue may resume this JobSet as a later attempt"
    return EnvEntry(ENV_ATTEMPT, why, label=LABEL_ATTEMPT)


def _rank(gang: Gang) -> list[EnvEntry]:
    """Return the rank, where one label has it, and the number of hosts; the kubelet can't calculate."""
    size, earlier = str(gang.hosts), "as earlier versions of Fray called it"
    entries = [
        EnvEntry(ENV_FRAY_WORLD_SIZE, "hosts of the whole gang", size),
        EnvEntry(ENV_REPLICA_COUNT, f"{ENV_FRAY_WORLD_SIZE}, {earlier}", size),
    ]
    if gang.slices > 1 and gang.hosts_per_slice > 1:
        return entries
    label = LABEL_JOB_INDEX if gang.slices > 1 else LABEL_COMPLETION_INDEX
    return [
        EnvEntry(ENV_FRAY_RANK, "index of this host in the whole gang", label=label, source=JOBSET_LABELS),
        EnvEntry(ENV_REPLICA_ID, f"{ENV_FRAY_RANK}, {earlier}", label=label),
        *entries,
    ]


def _controllers(gang: Gang) -> list[EnvEntry]:
    what = "where scripts written for JobSet look"
    return [
        EnvEntry(ENV_JOBSET_NAME, what, label=LABEL_JOBSET_NAME, source=JOBSET_LABELS),
        EnvEntry(ENV_REPLICATED_JOB, what, label=LABEL_REPLICATED_JOB, source=JOBSET_LABELS),
        EnvEntry(ENV_JOB_INDEX, f"{what}; index of the Job in {REPLICATED_JOB!r}", label=LABEL_JOB_INDEX)
        if gang.kind is GangKind.TPU
        else EnvEntry(ENV_JOB_INDEX, what, "0"),
    ]


def _tpu(gang: Gang, addresses: Addresses, *, metadata_server: bool) -> list[EnvEntry]:
    assert gang.tpu is not None
    entries: list[EnvEntry] = []
    if gang.multi_host_slices:
        # FRAY_SLICE and not JOB_INDEX: a user may override the latter.
        hosts = [addresses.host(slice_index=f"$({ENV_SLICE})", host=h) for h in range(gang.hosts_per_slice)]
        entries += [
            EnvEntry(
                ENV_TPU_WORKER_ID,
                "libtpu needs the host's index in its slice",
                label=LABEL_COMPLETION_INDEX,
                source=TPU_SLICES,
            ),
            EnvEntry(
                ENV_TPU_WORKER_HOSTNAMES,
                f"libtpu connects the {gang.hosts_per_slice} hosts of a slice to each other",
                ",".join(hosts),
                source=TPU_SLICES,
            ),
        ]
        if gang.tpu.generation in {"tpu7", "tpu7x"}:
            port = addresses.ports.tpu_process
            entries += [
                EnvEntry(
                    ENV_TPU_PROCESS_PORT, "libtpu of tpu7x listens here", str(port), source=JAX_TPU_DOCS
                ),
                EnvEntry(
                    ENV_TPU_PROCESS_ADDRESSES,
                    "libtpu of tpu7x wants ports with its host names",
                    ",".join(f"{host}:{port}" for host in hosts),
                    source=JAX_TPU_DOCS,
                ),
            ]
    entries += _megascale(gang, addresses, metadata_server=metadata_server)
    entries.append(
        EnvEntry(
            ENV_JAX_PLATFORMS,
            "empty: JAX chooses by itself, the TPU first; your own value wins",
            "",
            source=JAX_TPU_DOCS,
        )
    )
    vmem = LIBTPU_SCOPED_VMEM_KIB.get(gang.tpu.generation)
    if vmem is not None:
        entries.append(
            EnvEntry(
                ENV_LIBTPU_INIT_ARGS,
                f"scoped VMEM that serves {gang.tpu.generation} well; your own value wins",
                f"--xla_tpu_scoped_vmem_limit_kib={vmem}",
            )
        )
    return entries


def _megascale(gang: Gang, addresses: Addresses, *, metadata_server: bool) -> list[EnvEntry]:
    names = (ENV_MEGASCALE_NUM_SLICES, ENV_MEGASCALE_SLICE_ID, ENV_MEGASCALE_COORDINATOR_ADDRESS)
    if not gang.multislice:
        why = "empty: there is one slice, and no metadata server to ask about it"
        return [] if metadata_server else [EnvEntry(name, why, "", source=MULTISLICE) for name in names]
    return [
        EnvEntry(names[0], f"{gang.slices} slices train together", str(gang.slices), source=MULTISLICE),
        EnvEntry(names[1], "index of this host's slice", label=LABEL_JOB_INDEX, source=MULTISLICE),
        EnvEntry(
            names[2],
            "host 0 of slice 0 connects the slices over the data centre network",
            addresses.host(slice_index=0, host=0),
            source=MULTISLICE,
        ),
        EnvEntry(
            ENV_MEGASCALE_PORT, "port of that coordinator", str(addresses.ports.megascale), source=MULTISLICE
        ),
    ]


def _jax(gang: Gang, addresses: Addresses) -> list[EnvEntry]:
    address = f"{addresses.host(slice_index=0, host=0)}:{addresses.ports.coordinator}"
    launch = "a convention of launch scripts, which pass it to jax.distributed.initialize()"
    return [
        EnvEntry(
            ENV_JAX_COORDINATOR_ADDRESS,
            "rank 0 serves JAX's coordinator here",
            address,
            source=JAX_DISTRIBUTED,
        ),
        EnvEntry(ENV_JAX_COORDINATOR_PORT, launch, str(addresses.ports.coordinator), source=JAX_DISTRIBUTED),
        EnvEntry(ENV_JAX_NUM_PROCESSES, launch, str(gang.hosts), source=JAX_DISTRIBUTED),
        EnvEntry(ENV_JAX_PROCESS_ID, launch, label=LABEL_COMPLETION_INDEX, source=JAX_DISTRIBUTED),
    ]


def _torch(gang: Gang, addresses: Addresses) -> list[EnvEntry]:
    one_process = "torch.distributed with one process per host; torchrun sets its own"
    entries = [
        EnvEntry(ENV_MASTER_ADDR, "rank 0 serves torch's rendezvous", addresses.host(slice_index=0, host=0)),
        EnvEntry(ENV_MASTER_PORT, "port of that rendezvous", str(addresses.ports.torch)),
        EnvEntry(ENV_RANK, one_process, label=LABEL_COMPLETION_INDEX),
        EnvEntry(ENV_WORLD_SIZE, one_process, str(gang.hosts)),
        EnvEntry(ENV_NODE_RANK, "torchrun --node_rank", label=LABEL_COMPLETION_INDEX),
        EnvEntry(ENV_NNODES, "torchrun --nnodes", str(gang.hosts)),
    ]
    entries = [EnvEntry(e.name, e.because, e.value, e.label, TORCH_ENV) for e in entries]
    if gang.gpu is not None:
        entries += [
            EnvEntry(ENV_GPUS_PER_NODE, "torchrun --nproc_per_node", str(gang.gpu.count), source=TORCH_ENV),
            *_torchrun(gang, addresses),
            EnvEntry(ENV_NCCL_DEBUG, "NCCL says what goes wrong and nothing more", "WARN", source=NCCL_ENV),
            EnvEntry(
                ENV_NCCL_SOCKET_IFNAME,
                "the hosts reach each other by it",
                addresses.interface,
                source=NCCL_ENV,
            ),
        ]
    return entries


def _torchrun(gang: Gang, addresses: Addresses) -> list[EnvEntry]:
    """Return the defaults of torchrun's options: with them `torchrun train.py` alone forms one gang."""
    assert gang.gpu is not None
    because = "a default of torchrun, so that `torchrun train.py` forms one gang; an option wins"
    return [
        EnvEntry(ENV_PET_NNODES, because, str(gang.hosts), source=TORCHRUN),
        EnvEntry(ENV_PET_NODE_RANK, because, label=LABEL_COMPLETION_INDEX, source=TORCHRUN),
        EnvEntry(ENV_PET_NPROC_PER_NODE, because, str(gang.gpu.count), source=TORCHRUN),
        EnvEntry(ENV_PET_MASTER_ADDR, because, addresses.host(slice_index=0, host=0), source=TORCHRUN),
        EnvEntry(ENV_PET_MASTER_PORT, because, str(addresses.ports.torch), source=TORCHRUN),
    ]
