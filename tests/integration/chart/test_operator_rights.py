"""The operator does its work with the rights, the settings and the account that the chart gives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from fray_operator.auth_keys import OVERLAP_SECONDS, Step, derive_step, parse_keys
from tests.integration.chart.chart_cluster import CHART, Cluster, frayjob, jobs_in
from tests.integration.controller.operator_subprocess import reserved_port

DEADLINE_SECONDS = 120.0


class Operator:
    """The operator's process, running with what its pod would have."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process, self._log = process, log

    def until(self, what: str, probe: Callable[[], Any]) -> Any:
        """Return the probe's first true value."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (value := probe()):
            assert self._process.poll() is None, f"the operator ended:\n{self.log}"
            assert time.monotonic() < deadline, f"{what}: not in time\n{self.log}"
            time.sleep(0.05)
        return value

    @property
    def log(self) -> str:
        return self._log.read_text()

    def end(self) -> int:
        """Tell it to stop as the kubelet does; return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout=DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


@contextmanager
def running_operator(cluster: Cluster, folder: Path, *, namespace: str, name: str) -> Iterator[Operator]:
    """Start what the Deployment of an installation says, with a token of its account."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    pod = cluster.api.get(path).body["spec"]["template"]["spec"]
    downward = {"metadata.namespace": namespace, "metadata.name": f"{name}-0"}
    environ = {
        entry["name"]: downward[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        if "valueFrom" in entry
        else entry.get("value", "")  # the API server leaves out empty values
        for entry in pod["containers"][0]["env"]
    }
    folder.mkdir()
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(build_kubeconfig(cluster, namespace, pod["serviceAccountName"])))
    environ |= {"FRAY_HTTP_HOST": "127.0.0.1", "KUBECONFIG": str(kubeconfig)}
    environ |= {"PATH": os.environ["PATH"], "HOME": str(folder)}
    log = folder / "log"
    with reserved_port() as port:
        environ["FRAY_HTTP_PORT"] = str(port)
        with log.open("wb") as output:
            command = [sys.executable, "-m", "fray_operator"]
            process = subprocess.Popen(command, env=environ, stdout=output, stderr=output)
        operator = Operator(process, log)
        try:
            yield operator
        finally:
            operator.end()


def build_kubeconfig(cluster: Cluster, namespace: str, account: str) -> dict[str, Any]:
    endpoint = cluster.control_plane.endpoint
    authority = b64encode(endpoint.authority).decode()
    server = {"server": endpoint.url, "certificate-authority-data": authority}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "operator",
        "contexts": [{"name": "operator", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": server}],
        "users": [{"name": "u", "user": {"token": cluster.token(namespace, account)}}],
    }


def tpu_job(name: str) -> dict[str, Any]:
    job = frayjob(name)
    job["spec"]["resources"] = {"tpu": {"type": "v5p-8"}}
    return job


def jobset_of(cluster: Cluster, namespace: str, job: str) -> dict[str, Any] | None:
    listed = cluster.api.get(
        f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets", labelSelector=f"fray.dev/job={job}"
    )
    items: list[dict[str, Any]] = listed.body["items"]
    # Items of a list don't say what they are.
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", **items[0]} if items else None


def create_stuck_pod(cluster: Cluster, namespace: str, jobset: dict[str, Any]) -> None:
    """Make the pod that the controllers would have made, as the scheduler leaves one that fits nowhere."""
    (replicated,) = jobset["spec"]["replicatedJobs"]
    template = replicated["template"]["spec"]["template"]
    labels = {
        **template["metadata"]["labels"],
        "jobset.sigs.k8s.io/jobset-name": jobset["metadata"]["name"],
        "jobset.sigs.k8s.io/jobset-uid": jobset["metadata"]["uid"],
        "jobset.sigs.k8s.io/job-index": "0",
        "batch.kubernetes.io/job-completion-index": "0",
    }
    owner = {key: jobset[key] for key in ("apiVersion", "kind")}
    owner |= {"name": jobset["metadata"]["name"], "uid": jobset["metadata"]["uid"], "controller": True}
    metadata = {"name": f"{owner['name']}-0", "labels": labels, "ownerReferences": [owner]}
    created = cluster.api.post(
        f"/api/v1/namespaces/{namespace}/pods", {"metadata": metadata, "spec": template["spec"]}
    )
    assert created.status == 201, created.body
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.",
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{created.body['metadata']['name']}/status"
    assert cluster.api.merge(path, {"status": {"conditions": [condition]}}).ok


def fail_without_pods(cluster: Cluster, operator: Operator, namespace: str) -> None:
    """Have an attempt fail of which no pod is left, so that its Jobs are asked why."""
    cluster.api.post(jobs_in(namespace), tpu_job("gone"))
    jobset = operator.until("a JobSet is made", lambda: jobset_of(cluster, namespace, "gone"))
    ended = {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "one or more failed"}
    status = {"conditions": [{**ended, "lastTransitionTime": jobset["metadata"]["creationTimestamp"]}]}
    path = (
        f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets/{jobset['metadata']['name']}/status"
    )
    assert cluster.api.merge(path, {"status": status}).ok
    operator.until("it is told", lambda: condition_of(cluster, namespace, "gone", "Failed").get("status"))


def end_with_its_child(cluster: Cluster, operator: Operator, namespace: str) -> None:
    """Have a job end that launched another one, and its time come."""
    jobs = jobs_in(namespace)
    parent, child = tpu_job("launcher"), tpu_job("launched")
    parent["spec"] |= {"suspend": True}
    child["spec"] |= {"suspend": True, "parent": {"name": "launcher", "root": "launcher"}}
    for job in (parent, child):
        assert cluster.api.post(jobs, job).ok
    changed = {"stopped": True, "ttlSecondsAfterFinished": 0}
    assert cluster.api.merge(f"{jobs}/launcher", {"spec": changed}).ok
    told = operator.until(
        "the child is stopped", lambda: condition_of(cluster, namespace, "launched", "Stopped").get("message")
    )
    assert told == "its parent launcher was stopped"
    operator.until("the parent goes", lambda: is_going(cluster.api.get(f"{jobs}/launcher").body))


def await_keys(cluster: Cluster, operator: Operator, namespace: str) -> None:
    """Have a job come that may get workers: its pods need the keys of the namespace."""
    path = f"/api/v1/namespaces/{namespace}/secrets/fray-auth"
    assert cluster.api.get(path).status == 404, "jobs without workers need none"
    job = tpu_job("pooled")
    job["spec"] |= {"suspend": True, "workers": {"replicas": 0, "maxReplicas": 2}}
    assert cluster.api.post(jobs_in(namespace), job).ok
    secret = operator.until("the keys are made", lambda: (read := cluster.api.get(path)).ok and read.body)
    assert parse_keys(secret) is not None
    assert derive_step(secret, now=datetime.now(UTC), unchanged_seconds=OVERLAP_SECONDS) is Step.KEEP


def have_workers(cluster: Cluster, operator: Operator, namespace: str) -> None:
    """Have a job get workers, more of them, and be stopped."""
    job = tpu_job("worked-for")
    job["spec"]["workers"] = {"replicas": 1}
    path = f"{jobs_in(namespace)}/worked-for"
    workers = f"/apis/batch/v1/namespaces/{namespace}/jobs/worked-for-a1-w1"
    policy = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies/worked-for-pool"
    assert cluster.api.post(jobs_in(namespace), job).ok
    operator.until("workers are made", lambda: cluster.api.get(workers).ok)
    assert cluster.api.get(policy).ok
    assert cluster.api.merge(f"{path}/scale", {"spec": {"replicas": 3}}).ok
    operator.until("there are more", lambda: cluster.api.get(workers).body["spec"]["completions"] == 3)
    assert cluster.api.merge(path, {"spec": {"stopped": True}}).ok
    operator.until("hosts end", lambda: is_going(jobset_of(cluster, namespace, "worked-for")))
    # Nothing here collects what the JobSet's end waits for.
    jobset = jobset_of(cluster, namespace, "worked-for")
    if jobset is not None:
        jobsets = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets"
        name = jobset["metadata"]["name"]
        assert cluster.api.merge(f"{jobsets}/{name}", {"metadata": {"finalizers": None}}).ok
    operator.until("workers end", lambda: not (found := cluster.api.get(workers)).ok or is_going(found.body))


def condition_of(cluster: Cluster, namespace: str, job: str, kind: str) -> dict[str, Any]:
    status = cluster.api.get(f"{jobs_in(namespace)}/{job}").body.get("status", {})
    return next((c for c in status.get("conditions", []) if c["type"] == kind), {})


def events_about(cluster: Cluster, namespace: str, job: str) -> set[str]:
    fields = f"involvedObject.kind=FrayJob,involvedObject.name={job}"
    listed = cluster.api.get(f"/api/v1/namespaces/{namespace}/events", fieldSelector=fields)
    return {event["reason"] for event in listed.body["items"]}


def refusals(log: str) -> list[str]:
    """Lines about something that the API server did not permit."""
    lines = [json.loads(line)["message"] for line in log.splitlines() if line.startswith("{")]
    return [line for line in lines if "forbidden" in line.lower() or "403" in line]


@pytest.fixture(scope="module")
def served(
    installed: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, Operator]]:
    folder = tmp_path_factory.mktemp("operator") / "cluster"
    with running_operator(installed, folder, namespace="fray-system", name="fray-operator") as operator:
        yield installed, operator


def test_cluster_wide_operator_runs_a_job_from_start_to_removal(served: tuple[Cluster, Operator]) -> None:
    cluster, operator = served
    created = cluster.api.post(jobs_in("default"), tpu_job("wide"))
    jobset = operator.until("a JobSet is made", lambda: jobset_of(cluster, "default", "wide"))
    assert jobset["metadata"]["ownerReferences"][0]["uid"] == created.body["metadata"]["uid"]
    (pod,) = [r["template"]["spec"]["template"]["spec"] for r in jobset["spec"]["replicatedJobs"]]
    assert (pod["serviceAccountName"], pod["containers"][0]["image"]) == ("fray-job", "fray-runtime:0.1.0")
    operator.until("it is told", lambda: "AttemptStarted" in events_about(cluster, "default", "wide"))

    create_stuck_pod(cluster, "default", jobset)
    operator.until(
        "the missing node pool is named",
        lambda: condition_of(cluster, "default", "wide", "Scheduled").get("reason") == "NoMatchingNodePool",
    )
    message = condition_of(cluster, "default", "wide", "Scheduled")["message"]
    assert "cloud.google.com/gke-tpu-topology=2x2x1" in message

    fail_without_pods(cluster, operator, "default")
    end_with_its_child(cluster, operator, "default")
    await_keys(cluster, operator, "default")
    have_workers(cluster, operator, "default")
    assert cluster.api.merge(f"{jobs_in('default')}/wide", {"spec": {"stopped": True}}).ok
    operator.until("the JobSet is deleted", lambda: is_going(jobset_of(cluster, "default", "wide")))
    assert not refusals(operator.log)


def is_going(jobset: dict[str, Any] | None) -> bool:
    """Whether an object is gone, or waits for a collector of garbage that doesn't run here."""
    return jobset is None or "deletionTimestamp" in jobset["metadata"]


