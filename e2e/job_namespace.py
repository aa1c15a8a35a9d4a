"""A namespace in which one test runs its FrayJobs, with the job account that the chart gives one.

Everything is asked of the cluster through kubectl, as users do. What should come of a job is for tests to
say.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from e2e.cluster.command import await_condition
from e2e.cluster.errors import CommandError
from e2e.cluster.images import BUSYBOX_IMAGE
from e2e.cluster.paths import KUBECONFIG
from e2e.kubectl import REMOVE_SECONDS, Kubectl
from e2e.release import Release
from fray.vocabulary import (
    API_VERSION,
    CONTAINER,
    FRAYJOB_KIND,
    LABEL_ATTEMPT,
    LABEL_COMPLETION_INDEX,
    LABEL_JOB,
    LABEL_JOB_INDEX,
    LABEL_ROLE,
    Role,
)

__all__ = [
    "NAMESPACE_LABEL",
    "JobNamespace",
    "build_job",
    "build_shell",
    "open_job_namespace",
    "place",
    "remove_namespaces",
    "until_told",
]

NAMESPACE_LABEL = "fray.test/e2e=true"
"""On every namespace made by tests: by it, those of a run that was killed are found."""
FINISH_SECONDS = 180.0
WORKERS_SECONDS = 240.0
MADE_BY_CONTROLLERS = ("serviceaccount/default", "configmap/kube-root-ca.crt")
"""What every namespace gets a moment after it was created."""


def build_job(name: str, command: Sequence[str], **spec: Any) -> dict[str, Any]:
    """A FrayJob that runs `command`; `spec` are further fields of its spec."""
    return {
        "apiVersion": API_VERSION,
        "kind": FRAYJOB_KIND,
        "metadata": {"name": name},
        "spec": {"entrypoint": {"command": list(command)}, **spec},
    }


def build_shell(name: str, script: str, **spec: Any) -> dict[str, Any]:
    """A FrayJob that runs a shell script in an image without Python."""
    return build_job(name, ["sh", "-c", script], **({"environment": {"image": BUSYBOX_IMAGE}} | spec))


def until_told(*, then: str = "echo told; exit 0") -> str:
    """A script that runs until `JobNamespace.tell`, and then `then`; TERM ends it with 143."""
    # The process that wrote the file is waited for: a container that ends takes it along, and its
    # `kubectl exec` would fail.
    told = "test -s /tmp/go && ! test -e /proc/$(cat /tmp/go)"
    return f"trap 'exit 143' TERM; until {told}; do sleep 0.1; done; {then}"


def place(pod: dict[str, Any]) -> tuple[int, int]:
    """Index of a pod's slice and of its host within it."""
    labels = pod["metadata"]["labels"]
    return int(labels[LABEL_JOB_INDEX]), int(labels[LABEL_COMPLETION_INDEX])


