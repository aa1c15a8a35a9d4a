"""How much memory the operator takes among objects that are large, or many: `python -m ... pods`.

A real API server is filled, then the operator is started as the process that it is in a pod. Its peak
resident memory is printed, once every object is known and no pass is due. `pods` are 100 of 1.3 MB with a
FrayJob's label in somebody else's namespace, `frayjobs` 100 FrayJobs of 1.3 MB, `gang` the 2,304 pods of
one job, and `live 10000` so many jobs of ten pods each, copies of one that run when the operator starts.
Those are written into the API server's etcd: by its own API they would need 24 requests a job.
"""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import secrets
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import yaml

from e2e.cluster.build import CONTROL_PLANE, build, module_source
from e2e.cluster.controlplane import ControlPlane
from e2e.scale.copies import Copy, Original, build_job
from e2e.scale.counters import Progress, parse_progress
from fray.kube.resources import FRAYJOBS, JOBSETS, PODS, Resource
from fray.vocabulary import LABEL_JOB
from tests.integration.controller.hands import Hands, Manifest, eventually
from tests.integration.controller.operator_subprocess import OperatorSubprocess, reserved_port
from tests.integration.frayjobs import CRD_COLLECTION, await_served

CRDS = Path(__file__).parents[3] / "crds"
COUNT, SIZE = 100, 1_300_000
HOSTS = 10
NODES = 1000
MOST_PUTS = 128
"""Of one transaction of etcd, by its default."""
GANG = "tpu7x-16x16x36"
IDLE = 'fray_queued_objects{kind="FrayJob"} 0.0'
"""A line of /metrics."""
OURS, OTHERS = "ours", "others"


def main() -> None:
    """Print the peak resident memory of an operator in MiB, in the situation that was asked for."""
    with start_server() as plane, tempfile.TemporaryDirectory() as folder:
        if sys.argv[1] == "live":
            measure_live(plane, Path(folder), int(sys.argv[2]))
        else:
            measure_restart(plane, Path(folder), sys.argv[1])


@contextmanager
def start_server() -> Iterator[ControlPlane]:
    """Run an API server that has the CRDs of Fray and JobSet, and two namespaces."""
    with ControlPlane(build(CONTROL_PLANE)) as plane:
        api = plane.api()
        jobset = module_source("jobset") / "charts/jobset/crds/jobset.x-k8s.io_jobsets.yaml"
        for path in (*sorted(CRDS.glob("*.yaml")), jobset):
            crd = yaml.safe_load(path.read_text(encoding="utf-8"))
            assert api.post(CRD_COLLECTION, crd).ok
            await_served(api, f"{CRD_COLLECTION}/{crd['metadata']['name']}")
        for namespace in (OURS, OTHERS):
            assert api.post("/api/v1/namespaces", {"metadata": {"name": namespace}}).ok
        yield plane


@contextmanager
def run_operator(plane: ControlPlane, folder: Path, name: str) -> Iterator[OperatorSubprocess]:
    """Run an operator as the process that it is in a pod."""
    with (
        reserved_port() as port,
        OperatorSubprocess(
            plane.kubeconfig, folder, name=name, port=port, FRAY_LEASE_NAMESPACE=OURS
        ) as operator,
    ):
        yield operator
        assert operator.process.poll() is None, operator.log


def measure_restart(plane: ControlPlane, folder: Path, what: str) -> None:
    """Print what an operator takes while objects come, and another one that finds them there."""
    fill = {"pods": fill_with_pods, "frayjobs": fill_with_frayjobs, "gang": fill_with_a_gang}[what]
    ours, others = Hands(plane.api(), OURS), Hands(plane.api(), OTHERS)
    peaks = []
    for run in ("first", "again"):
        with run_operator(plane, folder, run) as operator:
            if run == "first":
                fill(ours, others)
            # The last in every list: all others are known when its pass comes.
            ours.submit(f"last-{run}")
            ours.await_jobset(f"last-{run}-a1")
            eventually(lambda: IDLE in operator.fetch("/metrics")[1], told=lambda: operator.log)
            peaks.append(read_memory(operator.process.pid, "VmHWM"))
    print(f"{what}: peak {peaks[0]:.0f} MiB while they came, {peaks[1]:.0f} MiB after a restart")