def test_single_namespace_operator_serves_its_namespace_in_the_schedulers_words(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    # In a cluster where no cluster-wide operator runs: it would serve this namespace too.
    cluster = own_cluster
    team = cluster.create_namespace("team")
    cluster.helm("install", "own", str(CHART), f"--namespace={team}", "--set=scope=namespace")
    with running_operator(cluster, tmp_path / "single", namespace=team, name="own-operator") as operator:
        cluster.api.post(jobs_in(team), tpu_job("narrow"))
        jobset = operator.until("a JobSet is made", lambda: jobset_of(cluster, team, "narrow"))
        create_stuck_pod(cluster, team, jobset)
        operator.until(
            "the scheduler is quoted",
            lambda: condition_of(cluster, team, "narrow", "Scheduled").get("reason") == "Unschedulable",
        )
        message = condition_of(cluster, team, "narrow", "Scheduled")["message"]
        assert "didn't match Pod's node affinity/selector" in message
        fail_without_pods(cluster, operator, team)
        end_with_its_child(cluster, operator, team)
        await_keys(cluster, operator, team)
        have_workers(cluster, operator, team)
        assert not refusals(operator.log)


def test_operator_ends_in_order_and_frees_the_lease(own_cluster: Cluster, tmp_path: Path) -> None:
    lease = "/apis/coordination.k8s.io/v1/namespaces/fray-system/leases/fray-operator"
    with running_operator(
        own_cluster, tmp_path / "run", namespace="fray-system", name="fray-operator"
    ) as operator:
        operator.until(
            "it leads", lambda: own_cluster.api.get(lease).body.get("spec", {}).get("holderIdentity")
        )
        operator.until("it works", lambda: "leading as fray-operator-0" in operator.log)
        assert operator.end() == 0, operator.log
    assert own_cluster.api.get(lease).body["spec"].get("holderIdentity", "") == ""
