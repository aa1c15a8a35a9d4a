"""Every name that crosses a process border: API group, labels, annotations, environment, reasons.

Another program (kubectl, the operator, a pod, a dashboard) may match on these strings, so a change
here is a change of the API. Standard library only, constants only: what a name *means* is decided in
`fray.plan`; what GKE and hardware call things stands in `fray.accelerators`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

# --- API group ----------------------------------------------------------------------------------------

GROUP: Final = "fray.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
FRAYJOB_KIND: Final = "FrayJob"
FRAYJOB_PLURAL: Final = "frayjobs"
FRAYJOB_SHORT_NAME: Final = "fj"
FRAYACTOR_KIND: Final = "FrayActor"
FRAYACTOR_PLURAL: Final = "frayactors"
FRAYACTOR_SHORT_NAME: Final = "fa"

# --- labels and annotations on the objects that Fray makes ----------------------------------------------

LABEL_JOB: Final = f"{GROUP}/job"
"""On every object made for a FrayJob: the FrayJob's name (it always fits, names end at 63)."""
LABEL_JOB_UID: Final = f"{GROUP}/job-uid"
"""On every object made for a FrayJob in a cluster: its uid, which tells whose it is without an owner."""
LABEL_ACTOR: Final = f"{GROUP}/actor"
"""On every object made for a FrayActor, and what its members report: the FrayActor's name."""
LABEL_ACTOR_UID: Final = f"{GROUP}/actor-uid"
"""On what a FrayActor's StatefulSet selects its pods by: the FrayActor's uid."""
LABEL_ATTEMPT: Final = f"{GROUP}/attempt"
"""On every object of an attempt: its number, from 1."""
LABEL_ROLE: Final = f"{GROUP}/role"
"""On every object of an attempt, and its pods: what they are to the job (`Role`)."""
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "fray"
LABEL_POOL_MADE_BY: Final = f"{GROUP}/pool-made-by"
"""On the nodes of a node pool that Fray made: who made it, `cli` or the operator's name for itself."""
ANNOTATION_ORIGINAL_NAME: Final = f"{GROUP}/original-name"
"""The name the user gave, where it was no legal object name and had to be sanitised."""
ANNOTATION_LAUNCH: Final = f"{GROUP}/launch"
"""On a FrayJob that a client launched: a word of that launch alone, by which it knows the object as its own
when the answer to its request was lost."""
ANNOTATION_AVOIDED: Final = f"{GROUP}/avoided-nodes"
"""On a FrayActor's StatefulSet: the nodes that its next pods keep off, by name."""
ANNOTATION_STOPPED_BECAUSE: Final = f"{GROUP}/stopped-because"
"""On a FrayJob that the operator or a client of Fray stopped (`spec.stopped`): why, in the words of its
conditions."""
STOPPED_BECAUSE: Final = "somebody asked for its end"
"""What clients write there."""


class Role(StrEnum):
    """What an object made for a FrayJob is to it."""

    HOST = "host"
    """Its gang: the hosts that run the entrypoint."""
    WORKER = "worker"
    """Its pool: pods that run tasks and actors beside the gang."""
    NETWORK = "network"
    """Who may reach the pool: one NetworkPolicy for all attempts."""


# --- JobSet and Job (gke.md 4.4): names that these controllers own ---------------------------------------

JOBSET_API_VERSION: Final = "jobset.x-k8s.io/v1alpha2"
LABEL_JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
LABEL_JOBSET_UID: Final = "jobset.sigs.k8s.io/jobset-uid"
"""On every Job and pod of a JobSet: tells them from those of an earlier JobSet of the same name."""
LABEL_REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
LABEL_JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
LABEL_COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
LABEL_CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
"""On every pod of a Job: the Job's uid."""
LABEL_POD_INDEX: Final = "apps.kubernetes.io/pod-index"
"""On every pod of a StatefulSet: its index."""
ANNOTATION_EXCLUSIVE_TOPOLOGY: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
REPLICATED_JOB: Final = "slice"
"""The one replicatedJob of a gang. Short, since it counts against the 63 characters of a pod's name."""
CONTAINER: Final = "main"
"""The container that runs the entrypoint; a podTemplate overlay reaches it by this name."""

