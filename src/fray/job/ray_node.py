"""A node of Ray in a pod: how it is started and ended, what the head knows of it, and who may connect.

Ray is that of the job's image, and each of its ports is one of the pool's.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from fray.job.engine_pods import ANSWER_SECONDS, Versions
from fray.payload.stamp import Stamp
from fray.runtime.pool.messages.specs import Shape
from fray.runtime.pool.objects.directories import MEMORY_SHARE
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.worker_pod import DRAIN_SECONDS
from fray.vocabulary import LABEL_ROLE, POOL_OBJECT_PORTS, RAY_WORKER_PORTS

__all__ = [
    "LOOK_SECONDS",
    "NodeProcess",
    "Ports",
    "answers",
    "build_start",
    "build_token",
    "connect",
    "read_head_versions",
    "read_offer_here",
    "read_versions",
    "was_released",
    "write_head_versions",
    "write_offer",
    "write_token",
]

LOOK_SECONDS: Final = 0.5
"""Between two looks whether Ray's processes are there."""
END_SECONDS: Final = 3.0
"""How long Ray's processes may take to end, besides what they are given to drain."""
START_MODULE: Final = "fray.job.ray_start_node"
LEAST_STORE: Final = 80_000_000
"""Ray refuses a store for objects that is smaller."""
NAMESPACE: Final = b"fray"
VERSIONS: Final = b"versions"
"""In the head's key-value store: what the head has, as JSON. It's written once the head is there."""
OFFER: Final = b"offer"
"""There too: what each worker of the job offers, as JSON. Only pods of workers and who asks for them know."""


class Ports(NamedTuple):
    """Of Ray's processes in one pod."""

    raylet: int
    objects: int
    runtime_env: int
    agent: int
    agent_grpc: int
    metrics: int


PORTS = Ports(*range(POOL_OBJECT_PORTS[0], POOL_OBJECT_PORTS[0] + len(Ports._fields)))


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


class NodeProcess:
    """A node of Ray in this pod; `ray start` looks after its processes, and ends them with itself."""

    def __init__(self, host: str, head: Address, resources: Mapping[str, float], *, role: str) -> None:
        self.host = host
        self.head = head
        self.name = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        self._id = ""
        """What the head calls it, once it knows it."""
        self._output: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the process
        drain = DRAIN_SECONDS if role == "worker" else 0
        arguments = build_start(host, self.name, resources, head=head, role=role)
        self._process = subprocess.Popen(
            [sys.executable, "-m", START_MODULE, *arguments],
            env={**os.environ, "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": str(drain)},  # noqa: TID251
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    @property
    def runs(self) -> bool:
        """Whether its raylet is there; it ends by itself once it's drained."""
        return self._process.poll() is None and answers(Address(host=self.host, port=PORTS.raylet))

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
                if self.runs and (found := self.find(gcs := connect(self.head))) is not None:
                    self._id = found.node_id.hex()
                    return gcs
        return None

    def find(self, gcs: Any) -> Any:
        """Return what the head knows of this node; None: nothing."""
        return next((each for each in gcs.get_all_node_info().values() if each.node_name == self.name), None)

    def is_draining(self, gcs: Any) -> bool:
        """Return whether the head gives it nothing new any more; one that doesn't answer hasn't said so."""
        from ray.exceptions import RayError  # noqa: PLC0415 - of the job's image

        with contextlib.suppress(RayError):
            return self._id in gcs.get_draining_nodes(timeout=ANSWER_SECONDS)
        return False

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


def was_released(found: Any) -> bool:
    """Return whether the head has drained a node, since there are more workers than asked for."""
    if found is None:
        return False
    drained = ("AUTOSCALER_DRAIN_IDLE", "AUTOSCALER_DRAIN_PREEMPTED")
    return type(found.death_info).Reason.Name(found.death_info.reason) in drained


def connect(head: Address) -> Any:
    """Return a client of the head; raises `OSError` where it doesn't answer, or refuses the token."""
    # Ray itself would wait for half a minute.
    socket.create_connection((head.host, head.port), ANSWER_SECONDS).close()
    try:
        return import_module("ray._raylet").GcsClient(address=head.authority)
    except import_module("ray.exceptions").RayError as error:
        raise OSError(f"Ray's head at {head.authority} doesn't answer: {error}") from error


def answers(address: Address) -> bool:
    """Return whether anybody listens there."""
    try:
        socket.create_connection((address.host, address.port), ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


def write_head_versions(gcs: Any) -> None:
    """Say that the head is there, and what it has."""
    gcs.internal_kv_put(VERSIONS, json.dumps(read_versions()).encode(), True, NAMESPACE)


def read_head_versions(gcs: Any) -> Versions:
    """Return what the head has; raises `OSError` before it has said so."""
    written = gcs.internal_kv_get(VERSIONS, NAMESPACE)
    if written is None:
        raise OSError("the head isn't ready")
    return Versions(*json.loads(written))


def write_offer(gcs: Any, offered: Shape) -> None:
    """Say what each worker of the job offers, where its spec says it."""
    if offered:
        gcs.internal_kv_put(OFFER, json.dumps(dict(offered)).encode(), True, NAMESPACE)


def read_offer_here() -> dict[str, float]:
    """Return what each worker of this process's Ray offers; empty: nobody has said so, or it is of no job."""
    told = import_module("ray.experimental.internal_kv")._internal_kv_get(OFFER, namespace=NAMESPACE)
    return {} if told is None else json.loads(told)


def read_versions() -> Versions:
    """Return what this pod has."""
    # Ray compares Python to the last digit.
    return Versions(platform.python_version(), version("ray"), Stamp.here().fray)


def build_token(key: bytes, job_uid: str) -> str:
    """Return the token of a job's Ray: who has the keys of the pool's namespace can tell it."""
    return hmac.new(key, job_uid.encode(), hashlib.sha256).hexdigest()


def write_token(token: str, path: Path) -> None:
    """Write the token where all processes of this pod look for it, unless one is there already.

    That one is of the pod's first start, and Ray's head knows no other: keys may have been replaced since.
    Another container of the pod may write at the same time.
    """
    own = path.with_name(f"{path.name}-{uuid.uuid4().hex}")
    own.touch(mode=0o600)
    own.write_text(token)
    with contextlib.suppress(FileExistsError):
        path.hardlink_to(own)
    own.unlink()