@dataclass(frozen=True)
class JobNamespace:
    """One namespace; `kubectl` is about it."""

    kubectl: Kubectl

    @property
    def name(self) -> str:
        """Name of the namespace."""
        return self.kubectl.namespace

    def fray(self, *words: str) -> tuple[list[str], dict[str, str]]:
        """The words and variables of a command line of `fray` about this namespace."""
        environ = {
            **os.environ,
            "KUBECONFIG": str(KUBECONFIG),
            "FRAY_CLUSTER_SPEC": f"k8s?namespace={self.name}",
            "TERM": "xterm",
        }
        return [sys.executable, "-m", "fray.cli", *words], environ

    def submit(self, job: dict[str, Any]) -> None:
        """Apply a job. Raises CommandError when it is refused."""
        self.kubectl.apply(job)

    def job(self, name: str) -> dict[str, Any]:
        """A job as it is now. Raises CommandError."""
        found: dict[str, Any] = self.kubectl.get("frayjob", name)
        return found

    def condition(self, job: str, kind: str) -> dict[str, Any]:
        """A condition of a job; empty when it has none of the kind."""
        conditions: list[dict[str, Any]] = self.job(job).get("status", {}).get("conditions", [])
        return next((condition for condition in conditions if condition["type"] == kind), {})

    def await_job(self, job: str, until: str, *, seconds: float = FINISH_SECONDS) -> None:
        """Wait for what `kubectl wait --for` understands about a job. Raises CommandError."""
        self.kubectl.wait(f"frayjob/{job}", until, seconds=seconds)

    def await_reason(self, job: str, reason: str, *, seconds: float = FINISH_SECONDS) -> None:
        """Wait until the status of a job gives a reason. Raises CommandError."""
        self.await_job(job, f"jsonpath={{.status.reason}}={reason}", seconds=seconds)

    def await_end(self, job: str, *, seconds: float = FINISH_SECONDS) -> dict[str, Any]:
        """Wait until a job has finished; returns its status. Raises CommandError."""
        self.await_job(job, "condition=Finished", seconds=seconds)
        status: dict[str, Any] = self.job(job)["status"]
        return status

    def run(self, job: dict[str, Any], *, seconds: float = FINISH_SECONDS) -> dict[str, Any]:
        """Submit a job and wait until it has finished; returns its status. Raises CommandError."""
        self.submit(job)
        return self.await_end(job["metadata"]["name"], seconds=seconds)

    def pods(self, job: str, *, attempt: int = 1) -> list[dict[str, Any]]:
        """The hosts' pods of an attempt of a job, by slice and host."""
        selector = f"--selector={LABEL_JOB}={job},{LABEL_ATTEMPT}={attempt},{LABEL_ROLE}={Role.HOST}"
        return sorted(self.kubectl.items("pods", selector), key=place)

    def await_description(self, job: str, *words: str) -> str:
        """Wait until `kubectl describe` says all these words about a job; returns what it says, in one line.

        Events come after the status that they are about.
        """
        told = ""

        def says_all() -> bool:
            nonlocal told
            told = " ".join(self.kubectl("describe", "frayjob", job).split())
            return all(word in told for word in words)

        what = f"{job} is described with {', '.join(words)}"
        await_condition(what, says_all, timeout=FINISH_SECONDS, details=lambda: told)
        return told

    def workers(self, job: str) -> dict[str, Any]:
        """What the status of a job says of its workers."""
        told: dict[str, Any] = self.job(job).get("status", {}).get("workers") or {}
        return told

    def await_workers(
        self,
        job: str,
        what: str,
        test: Callable[[dict[str, Any]], bool],
        *,
        seconds: float = WORKERS_SECONDS,
    ) -> None:
        """Wait until the status of a job says this of its workers."""
        await_condition(
            f"workers of {job}: {what}",
            lambda: test(self.workers(job)),
            timeout=seconds,
            details=lambda: f"{self.workers(job)}\n{self.describe()}",
        )

    def await_events(self, job: str, reasons: set[str]) -> None:
        """Wait until the events about a job have exactly these reasons, each of them once."""

        def told() -> list[str]:
            about = [(event["reason"], event["involvedObject"]) for event in self.kubectl.items("events")]
            found = [reason for reason, it in about if (it["kind"], it["name"]) == (FRAYJOB_KIND, job)]
            return sorted(found)

        what = f"the events about {job} are {sorted(reasons)}"
        await_condition(
            what, lambda: told() == sorted(reasons), timeout=FINISH_SECONDS, details=lambda: str(told())
        )

    def logs(self, job: str, *, attempt: int = 1) -> list[str]:
        """What each pod of an attempt of a job has printed, by slice and host."""
        names = [pod["metadata"]["name"] for pod in self.pods(job, attempt=attempt)]
        return [self.kubectl("logs", name, f"--container={CONTAINER}") for name in names]

    def evict(self, pod: str) -> None:
        """Ask for the eviction of a pod, as `kubectl drain` does. Raises CommandError."""
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        path = f"/api/v1/namespaces/{self.name}/pods/{pod}/eviction"
        self.kubectl("create", f"--raw={path}", "--filename=-", stdin=json.dumps(eviction))

    def tell(self, job: str, *, attempt: int = 1) -> None:
        """End the script `until_told` in every pod of a running attempt."""
        for pod in self.pods(job, attempt=attempt):
            name = pod["metadata"]["name"]
            self.kubectl("exec", name, f"--container={CONTAINER}", "--", "sh", "-c", "echo $$ > /tmp/go")

    def describe(self) -> str:
        """Everything there is in the namespace, for people who look for the reason of a failure."""
        told = [
            self._try("describe", "frayjobs"),
            self._try("get", "jobsets,jobs,pods", "--output=wide"),
            self._try("get", "events", "--sort-by=.lastTimestamp"),
        ]
        try:
            pods = self.kubectl.items("pods")
        except CommandError as error:
            return "\n\n".join([*told, str(error)])
        for pod in pods:
            name = pod["metadata"]["name"]
            told.append(f"--- log of {name}\n{self._try('logs', name, '--all-containers', '--tail=30')}")
        return "\n\n".join(told)

    def remove(self) -> None:
        """Delete the namespace, and wait until no pod of it holds anything any more.

        The rest of it goes within seconds, by itself.
        """
        self.kubectl("delete", "namespace", self.name, "--ignore-not-found", "--wait=false")
        # Nothing new can come any more: what still runs needs no time to say goodbye.
        # kubectl deletes one after the other, and measurements leave thousands.
        now = ("--force", "--grace-period=0", "--wait=false")
        self.kubectl("delete", "pods", "--all", *now, seconds=REMOVE_SECONDS)
        self.kubectl.wait("pods", "delete", seconds=REMOVE_SECONDS, selector=f"{LABEL_JOB}")

    def _try(self, *words: str) -> str:
        try:
            return self.kubectl(*words)
        except CommandError as error:
            return str(error)


def remove_namespaces(kubectl: Kubectl) -> None:
    """Remove all namespaces of tests, and wait until they are gone. Raises CommandError."""
    kubectl("delete", "namespaces", f"--selector={NAMESPACE_LABEL}", "--timeout=300s", seconds=330)


@contextmanager
def open_job_namespace(kubectl: Kubectl, release: Release, *, account: bool = True) -> Iterator[JobNamespace]:
    """A new namespace for the length of a `with` block; without `account`, jobs have none to run under."""
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    space = JobNamespace(kubectl.within(name))
    kubectl("create", "namespace", name)
    kubectl("label", "namespace", name, NAMESPACE_LABEL)
    try:
        for thing in MADE_BY_CONTROLLERS:
            space.kubectl.wait(thing, "create", seconds=FINISH_SECONDS)
        if account:
            granted = release.render("jobs-rbac.yaml", f"--set=jobs.namespaces={{{name}}}")
            space.kubectl.apply(*yaml.safe_load_all(granted))
        yield space
    finally:
        space.remove()