AUTH_SECRET: Final = "fray-auth"
"""The Secret of a namespace by whose keys the pods of pools know each other."""
CERTIFICATE_FILE: Final = "tls.crt"
"""In the keys of a pool: a self-signed certificate, PEM, which each process of the namespace shows."""
PRIVATE_KEY_FILE: Final = "tls.key"
"""Its private key, PEM."""
ACCEPTED_FILE: Final = "accepted.crt"
"""The certificates that are trusted, PEM: while keys are rotated another one besides that which is shown."""
POOL_PORTS: Final = (7077, 7096)
"""First and last port that processes of a pool listen on in pods; the head's is the first."""
POOL_READY_PORT: Final = POOL_PORTS[1]
"""Port on which a worker's pod answers whether it has joined its pool: `GET /ready`."""
POOL_METRICS_PORT: Final = 7099
"""Port of rank 0's pod where the head shows the pool to anybody; behind the actors' ports."""
POOL_METRICS_PORT_NAME: Final = "pool-metrics"
"""Its name in the pod; a job may have a port `metrics` of its own."""
POOL_METRICS_PATH: Final = "/metrics"
POOL_VIEW_PATH: Final = "/pool.json"
POOL_OBJECT_PORTS: Final = (POOL_PORTS[0] + 1, POOL_PORTS[1] - 1)
"""First and last port of which each process that joins takes a free one."""
RAY_WORKER_PORTS: Final = (7100, 7999)
"""First and last port of which each of Ray's worker processes and drivers takes one."""
RAY_DASHBOARD_PORT: Final = 8265
"""Port of the dashboard of Ray's head, at the loopback interface of its pod."""
RAY_CLIENT_PORT: Final = 10001
"""Port of Ray's head for clients of the Ray Client protocol; Ray opens it where the image has gRPC."""
POOL_HEAD_CONTAINER: Final = "fray-pool-head"
"""The sidecar of hosts that runs the head in rank 0's pod; a podTemplate overlay reaches it by this name."""
POOL_DEMAND_CONTAINER: Final = "fray-pool-demand"
"""The one that asks for workers, where the head is in rank 0's main container; reached in the same way."""

# --- actors ------------------------------------------------------------------------------------------------

ACTOR_PORT: Final = 7097
"""Port on which an actor's pod listens for calls."""
ACTOR_READY_PORT: Final = 7098
"""Port on which it answers whether the actor's constructor has returned: `GET /ready`."""

# --- what a callable leaves behind -----------------------------------------------------------------------

OUTCOME_KEY: Final = "outcome"
"""Key of the pickled outcome in its ConfigMap."""
TERMINATION_LOG: Final = "/dev/termination-log"
"""File that the kubelet reads a container's termination message from."""

# --- Kueue and the cluster autoscaler --------------------------------------------------------------------

LABEL_KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
LABEL_KUEUE_PRIORITY: Final = "kueue.x-k8s.io/priority-class"
LABEL_KUEUE_JOB_UID: Final = "kueue.x-k8s.io/job-uid"
"""On every Workload: the uid of what it was made of."""
ANNOTATION_KUEUE_ELASTIC: Final = "kueue.x-k8s.io/elastic-job"
"""On a Job, not on a JobSet: it may change its size, where Kueue's ElasticJobsViaWorkloadSlices is on."""
ANNOTATION_PREFERRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-preferred-topology"
ANNOTATION_SLICE_REQUIRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-slice-required-topology"
ANNOTATION_SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"
ANNOTATION_TPU_SLICE_TOPOLOGY: Final = "cloud.google.com/gke-tpu-slice-topology"
ANNOTATION_SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"

# --- environment of a job's process ----------------------------------------------------------------------

