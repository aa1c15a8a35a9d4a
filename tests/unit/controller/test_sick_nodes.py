"""A node whose kubelet refuses a job's pods is avoided by the third attempt, also by another operator."""

from __future__ import annotations

import asyncio
from typing import Any

from fray.kube.api import Manifest
from fray.kube.resources import FRAYJOBS, JOBSETS, NODES
from fray.plan.jobset import build_attempt
from fray.plan.settings import PlanSettings
from fray.testing.memory import MemoryServer
from fray.vocabulary import LABEL_COMPLETION_INDEX, LABEL_JOBSET_UID
from fray.wire.frayjob import FrayJob
from fray_operator.informer import Informer
from fray_operator.kinds import Key
from fray_operator.metrics import Metrics
from fray_operator.queue import WorkQueue
from tests.unit.controller.an_hour import LONG_AGO, frayjob, passes, reconcile_for_an_hour

UNHEALTHY = "Pod was rejected: Allocate failed due to no healthy devices present, which is unexpected"
TOLD = f"hosts failed there in attempts 1 and 2: UnexpectedAdmissionError: {UNHEALTHY}"
RETRIES = {"retries": {"failures": 5}}


def refuse(server: MemoryServer, jobsets: Informer, pods: Informer, number: int) -> None:
    """Have the kubelet of node-7 refuse the only pod of an attempt, which ends its JobSet."""
    jobset = server.find(JOBSETS, f"train-a{number}")
    assert jobset is not None
    labels = {**jobset["metadata"]["labels"], LABEL_COMPLETION_INDEX: "0"}
    labels |= {LABEL_JOBSET_UID: jobset["metadata"]["uid"]}
    metadata = {"name": f"train-a{number}-slice-0-0-x", "namespace": "default", "labels": labels}
    metadata |= {"uid": f"uid-pod-{number}", "creationTimestamp": LONG_AGO}
    status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": UNHEALTHY}
    pods.remember({"metadata": metadata, "spec": {"nodeName": "node-7"}, "status": status})
    failed = {"type": "Failed", "status": "True", "lastTransitionTime": LONG_AGO}
    version = f"{int(jobset['metadata']['resourceVersion']) + 1000}"
    newer = {**jobset, "metadata": {**jobset["metadata"], "resourceVersion": version}}
    jobsets.remember({**newer, "status": {"conditions": [failed]}})


def affinity_of(jobset: Manifest | None) -> list[Any]:
    assert jobset is not None
    template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    affinity = template.get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return [expression for term in terms for expression in term["matchExpressions"]]


AVOIDED = [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node-7"]}]


def test_the_third_attempt_keeps_off_a_node_that_refused_two() -> None:
    def prepare(server: MemoryServer, jobsets: Informer, pods: Informer) -> None:
        for number, at in ((1, 60), (2, 300)):
            asyncio.get_running_loop().call_later(at, refuse, server, jobsets, pods, number)

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        made = [affinity_of(server.find(JOBSETS, f"train-a{number}")) for number in (1, 2, 3)]
        assert made == [[], [], AVOIDED]
        job = server.find(FRAYJOBS, "train")
        assert job is not None
        (avoided,) = job["status"]["avoidedNodes"]
        assert (avoided["node"], avoided["reason"]) == ("node-7", TOLD)
        assert [attempt.get("nodeFaults", [])[:1] for attempt in job["status"]["attempts"]] == [
            [{"node": "node-7", "fault": f"UnexpectedAdmissionError: {UNHEALTHY}"}],
            [{"node": "node-7", "fault": f"UnexpectedAdmissionError: {UNHEALTHY}"}],
            [],
        ]
        assert not any(call.resource is NODES for call in server.calls), "one host needs no pool"
        assert passes(metrics, "error") == 0

    reconcile_for_an_hour([frayjob("train", spec=RETRIES)], check, prepare=prepare)


def test_another_operator_creates_the_jobset_that_the_status_tells_of() -> None:
    """The first died after it wrote the status, and so long ago that the node may be used again."""
    body = frayjob("train", spec=RETRIES, number=3, jobSet="train-a3")
    avoided = {"node": "node-7", "until": LONG_AGO, "reason": TOLD}
    body["status"]["avoidedNodes"] = [avoided]

    def check(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        made = server.find(JOBSETS, "train-a3")
        assert affinity_of(made) == AVOIDED
        job = server.find(FRAYJOBS, "train")
        assert job is not None
        built = build_attempt(FrayJob.from_manifest(job), attempt=3, settings=PlanSettings()).jobset
        assert made is not None
        assert built["spec"] == made["spec"]

    reconcile_for_an_hour([body], check)