def measure_live(plane: ControlPlane, folder: Path, count: int) -> None:
    """Print what an operator takes that starts over so many jobs of ten pods each."""
    ours = Hands(plane.api(), OURS)
    with run_operator(plane, folder, "first"):
        ours.submit("original", replicas=HOSTS)
        ours.run_all(ours.await_jobset("original-a1"))
        ours.await_phase("original", "Running")
    jobset = ours.await_jobset("original-a1")
    original = Original(ours.job("original"), jobset, ours.pods_of(jobset))
    begun = time.monotonic()
    write_objects(plane, build_copies(original, count - 1))
    print(f"written in {time.monotonic() - begun:.0f} s", flush=True)
    with run_operator(plane, folder, "again") as operator:
        begun, progress = time.monotonic(), list[Progress]()
        while not (progress and progress[-1].has_seen_all(count)):
            assert operator.process.poll() is None, operator.log
            time.sleep(1.0)
            progress.append(parse_progress(operator.fetch("/metrics")[1]))
        seconds = time.monotonic() - begun
        peak, now = (read_memory(operator.process.pid, kind) for kind in ("VmHWM", "VmRSS"))
    pods = f"{count:,} live jobs with {count * HOSTS:,} pods"
    print(f"{pods}: all seen after {seconds:.0f} s, peak {peak:.0f} MiB, then {now:.0f} MiB")


def build_copies(original: Original, count: int) -> Iterator[tuple[Resource, Manifest]]:
    """Yield the copies of a job as an API server keeps them, each followed by all that belongs to it."""

    def complete(manifest: Manifest) -> Manifest:
        of_server = {"uid": str(uuid.uuid4()), "generation": 1, "creationTimestamp": created}
        return {**manifest, "metadata": {**manifest["metadata"], **of_server}}

    created = original.job["metadata"]["creationTimestamp"]
    for number in range(count):
        job = complete(build_job(original, f"copy-{number:05}"))
        copy = Copy(original, job)
        jobset = complete(copy.build_jobset())
        yield FRAYJOBS, {**job, "status": copy.build_status()}
        yield JOBSETS, jobset
        for pod in copy.build_pods(jobset, node=f"node-{number % NODES}"):
            yield PODS, complete(pod)


def write_objects(plane: ControlPlane, objects: Iterator[tuple[Resource, Manifest]]) -> None:
    """Write objects into etcd as its API server does, which sees them as it sees those of another replica.

    It writes its own kinds packed, and reads JSON as well:
    https://kubernetes.io/docs/concepts/overview/kubernetes-api/#serialization-formats
    """
    etcd = http.client.HTTPConnection("etcd")
    # As http.client would, but to the path on which etcd listens.
    etcd.sock = socket.socket(socket.AF_UNIX)
    etcd.sock.connect(str(plane.endpoint.directory / "client:1"))
    while batch := list(itertools.islice(objects, MOST_PUTS)):
        puts = [{"requestPut": {"key": pack(key), "value": pack(value)}} for key, value in map(encode, batch)]
        # https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/
        etcd.request("POST", "/v3/kv/txn", json.dumps({"success": puts}))
        answer = etcd.getresponse()
        told = answer.read()
        assert answer.status == 200, told
    etcd.close()


def encode(written: tuple[Resource, Manifest]) -> tuple[str, str]:
    """Return an object's key in etcd, and what stands there."""
    resource, manifest = written
    metadata = manifest["metadata"]
    parts = ("registry", resource.group, resource.plural, metadata["namespace"], metadata["name"])
    return "/" + "/".join(part for part in parts if part), json.dumps(manifest)


def pack(text: str) -> str:
    """Return text as etcd's JSON has bytes."""
    return base64.b64encode(text.encode()).decode()


def read_memory(pid: int, kind: str) -> float:
    """Return the resident memory of a process in MiB: its peak (VmHWM), or that of now (VmRSS)."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith(f"{kind}:"))
    return int(line.split()[1]) / 1024


def many(create: Callable[[int], None]) -> None:
    """Do this for each of so many large objects."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(create, range(COUNT)))


def fill_with_pods(_ours: Hands, others: Hands) -> None:
    """Make pods that only look like ones of a FrayJob."""

    def create(number: int) -> None:
        metadata = {"name": f"pod-{number}", "labels": {LABEL_JOB: "x"}}
        env = [{"name": "MUCH", "value": "x" * SIZE}]
        spec = {"containers": [{"name": "main", "image": "none", "env": env}]}
        made = others.api.post(f"{others.core}/pods", {"metadata": metadata, "spec": spec})
        assert made.ok, made.body

    many(create)


def fill_with_frayjobs(_ours: Hands, others: Hands) -> None:
    """Make FrayJobs that are as large as they may be."""

    def create(number: int) -> None:
        env = [{"name": "MUCH", "value": secrets.token_urlsafe(SIZE * 3 // 4)}]
        template = {"spec": {"containers": [{"name": "main", "env": env}]}}
        others.submit(f"job-{number}", podTemplate=template, suspend=True)

    many(create)


def fill_with_a_gang(ours: Hands, _others: Hands) -> None:
    """Make one job, and all pods of its hosts."""
    ours.submit("gang", resources={"tpu": {"type": GANG}})
    ours.run_all(ours.await_jobset("gang-a1"))


if __name__ == "__main__":
    main()