ENV_JOB_NAME: Final = "FRAY_JOB_NAME"
"""Name of the FrayJob."""
ENV_ATTEMPT: Final = "FRAY_ATTEMPT"
"""Number of the attempt, from 1: a program above 1 goes on from its checkpoint."""
ENV_SLICE: Final = "FRAY_SLICE"
"""Index of this host's slice, from 0; GPU and CPU gangs are one slice."""
ENV_NUM_SLICES: Final = "FRAY_NUM_SLICES"
"""Number of slices."""
ENV_HOST: Final = "FRAY_HOST"
"""Index of this host within its slice, from 0."""
ENV_HOSTS_PER_SLICE: Final = "FRAY_HOSTS_PER_SLICE"
"""Number of hosts of each slice."""
ENV_FRAY_RANK: Final = "FRAY_RANK"
"""Rank of this host in the gang, where one label has it: not in gangs of several slices of several hosts."""
ENV_FRAY_WORLD_SIZE: Final = "FRAY_WORLD_SIZE"
"""Number of hosts of the gang."""
ENV_REPLICA_ID: Final = "FRAY_REPLICA_ID"
"""FRAY_RANK under the name of earlier APIs."""
ENV_REPLICA_COUNT: Final = "FRAY_REPLICA_COUNT"
"""FRAY_WORLD_SIZE under the name of earlier APIs."""
ENV_COORDINATOR_ADDRESS: Final = "FRAY_COORDINATOR_ADDRESS"
"""`host:port` at which rank 0 may offer a rendezvous."""
ENV_PORT_PREFIX: Final = "FRAY_PORT_"
"""Followed by the port's name in upper case: the port to bind, which may differ on a laptop."""
ENV_JOB_UID: Final = "FRAY_JOB_UID"
"""In pods of callables, and of jobs with workers: uid of the FrayJob, which owns what the callable leaves
behind, and by which the head of its pool is found."""
ENV_ROOT_JOB: Final = "FRAY_ROOT_JOB"
"""The job at the top of the tree this job belongs to; actors' names are scoped by it."""
ENV_CLUSTER_SPEC: Final = "FRAY_CLUSTER_SPEC"
"""Where jobs are launched; set in every job that a client launched, so that it can launch more."""
ENV_CLIENT_SPEC: Final = "FRAY_CLIENT_SPEC"
"""As FRAY_CLUSTER_SPEC, and before it, for `fray.client`."""
ENV_POOL_HEAD: Final = "FRAY_POOL_HEAD"
"""Where the head of the job's pool listens, which the job's processes join: `tcp:host:port`, or `rank-0:port`
in pods: the pod of rank 0 of this attempt, whose address the API server knows."""
ENV_POOL_SOCKET: Final = "FRAY_POOL_SOCKET"
"""In pods of hosts, for workers of engine `fray`: a socket in a volume of the pod, `pod:/path`, at which the
head listens too. Processes of rank 0's pod join there if they can, and at FRAY_POOL_HEAD else."""
ENV_POOL_KEY: Final = "FRAY_POOL_KEY"
"""The directory of that pool's key; in pods, of the keys by which actors and callers know each other, too."""
ENV_POOL_OBJECTS: Final = "FRAY_POOL_OBJECTS"
"""Where a process that joins serves what it puts, at its pod's address: `tcp:host:first-last`, of which it
takes the first free port, or `tcp:host:port`."""
ENV_POD_IP: Final = "FRAY_POD_IP"
"""In pods of jobs with workers, and of actors: the pod's address."""
ENV_POD_NAME: Final = "FRAY_POD_NAME"
"""In pods of jobs whose processes have keys: the pod's name, by which an actor's FrayActor names its host."""
ENV_POD_UID: Final = "FRAY_POD_UID"
"""In the same pods: the pod's uid."""
ENV_POOL_METRICS: Final = "FRAY_POOL_METRICS"
"""In the container of a pool's head: the port at which it shows the pool by HTTP."""
ENV_POOL_STATE: Final = "FRAY_POOL_STATE"
"""In the container of a pool's head: a directory that lives as long as the pod, and nobody else writes to."""
ENV_WORKERS_ENGINE: Final = "FRAY_WORKERS_ENGINE"
"""The engine of the job's worker pods, where that isn't `fray`: `dask` or `ray`."""
ENV_DASK_PREFIX: Final = "DASK_"
"""Followed by a setting of Dask's: where the scheduler is (on hosts), and TLS by the pool's keys."""
ENV_RAY_ADDRESS: Final = "RAY_ADDRESS"
"""Where Ray's head is; it's set for the main program of a job whose workers run Ray."""
ENV_RAY_AUTH_MODE: Final = "RAY_AUTH_MODE"
"""How Ray's processes know each other: `token`."""
ENV_RAY_TOKEN_PATH: Final = "RAY_AUTH_TOKEN_PATH"
"""File with the token of the job's Ray. Fray writes it when the container starts."""
ENV_WORKERS_MIN: Final = "FRAY_WORKERS_MIN"
"""In the container of a pool's head: the fewest workers that there are to be."""
ENV_WORKERS_MAX: Final = "FRAY_WORKERS_MAX"
"""In the container of a pool's head: the most workers that it asks for; not set: users ask for them."""
ENV_WORKERS_IDLE_SECONDS: Final = "FRAY_WORKERS_IDLE_SECONDS"
"""In the container of a pool's head: how long there was no work for a worker that it gives back."""
ENV_WORKERS_SHAPE: Final = "FRAY_WORKERS_SHAPE"
"""What one worker offers, for itself and for the head: `CPU=4,memory=8589934592`, where the job says so."""

