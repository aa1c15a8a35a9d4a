"""The programs of Ray in pods: `python -m fray.job.ray_pods host COMMAND... | worker | demand`.

`host` stands before the main program of each rank. It starts Ray's head in rank 0, and a raylet without CPUs
in other ranks, since a driver needs a raylet beside it; then the program takes its place. `worker` runs a
raylet with all that a worker's pod has. `demand` runs beside the head, and asks for workers. They read the
rest from variables. Ray is that of the job's image, and each of its ports is one of the pool's.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from fray.errors import AttemptOverError, FrayError, HeadUnknownError, PoolVersionError
from fray.job.engine_pods import Versions, build_refusal, report_end
from fray.job.ray import IN_PODS, check_installed
from fray.kube.errors import ApiError
from fray.payload.stamp import Stamp
from fray.runtime.api.client import ApiAccess
from fray.runtime.identity import Identity
from fray.runtime.pool.head.scaling import JobScale, ScaleLimits, Scaling
from fray.runtime.pool.host.readiness import ReadinessServer
from fray.runtime.pool.machine.growth import count_missing
from fray.runtime.pool.messages.specs import Shape
from fray.runtime.pool.objects.directories import MEMORY_SHARE
from fray.runtime.pool.pod import HeadPlace, PodPool, read_offer
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.worker_pod import DRAIN_SECONDS, HEAD_SECONDS, PATIENCE, build_resources
from fray.runtime.preparation import become
from fray.vocabulary import (
    ENV_JOB_UID,
    ENV_RAY_ADDRESS,
    ENV_RAY_TOKEN_PATH,
    EXIT_ATTEMPT_OVER,
    EXIT_FAILURE,
    EXIT_USAGE,
    EXIT_WORKER_LOST_HEAD,
    EXIT_WORKER_REFUSED,
    LABEL_ROLE,
    POOL_OBJECT_PORTS,
    POOL_READY_PORT,
    PRIVATE_KEY_FILE,
    RAY_WORKER_PORTS,
)

__all__ = ["RayNode", "RayWorkload", "build_start", "build_token", "main"]

_log = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.5
"""Between two looks whether Ray's processes are there."""
ASK_SECONDS: Final = 3.0
"""Between two looks of a worker whether the head is there."""
START_TRIES: Final = 3
"""How often a rank tries to start Ray."""
END_SECONDS: Final = 3.0
"""How long Ray's processes may take to end, besides what they are given to drain."""
LEAST_STORE: Final = 80_000_000
"""Ray refuses a store for objects that is smaller."""
STATES: Final = "ray.core.generated.autoscaler_pb2"
"""Ray's module of what the head says of nodes; its names exist only once it's imported."""
NAMESPACE: Final = b"fray"
VERSIONS: Final = b"versions"
"""In the head's key-value store: what the head has, as JSON. It's written once the head is there."""


class Ports(NamedTuple):
    """Of Ray's processes in one pod."""

    raylet: int
    objects: int
    runtime_env: int
    agent: int
    agent_grpc: int
    metrics: int


PORTS = Ports(*range(POOL_OBJECT_PORTS[0], POOL_OBJECT_PORTS[0] + len(Ports._fields)))


@dataclass(frozen=True)
class RayNode:
    """A worker's node, as Ray's head knows it. `idle`: it runs nothing, and keeps no object that counts."""

    id: str
    total: Mapping[str, float]
    idle: bool


