"""Actors' pods on this machine: real processes over TLS, an API server that keeps objects, and no operator.

Nothing of the programs is replaced but how they reach the API server, and which ports they listen on.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fray.job import member_engine, named_actors
from fray.kube.resources import CONFIG_MAPS, FRAYACTORS, FRAYJOBS, SECRETS
from fray.runtime.api.client import ApiAccess
from tests.actors.forwarding_cluster import ForwardingCluster
from tests.fake_pods import access_of_pod
from tests.free_ports import free_port
from tests.pool.hosts.pools import PATIENCE, ROOT, wait_until

__all__ = ["Cluster", "Pod", "await_no_connection", "hosting", "running_cluster"]

_IN_POD = """
import os, sys
from pathlib import Path
from fray.runtime.api.client import ApiAccess
access = ApiAccess(os.environ["TEST_API"], "ml", Path(os.environ["TEST_TOKEN"]))
ApiAccess.in_pod = classmethod(lambda cls, environ: access)
"""
_POD = """
from fray.runtime.actors.pod import main
sys.exit(main(port=int(os.environ["TEST_PORT"]), ready_port=int(os.environ["TEST_READY_PORT"])))
"""

_HOST = """
from fray.job import host_actor
from tests.actors.programs import Counter
hosted = host_actor(Counter, 5, name="counter")
print("served", flush=True)
sys.stdin.read()
"""


@dataclass
class Pod:
    """A pod of an actor."""

    process: subprocess.Popen[bytes]
    ready_port: int
    port: int

    @property
    def is_ready(self) -> bool:
        """What the kubelet's probe finds."""
        url = f"http://127.0.0.1:{self.ready_port}/ready"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except OSError:
            return False

    def await_ready(self) -> None:
        """Return once its actor's constructor has returned."""
        wait_until(lambda: self.is_ready)

    def terminate(self) -> int:
        """End it as a kubelet does that has been asked to; return its exit code."""
        self.process.terminate()
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """End it as a lost node does: all of its processes, at once and without a word."""
        from fray.runtime.pool.host.processes import signal_group  # noqa: PLC0415

        signal_group(self.process.pid, 9)
        self.process.wait(PATIENCE)