ENV_ACTOR_NAME: Final = "FRAY_ACTOR_NAME"
"""In pods of actors, as the others of these: name of the FrayActor."""
ENV_ACTOR_LABEL: Final = "FRAY_ACTOR_LABEL"
"""What programs call it."""
ENV_ACTOR_UID: Final = "FRAY_ACTOR_UID"
"""Its uid."""
ENV_ACTOR_INDEX: Final = "FRAY_ACTOR_INDEX"
"""Which member of the FrayActor this pod is, from 0."""
ENV_ACTOR_POD_UID: Final = "FRAY_ACTOR_POD_UID"
"""The pod's uid, by which its incarnations differ from those of the pod before it."""
ENV_ACTOR_MAX_RESTARTS: Final = "FRAY_ACTOR_MAX_RESTARTS"
"""How often the actor's process is started again in one pod; not set: always."""
ENV_ACTOR_MAX_CONCURRENCY: Final = "FRAY_ACTOR_MAX_CONCURRENCY"
"""How many calls run at once; not set: one, or 1,000 of a class with async methods."""
ENV_ACTOR_IDLE_SECONDS: Final = "FRAY_ACTOR_IDLE_SECONDS"
"""For how many seconds nobody may call it until it is idle; not set: for ever."""
ENV_ACTOR_CLASS: Final = "FRAY_ACTOR_CLASS"
"""The actor's class, `module:Class`; not set: it comes in the payload."""
ENV_ACTOR_PAYLOAD: Final = "FRAY_ACTOR_PAYLOAD"
"""The directory of the payload: the class, or a function that returns the instance, and its arguments."""
ENV_ACTOR_PAYLOAD_SHA256: Final = "FRAY_ACTOR_PAYLOAD_SHA256"
"""Its digest."""
ENV_ACTOR_PAYLOAD_PYTHON: Final = "FRAY_ACTOR_PAYLOAD_PYTHON"
"""The minor version of Python that made it."""