@dataclass
class RayWorkload:
    """The workers of a Ray, and what waits for them: needs and a count each; see `Workload`.

    `gcs` is the client of Ray's head.
    """

    gcs: Any
    nodes: Sequence[RayNode] = ()
    waiting: Sequence[tuple[Shape, int]] = ()
    stopped: bool = field(default=False, init=False)
    _released: set[str] = field(default_factory=set)

    def count_wanted(self, offered: Shape) -> int:
        """See `Workload`: those at work, and those that what waits would fill."""
        totals = [node.total for node in self.nodes] or [{"CPU": 1.0}]
        known = offered or tuple(max(totals, key=lambda total: total.get("CPU", 0.0)).items())
        return sum(not node.idle for node in self.nodes) + count_missing(known, self.waiting)

    def count_workers(self) -> int:
        """See `Workload`."""
        return sum(node.id not in self._released for node in self.nodes)

    def release(self, surplus: int) -> None:
        """See `Workload`: Ray drains them, and refuses for one that has work by now."""
        from ray.exceptions import RayError  # noqa: PLC0415 - of the job's image

        reason = import_module(STATES).DrainNodeReason.Value("DRAIN_NODE_REASON_IDLE_TERMINATION")
        chosen = [node for node in self.nodes if node.idle and node.id not in self._released]
        for node in chosen[:surplus]:
            with contextlib.suppress(RayError):  # the next look asks again
                accepted, _ = self.gcs.drain_node(node.id, reason, "there is less work than workers", 0)
                if accepted:
                    self._released.add(node.id)

    def look(self) -> None:
        """Ask the head what there is; raises what Ray raises."""
        from ray.autoscaler.v2.sdk import get_cluster_resource_state  # noqa: PLC0415 - of the job's image

        state = get_cluster_resource_state(self.gcs)
        status = import_module(STATES).NodeStatus
        idle = status.Value("IDLE")
        at_work = (idle, status.Value("RUNNING"))
        self.nodes = [
            RayNode(node.node_id.hex(), dict(node.total_resources), node.status == idle)
            for node in state.node_states
            if node.labels.get(LABEL_ROLE) == "worker" and node.status in at_work
        ]
        asked = [(each.request, each.count) for each in state.pending_resource_requests]
        asked += [(each, 1) for gang in state.pending_gang_resource_requests for each in gang.requests]
        self.waiting = [(tuple(request.resources_bundle.items()), count) for request, count in asked]


def build_token(key: bytes, job_uid: str) -> str:
    """Return the token of a job's Ray: who has the keys of the pool's namespace can tell it."""
    return hmac.new(key, job_uid.encode(), hashlib.sha256).hexdigest()


def build_start(
    host: str, name: str, resources: Mapping[str, float], *, head: Address, role: str
) -> list[str]:
    """Return the arguments of `ray start` for a node with these resources; `head` is where the head is.

    A node at the head's own address is the head. All ports are fixed, and those that workers' processes get
    are a range.
    """
    where = [f"--address={head.authority}"]
    if head.host == host:
        where = ["--head", f"--port={head.port}", "--no-monitor"]
    named = {name: amount for name, amount in resources.items() if name not in ("CPU", "GPU", "memory")}
    limits = []
    if "memory" in resources:
        store = max(LEAST_STORE, int(resources["memory"] * MEMORY_SHARE))
        limits = [f"--memory={int(resources['memory'])}", f"--object-store-memory={store}"]
    return [
        "start",
        "--block",
        *where,
        f"--node-ip-address={host}",
        f"--node-name={name}",
        f"--labels={LABEL_ROLE}={role}",
        f"--num-cpus={int(resources['CPU'])}",
        f"--num-gpus={int(resources.get('GPU', 0))}",
        f"--resources={json.dumps(named)}",
        *limits,
        f"--node-manager-port={PORTS.raylet}",
        f"--object-manager-port={PORTS.objects}",
        f"--runtime-env-agent-port={PORTS.runtime_env}",
        f"--dashboard-agent-listen-port={PORTS.agent}",
        f"--dashboard-agent-grpc-port={PORTS.agent_grpc}",
        f"--metrics-export-port={PORTS.metrics}",
        f"--min-worker-port={RAY_WORKER_PORTS[0]}",
        f"--max-worker-port={RAY_WORKER_PORTS[1]}",
        "--disable-usage-stats",
    ]