@dataclass
class Cluster:
    """A namespace `ml` with the job `train`, whose process the test is."""

    api: ForwardingCluster
    key: Path
    folder: Path
    pods: list[Pod] = field(default_factory=list)

    def environ(self) -> dict[str, str]:
        """The variables of a job's process."""
        return {
            "FRAY_JOB_NAME": "train",
            "FRAY_ROOT_JOB": "train",
            "FRAY_POOL_KEY": str(self.key),
            "FRAY_POOL_OBJECTS": "tcp:127.0.0.1:0",
            "FRAY_POD_NAME": "train-0",
            "FRAY_POD_UID": "pod-1",
        }

    @property
    def root_uid(self) -> str:
        """The uid of the job."""
        job = self.api.find(FRAYJOBS, "train")
        assert job is not None
        return str(job["metadata"]["uid"])

    def actor(self, label: str) -> dict[str, Any]:
        """Return the FrayActor that users call so."""
        (found,) = [each for each in self.api.all(FRAYACTORS) if each["spec"]["name"] == label]
        return found

    def record(self, label: str) -> dict[str, str]:
        """Return what the member of an actor tells."""
        record = self.api.find(CONFIG_MAPS, f"{self.actor(label)['metadata']['name']}-0")
        assert record is not None
        data: dict[str, str] = record["data"]
        return data

    def start_pod(self, label: str, **more: str) -> Pod:
        """Start the pod of an actor, as the operator's StatefulSet does."""
        actor = self.actor(label)
        given = actor["spec"]["entrypoint"]["callable"]
        payload = self.folder / uuid.uuid4().hex
        payload.mkdir()
        for name in (given["secretName"], *given.get("moreSecrets", ())):
            secret = self.api.find(SECRETS, name)
            assert secret is not None
            for key, value in secret["data"].items():
                (payload / key).write_bytes(base64.b64decode(value))
        port, ready_port = free_port(), free_port()
        variables = {
            "FRAY_ACTOR_NAME": actor["metadata"]["name"],
            "FRAY_ACTOR_LABEL": label,
            "FRAY_ACTOR_UID": actor["metadata"]["uid"],
            "FRAY_ACTOR_INDEX": "0",
            "FRAY_ACTOR_POD_UID": str(uuid.uuid4()),
            "FRAY_ACTOR_PAYLOAD": str(payload),
            "FRAY_ACTOR_PAYLOAD_SHA256": given["sha256"],
            "FRAY_ACTOR_PAYLOAD_PYTHON": given["python"],
            "FRAY_POD_IP": "127.0.0.1",
            "FRAY_POOL_KEY": str(self.key),
            "FRAY_POOL_OBJECTS": "tcp:127.0.0.1:0",
            "TEST_PORT": str(port),
            "TEST_READY_PORT": str(ready_port),
        }
        if "maxConcurrency" in actor["spec"]:
            variables["FRAY_ACTOR_MAX_CONCURRENCY"] = str(actor["spec"]["maxConcurrency"])
        process = self.start_program(_POD, {**variables, **more}, process_group=0)
        self.pods.append(Pod(process, ready_port, port))
        return self.pods[-1]

    def start_slice(self, label: str, *, hosts: int = 2) -> list[Pod]:
        """Start the pods of an actor whose member is on several hosts, as the operator's JobSet does."""
        port = free_port()
        shared = {
            "FRAY_HOSTS_PER_SLICE": str(hosts),
            "FRAY_COORDINATOR_ADDRESS": "127.0.0.1:8482",
            "TEST_PORT": str(port),
        }
        return [
            self.start_pod(label, FRAY_HOST=str(host), FRAY_POD_NAME=f"member-0-{host}", **shared)
            for host in range(hosts)
        ]

    def start_program(
        self, code: str, variables: Mapping[str, str], *, packages: str = "", **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a program as in a pod: it has the API server, and of Fray's variables only these.

        With a folder of `packages` it has no others than those and the standard library.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FRAY_")}
        known = access_of_pod(self.api)
        access = {"TEST_API": known.url, "TEST_TOKEN": str(known.token_file)}
        bare, first = (["-I", "-S"], f"import sys\nsys.path.append({packages!r})\n") if packages else ([], "")
        command = [sys.executable, *bare, "-c", first + _IN_POD + code]
        return subprocess.Popen(command, cwd=ROOT, env={**kept, **access, **variables}, **options)

    def close(self) -> None:
        """End all pods."""
        for pod in self.pods:
            pod.process.terminate()
        for pod in self.pods:
            pod.process.wait(PATIENCE)


@contextmanager
def hosting(cluster: Cluster, uid: str = "pod-2", **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the job that hosts a counter until its stdin ends."""
    pod = {**cluster.environ(), "FRAY_POD_NAME": f"train-{uid}", "FRAY_POD_UID": uid, **more}
    process = cluster.start_program(_HOST, pod, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"served\n"
            yield process
        finally:
            process.kill()


def await_no_connection() -> None:
    """Return once this process is connected to no member of an actor.

    A server ends a moment after the actor's process, and what has ended is learnt of a call's ref until then.
    """
    wait_until(lambda: all(engine.closed for engine in member_engine._engines.values()))


@contextmanager
def running_cluster(key: Path, folder: Path) -> Iterator[Cluster]:
    """Let this process be that of the job `train` in a cluster; `key` is the namespace's."""
    job = {"kind": "FrayJob", "metadata": {"name": "train"}, "spec": {"environment": {"image": "train:1"}}}
    with ForwardingCluster(namespace="ml") as api, pytest.MonkeyPatch.context() as patch:
        api.store(FRAYJOBS, job)
        access = access_of_pod(api)
        patch.setattr(ApiAccess, "in_pod", lambda _: access)
        named_actors.find_pod_reach.cache_clear()
        made = Cluster(api, key, folder)
        for name, value in made.environ().items():
            patch.setenv(name, value)
        try:
            yield made
        finally:
            made.close()
            for engine in member_engine._engines.values():
                engine.client.close()
            member_engine._engines.clear()
            named_actors.find_pod_reach.cache_clear()