ENV_JOBSET_NAME: Final = "JOBSET_NAME"
"""Name of the attempt's JobSet, where scripts written for JobSet look."""
ENV_REPLICATED_JOB: Final = "REPLICATED_JOB_NAME"
"""Name of the JobSet's one replicated job."""
ENV_JOB_INDEX: Final = "JOB_INDEX"
"""Index of the Job of this host in the JobSet: that of its slice."""
ENV_COMPLETION_INDEX: Final = "JOB_COMPLETION_INDEX"
"""Index of the host in its Job. On a cluster the Job controller sets it."""
ENV_TPU_WORKER_ID: Final = "TPU_WORKER_ID"
"""Index of the host in its slice, for libtpu."""
ENV_TPU_WORKER_HOSTNAMES: Final = "TPU_WORKER_HOSTNAMES"
"""The hosts of the slice in order, by which libtpu connects them."""
ENV_TPU_PROCESS_ADDRESSES: Final = "TPU_PROCESS_ADDRESSES"
"""The hosts of the slice with ports, which libtpu of this generation wants."""
ENV_TPU_PROCESS_PORT: Final = "TPU_PROCESS_PORT"
"""Port that libtpu listens on."""
ENV_MEGASCALE_NUM_SLICES: Final = "MEGASCALE_NUM_SLICES"
"""Number of slices that train together; empty where there is no metadata server to ask."""
ENV_MEGASCALE_SLICE_ID: Final = "MEGASCALE_SLICE_ID"
"""Index of this host's slice among them."""
ENV_MEGASCALE_COORDINATOR_ADDRESS: Final = "MEGASCALE_COORDINATOR_ADDRESS"
"""Host 0 of slice 0, which connects the slices over the data centre network."""
ENV_MEGASCALE_PORT: Final = "MEGASCALE_PORT"
"""Port of that coordinator."""
ENV_JAX_PLATFORMS: Final = "JAX_PLATFORMS"
"""Empty on accelerators, so that JAX chooses them; cpu in jobs without any that a client launched."""
ENV_LIBTPU_INIT_ARGS: Final = "LIBTPU_INIT_ARGS"
"""Options of libtpu: a limit of scoped VMEM that serves the generation well."""
ENV_JAX_COORDINATOR_ADDRESS: Final = "JAX_COORDINATOR_ADDRESS"
"""`host:port` of JAX's coordinator, which rank 0 serves."""
ENV_JAX_COORDINATOR_PORT: Final = "JAX_COORDINATOR_PORT"
"""Its port; scripts pass it to jax.distributed.initialize()."""
ENV_JAX_NUM_PROCESSES: Final = "JAX_NUM_PROCESSES"
"""Number of hosts, for the same call."""
ENV_JAX_PROCESS_ID: Final = "JAX_PROCESS_ID"
"""Rank of the host, for the same call."""
ENV_MASTER_ADDR: Final = "MASTER_ADDR"
"""Host of torch's rendezvous, which rank 0 serves."""
ENV_MASTER_PORT: Final = "MASTER_PORT"
"""Its port."""
ENV_RANK: Final = "RANK"
"""Rank for torch.distributed with one process per host; torchrun sets its own."""
ENV_WORLD_SIZE: Final = "WORLD_SIZE"
"""Number of hosts for torch.distributed with one process per host; torchrun sets its own."""
ENV_NODE_RANK: Final = "NODE_RANK"
"""Rank of the host, for `torchrun --node_rank`."""
ENV_NNODES: Final = "NNODES"
"""Number of hosts, for `torchrun --nnodes`."""
ENV_PET_NNODES: Final = "PET_NNODES"
"""Default of `torchrun --nnodes`; with all of PET_*, `torchrun train.py` alone forms one gang."""
ENV_PET_NODE_RANK: Final = "PET_NODE_RANK"
"""Default of `torchrun --node_rank`."""
ENV_PET_NPROC_PER_NODE: Final = "PET_NPROC_PER_NODE"
"""Default of `torchrun --nproc_per_node`: the GPUs of the host."""
ENV_PET_MASTER_ADDR: Final = "PET_MASTER_ADDR"
"""Default of `torchrun --master_addr`."""
ENV_PET_MASTER_PORT: Final = "PET_MASTER_PORT"
"""Default of `torchrun --master_port`."""
ENV_GPUS_PER_NODE: Final = "GPUS_PER_NODE"
"""GPUs of the host."""
ENV_NCCL_DEBUG: Final = "NCCL_DEBUG"
"""WARN: NCCL reports errors and nothing more."""
ENV_NCCL_SOCKET_IFNAME: Final = "NCCL_SOCKET_IFNAME"
"""Network interface by which the hosts reach each other."""