class _Node:
    """A node of Ray in this pod; `ray start` looks after its processes, and ends them with itself."""

    def __init__(self, host: str, head: Address, resources: Mapping[str, float], *, role: str) -> None:
        self.host = host
        self.head = head
        self.name = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        self._output: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the process
        drain = DRAIN_SECONDS if role == "worker" else 0
        arguments = build_start(host, self.name, resources, head=head, role=role)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", *arguments],
            env={**os.environ, "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": str(drain)},  # noqa: TID251
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    @property
    def runs(self) -> bool:
        """Whether its raylet is there; it ends by itself once it's drained."""
        return self._process.poll() is None and _answers(Address(host=self.host, port=PORTS.raylet))

    def wait(self, leaving: threading.Event) -> Any:
        """Wait until the head knows the node, and return the head's client; None: it's `leaving`.

        Raises `OSError` with what Ray says where it ends.
        """
        from ray.exceptions import RayError  # noqa: PLC0415 - of the job's image

        while not leaving.wait(LOOK_SECONDS):
            if self._process.poll() is not None:
                self._output.seek(0)
                raise OSError(f"Ray couldn't be started:\n{self._output.read()}")
            with contextlib.suppress(OSError, RayError):  # where Ray has ended, the next look finds why
                if self.runs and self.find(gcs := _connect(self.head)) is not None:
                    return gcs
        return None

    def find(self, gcs: Any) -> Any:
        """Return what the head knows of this node; None: nothing."""
        return next((each for each in gcs.get_all_node_info().values() if each.node_name == self.name), None)

    def end(self) -> None:
        """Let it finish what it runs, in time, and end it. What only it has, Ray computes again elsewhere."""
        self._process.terminate()
        try:
            self._process.wait(DRAIN_SECONDS + END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._output.close()

    def kill(self) -> None:
        """End it at once: without a head nothing can be drained. Ray's other processes notice, and end."""
        self._process.kill()
        self._process.wait()


class WorkerProgram:
    """A node of Ray in a worker's pod, from its first try to join until it ends."""

    def __init__(self, pool: PodPool, resources: Mapping[str, float], ready_port: int) -> None:
        self._pool = pool
        self._resources = resources
        self._known = ""
        self._leaving = threading.Event()
        self._readiness = ReadinessServer(Address(host=pool.objects.host, port=ready_port))

    def run(self) -> int:
        """Be a node until SIGTERM, until the head lets it go, or until the attempt is over."""
        from ray.exceptions import RayError  # noqa: PLC0415 - of the job's image

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._leaving.set())
        self._readiness.start()
        lost_since = time.monotonic()
        while not self._leaving.is_set():
            try:
                head = self._find()
                self._known = head.pod
                code = self._join(head.address)
                if code is not None:
                    return code
                lost_since = time.monotonic()
            except AttemptOverError as error:
                return report_end(error, EXIT_ATTEMPT_OVER)
            except (OSError, HeadUnknownError, ApiError, RayError) as error:
                _log.warning("not joined yet: %s", error)
                patience = PATIENCE if self._known else HEAD_SECONDS
                if time.monotonic() - lost_since > patience:
                    return report_end(error, EXIT_WORKER_LOST_HEAD)
            self._leaving.wait(LOOK_SECONDS)
        return 0

    def _join(self, head: Address) -> int | None:
        """Be a node of the head for as long as it is there; return the exit code, None to come back.

        Raises `OSError` where the head doesn't answer, `AttemptOverError` once its pod has ended.
        """
        theirs = _read_head_versions(_connect(head))
        if refused := build_refusal("ray", head=theirs, worker=_read_versions()):
            return report_end(PoolVersionError(refused), EXIT_WORKER_REFUSED)
        node = _Node(self._pool.objects.host, head, self._resources, role="worker")
        try:
            gcs = node.wait(self._leaving)
            self._readiness.ready = gcs is not None
            asked = time.monotonic()
            while node.runs:
                if self._leaving.wait(LOOK_SECONDS):
                    return 0
                if time.monotonic() - asked > ASK_SECONDS:
                    asked = time.monotonic()
                    if not _answers(head):
                        self._find()
            return 0 if gcs is None or _was_released(node.find(gcs)) else None
        except AttemptOverError:
            node.kill()
            raise
        finally:
            self._readiness.ready = False
            node.end()

    def _find(self) -> HeadPlace:
        return self._pool.find_head(known=self._known, seconds=ANSWER_SECONDS)


def _was_released(found: Any) -> bool:
    """Return whether the head has drained a node, since there is less work than workers."""
    if found is None:
        return False
    reasons = type(found.death_info)
    return bool(found.death_info.reason == reasons.Reason.Value("AUTOSCALER_DRAIN_IDLE"))


def main(
    arguments: list[str], environ: MutableMapping[str, str], *, ready_port: int = POOL_READY_PORT
) -> int:
    """Be what the first argument names; return the exit code, as Fray's own workers do: docs/exit-codes.md.

    `host` returns only where the command can't take its place. It adds where Ray is to `environ`.
    """
    role, *command = arguments or [""]
    if role not in ("host", "worker", "demand") or bool(command) != (role == "host"):
        sys.stderr.write("usage: python -m fray.job.ray_pods host COMMAND... | worker | demand\n")
        return EXIT_USAGE
    try:
        check_installed(IN_PODS)
        pool = PodPool.from_env(environ)
        if role == "demand":
            asyncio.run(_ask_for_workers(pool, environ))
            return 0
        _write_token(pool, environ)
        if role == "host":
            return _be_host(pool, environ, command)
        return WorkerProgram(pool, build_resources(dict(read_offer(environ))), ready_port).run()
    except (FrayError, OSError) as error:
        return report_end(error, EXIT_FAILURE)


