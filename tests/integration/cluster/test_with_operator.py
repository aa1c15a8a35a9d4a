"""Client and operator together, from launch to outcome; the test plays JobSet and the kubelet."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster.controlplane import ControlPlane
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes import KubernetesCluster
from fray.errors import JobFailedError
from fray.payload.outcome import outcome_name
from fray.types import Entrypoint, JobId, JobRequest, JobStatus
from fray.vocabulary import OUTCOME_KEY
from tests.integration.cluster.jobs import Background, command, decoded
from tests.integration.controller.conftest import (
    admin,
    hands,
    kubeconfig,
    new_hands,
    operator,
    settings_for,
)
from tests.integration.controller.hands import Hands, Manifest
from tests.integration.controller.operator_thread import OperatorThread

__all__ = ["admin", "hands", "kubeconfig", "new_hands", "operator", "settings_for"]


@pytest.fixture
def cluster(hands: Hands, control_plane: ControlPlane) -> Iterator[KubernetesCluster]:
    spec = KubernetesSpec(namespace=hands.namespace)
    with KubernetesCluster(spec, environ={"KUBECONFIG": str(control_plane.kubeconfig)}) as made:
        yield made


def run_payload(hands: Hands, job: JobId, pod: Manifest, directory: Path) -> None:
    """Do what the kubelet and the pod's process do with a callable: mount, run, keep the outcome, tell."""
    manifest = hands.job(job)
    asked = manifest["spec"]["entrypoint"]["callable"]
    place, told, kept = directory / "payload", directory / "termination-log", directory / "outcome"
    place.mkdir()
    told.touch()
    for name in (asked["secretName"], *asked.get("moreSecrets", [])):
        for key, data in decoded(hands.api.get(f"{hands.core}/secrets/{name}").body).items():
            (place / key).write_bytes(data)
    runner = [sys.executable, "-m", "fray.runtime.callable_runner", str(place), "--sha256", asked["sha256"]]
    options = ["--python", asked["python"], "--outcome", str(kept), "--termination-log", str(told)]
    ended = subprocess.run([*runner, *options], check=False, capture_output=True)
    if kept.exists():
        name = outcome_name(job_uid=manifest["metadata"]["uid"], attempt=1, rank=0)
        data = {OUTCOME_KEY: base64.b64encode(kept.read_bytes()).decode()}
        body = {"metadata": {"name": name}, "binaryData": data}
        assert hands.api.post(f"{hands.core}/configmaps", body).ok
    hands.exit(pod, ended.returncode, message=told.read_text(encoding="utf-8"))


def start(hands: Hands, job: JobId) -> tuple[Manifest, Manifest]:
    jobset = hands.await_jobset(f"{job}-a1")
    (pod,) = hands.run_all(jobset)
    return jobset, pod


def test_an_exception_reaches_its_launcher(
    cluster: KubernetesCluster, hands: Hands, operator: OperatorThread, tmp_path: Path
) -> None:
    def divide(number: int) -> float:
        return 1 / number

    job = cluster.launch(JobRequest(name="divide", entrypoint=Entrypoint.from_callable(divide, [0])))
    waiting = Background(lambda: cluster.wait(job, raise_on_failure=True))
    jobset, pod = start(hands, job)
    run_payload(hands, job, pod, tmp_path)
    hands.fail(jobset)
    hands.collect_until(lambda: cluster.poll(job).status is JobStatus.FAILED)
    with pytest.raises(JobFailedError, match="NonZeroExit") as caught:
        waiting.result()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "in divide" in str(caught.value.__cause__.__cause__)


def test_a_value_reaches_its_launcher(
    cluster: KubernetesCluster, hands: Hands, operator: OperatorThread, tmp_path: Path
) -> None:
    job = cluster.launch(
        JobRequest(name="add", entrypoint=Entrypoint.from_callable(lambda *terms: sum(terms), [1, 2, 3]))
    )
    jobset, pod = start(hands, job)
    assert hands.await_phase(job, "Running")
    assert cluster.poll(job).status is JobStatus.RUNNING
    run_payload(hands, job, pod, tmp_path)
    hands.complete(jobset)
    assert cluster.wait(job).status is JobStatus.SUCCEEDED
    outcome = cluster.outcome(job)
    assert outcome is not None
    assert outcome.result() == 6


def test_terminate_ends_a_job_that_runs(
    cluster: KubernetesCluster, hands: Hands, operator: OperatorThread
) -> None:
    job = cluster.launch(command())
    start(hands, job)
    cluster.terminate(job)
    hands.collect_until(lambda: cluster.poll(job).status is JobStatus.STOPPED)
    assert cluster.wait(job).reason == "StopRequested"


def test_a_job_whose_launcher_died_before_its_secret_shows_what_it_waits_for(
    cluster: KubernetesCluster, hands: Hands, operator: OperatorThread
) -> None:
    spec = {"callable": {"secretName": "lost", "sha256": "0" * 64, "python": "3.11"}}
    hands.submit("orphan", entrypoint=spec, timeouts={"pendingSeconds": 1})
    jobset = hands.await_jobset("orphan-a1")
    (pod,) = hands.create_pods(jobset)
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == "payload"]
    assert not volume["secret"].get("optional", False)  # the kubelet starts nothing without it
    hands.bind(pod)
    hands.collect_until(lambda: cluster.poll(JobId("orphan")).status is JobStatus.FAILED)
    assert cluster.poll(JobId("orphan")).reason == "PendingTimeout"