# --- status ------------------------------------------------------------------------------------------------


class Phase(StrEnum):
    """One word for `kubectl get`; derived from the conditions and never read back."""

    PENDING = "Pending"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"


class ConditionType(StrEnum):
    """Types of `status.conditions`."""

    ACCEPTED = "Accepted"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    FINISHED = "Finished"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"
    WORKERS_READY = "WorkersReady"
    """Only there in jobs that can have workers."""
    SUSPENDED = "Suspended"
    """Only there from the first time that it is True."""
    READY = "Ready"
    """Only there in FrayActors."""
    MULTIPLE_PODS = "MultiplePods"
    """Only there in FrayActors, from the first time that it is True."""
    STATUS_READABLE = "StatusReadable"
    """Only there while it is False."""


class Reason(StrEnum):
    """Stable reasons of conditions and attempts: a user may alert on them."""

    # Accepted
    VALID = "Valid"
    POD_TEMPLATE_INVALID = "PodTemplateInvalid"
    # Scheduled, Running
    ALL_HOSTS_PLACED = "AllHostsPlaced"
    HOSTS_STARTING = "HostsStarting"
    ALL_HOSTS_RUNNING = "AllHostsRunning"
    WAITING_FOR_QUEUE = "WaitingForQueue"
    QUEUE_INADMISSIBLE = "QueueInadmissible"
    QUEUE_DEACTIVATED = "QueueDeactivated"
    NO_MATCHING_NODE_POOL = "NoMatchingNodePool"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    UNTOLERATED_TAINT = "UntoleratedTaint"
    UNSCHEDULABLE = "Unschedulable"
    PODS_UNPLACEABLE = "PodsUnplaceable"
    NODES_AVOIDED = "NodesAvoided"
    SCHEDULING_GATED = "SchedulingGated"
    CREATING_NODE_POOLS = "CreatingNodePools"
    NODE_POOLS_REFUSED = "NodePoolsRefused"
    NODE_POOL_LIMIT = "NodePoolLimit"
    QUOTA_EXCEEDED = "QuotaExceeded"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CONTAINER_CONFIG_INVALID = "ContainerConfigInvalid"
    SIDECAR_FAILING = "SidecarFailing"
    VOLUME_MOUNT_FAILED = "VolumeMountFailed"
    ADMISSION_REFUSED = "AdmissionRefused"
    NAME_TAKEN = "NameTaken"
    HOSTS_LEFT_OVER = "HostsLeftOver"
    BACK_OFF = "BackOff"
    SUSPENDED = "Suspended"
    STOPPING = "Stopping"
    ENDED = "Ended"
    IN_PROGRESS = "InProgress"
    # WorkersReady
    ALL_WORKERS_READY = "AllWorkersReady"
    WORKERS_STARTING = "WorkersStarting"
    # StatusReadable
    STATUS_UNREADABLE = "StatusUnreadable"
    # how an attempt or a job ended
    COMPLETED = "Completed"
    NON_ZERO_EXIT = "NonZeroExit"
    KILLED_BY_SIGNAL = "KilledBySignal"
    OUT_OF_MEMORY = "OutOfMemory"
    EVICTED = "Evicted"
    START_FAILED = "StartFailed"
    WORKSPACE_INVALID = "WorkspaceInvalid"
    PACKAGES_NOT_INSTALLED = "PackagesNotInstalled"
    PAYLOAD_MISSING = "PayloadMissing"
    PAYLOAD_INVALID = "PayloadInvalid"
    IMAGE_MISMATCH = "ImageMismatch"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    DISRUPTED = "Disrupted"
    HOSTS_GONE = "HostsGone"
    EXCLUSIVE_PLACEMENT_VIOLATION = "ExclusivePlacementViolation"
    PENDING_TIMEOUT = "PendingTimeout"
    ACTIVE_TIMEOUT = "ActiveTimeout"
    TOTAL_TIMEOUT = "TotalTimeout"
    STOP_REQUESTED = "StopRequested"
    RUNNER_LOST = "RunnerLost"
    WORKERS_FAILED = "WorkersFailed"
    WORKER_IMAGE_MISMATCH = "WorkerImageMismatch"