def _be_host(pool: PodPool, environ: MutableMapping[str, str], command: Sequence[str]) -> int:
    """Start what a rank has of Ray, and become its program; return the exit code where that can't be.

    Ray's processes run beside the program, and end with the container.
    """
    host = pool.objects.host
    first = Identity.from_env(environ).rank == 0
    head = Address(host=host, port=pool.port) if first else _await_head(pool)
    gcs = _start_host(host, head)
    if first:
        gcs.internal_kv_put(VERSIONS, json.dumps(_read_versions()).encode(), True, NAMESPACE)
        if ScaleLimits.from_env(environ) is not None:
            subprocess.Popen([sys.executable, "-m", "fray.job.ray_pods", "demand"])
    environ[ENV_RAY_ADDRESS] = head.authority
    return become(command)


def _start_host(host: str, head: Address) -> Any:
    """Start what a rank has of Ray; return the head's client. Raises `OSError` where Ray can't be started.

    It is tried again: on a busy machine Ray gives up after 15 to 30 s, which can't be set.
    """
    for left in reversed(range(START_TRIES)):
        try:
            return _Node(host, head, {"CPU": 0, "TPU": 0}, role="host").wait(threading.Event())
        except OSError as error:
            if not left:
                raise
            _log.warning("%s", error)
    raise AssertionError("no try")


def _await_head(pool: PodPool) -> Address:
    """Return where the head is once it answers; raises what `PodPool.find_head` raises."""
    deadline = time.monotonic() + HEAD_SECONDS
    while True:
        head = pool.find_head(seconds=max(0.0, deadline - time.monotonic())).address
        if _answers(head):
            return head
        time.sleep(LOOK_SECONDS)


async def _ask_for_workers(pool: PodPool, environ: Mapping[str, str]) -> None:
    """Keep the job's scale at what there is work for, until the container ends."""
    from ray.exceptions import RayError  # noqa: PLC0415 - of the job's image

    limits, access = ScaleLimits.from_env(environ), ApiAccess.in_pod(environ)
    if limits is None or access is None:
        return
    workload = RayWorkload(_connect(Address(host=pool.objects.host, port=pool.port)))
    scaling = Scaling(
        asyncio.get_running_loop(), workload, limits=limits, scale=JobScale.from_env(environ, access)
    )
    scaling.start()
    while True:
        try:
            await asyncio.to_thread(workload.look)
        except RayError as error:
            _log.warning("Ray's head doesn't say what work there is: %s", error)
        await asyncio.sleep(LOOK_SECONDS)


def _connect(head: Address) -> Any:
    """Return a client of the head; raises `OSError` where it doesn't answer, or refuses the token."""
    # Ray itself would wait for half a minute.
    socket.create_connection((head.host, head.port), ANSWER_SECONDS).close()
    try:
        return import_module("ray._raylet").GcsClient(address=head.authority)
    except import_module("ray.exceptions").RayError as error:
        raise OSError(f"Ray's head at {head.authority} doesn't answer: {error}") from error


def _answers(address: Address) -> bool:
    try:
        socket.create_connection((address.host, address.port), ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


def _read_head_versions(gcs: Any) -> Versions:
    """Return what the head has; raises `OSError` before it has said so."""
    told = gcs.internal_kv_get(VERSIONS, NAMESPACE)
    if told is None:
        raise OSError("the head isn't ready")
    return Versions(*json.loads(told))


def _read_versions() -> Versions:
    # Ray compares Python to the last digit.
    return Versions(platform.python_version(), version("ray"), Stamp.here().fray)


def _write_token(pool: PodPool, environ: Mapping[str, str]) -> None:
    """Write the token where all processes of this container look for it."""
    token = build_token((pool.key / PRIVATE_KEY_FILE).read_bytes(), environ[ENV_JOB_UID])
    path = Path(environ[ENV_RAY_TOKEN_PATH])
    path.touch(mode=0o600)
    path.write_text(token)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))  # noqa: TID251 - the entry of the process