class ActorReason(StrEnum):
    """Reasons that conditions of FrayActors have besides those of jobs."""

    ALL_MEMBERS_READY = "AllMembersReady"
    MEMBERS_STARTING = "MembersStarting"
    MEMBER_FAILED = "MemberFailed"
    SOME_MEMBERS_ENDED = "SomeMembersEnded"
    ROOT_JOB_ENDED = "RootJobEnded"
    IDLE = "Idle"
    MEMBERS_ENDED = "MembersEnded"
    HOST_ENDED = "HostEnded"
    MORE_THAN_ONE_POD = "MoreThanOnePod"
    ONE_POD_EACH = "OnePodEach"


class VerdictKind(StrEnum):
    """What an attempt's end is charged to."""

    SUCCESS = "Success"
    FAILURE = "Failure"
    PREEMPTION = "Preemption"
    MISPLACEMENT = "Misplacement"
    UNPLACED = "Unplaced"
    SUSPENDED = "Suspended"
    STOPPED = "Stopped"


# --- exit codes: docs/exit-codes.md has these texts --------------------------------------------------------

EXIT_FAILURE: Final = 1
"""The machine or the cluster doesn't let the command do what was asked. In a job: the callable raised an
exception, or a `setup` command failed with this code."""
EXIT_USAGE: Final = 2
"""The request must be changed: an unknown option, a file or a job that doesn't exist, a value that is
refused."""
EXIT_WORKER_ENDED: Final = 86
"""A worker ended because its pool asked it to, or after `max_calls`."""
EXIT_WORKER_LOST_HEAD: Final = 87
"""A worker couldn't connect to the head of its pool, or lost the head or its host's nanny."""
EXIT_ATTEMPT_OVER: Final = 89
"""A worker pod ended because the head of its pool said that the attempt is over."""
EXIT_WORKER_REFUSED: Final = 88
"""A worker's host has another version of Python, Fray or the engine's package than its pool."""
# 112 to 118: the job's entrypoint never ran. Shells, timeout(1), sysexits.h (64-78), xargs(1) (123-127) and
# test runners use none of these; a program that does is recognised by its termination message.
EXIT_WORKSPACE: Final = 112
"""The job's workspace can't be read or unpacked."""
EXIT_PACKAGES: Final = 113
"""`pipPackages` or `extras` can't be installed."""
EXIT_PAYLOAD_MISSING: Final = 114
"""The callable isn't in its Secrets or at its staging URL, or the URL can't be read."""
EXIT_PAYLOAD_CHANGED: Final = 115
"""The callable isn't the one that was launched: its sha256 differs."""
EXIT_PAYLOAD_PYTHON: Final = 116
"""The image has another minor version of Python than the one that pickled the callable, or one before
3.11."""
EXIT_PAYLOAD_CODE: Final = 117
"""The image lacks a module that the callable needs, or the package of the workers' engine."""
EXIT_PAYLOAD_UNREADABLE: Final = 118
"""The callable can't be unpickled, or a module that it imports ended the process."""
EXIT_TIMEOUT: Final = 124
"""A time limit was reached: the job's, or that of `fray wait --timeout`. As `timeout(1)`."""
EXIT_NOT_EXECUTABLE: Final = 126
"""The program can't be executed, as in a shell."""
EXIT_NOT_FOUND: Final = 127
"""The program doesn't exist, as in a shell."""
EXIT_SIGNAL_BASE: Final = 128
"""Plus the number of a signal: that signal ended the process, as in a shell. 137 is SIGKILL, also for want
of memory; 143 is SIGTERM, and a job that was stopped."""
EXIT_INTERRUPTED: Final = 130
"""Ctrl-C (SIGINT)."""
EXIT_BROKEN_PIPE: Final = 141
"""The program that read the command's output ended, as `head` does (SIGPIPE)."""
