"""Plays by hand all controllers that a bare API server lacks: JobSet, Job, scheduler, kubelet, collector.

Each method does one thing that one of them would do, with the labels, conditions and finalizers that it
would leave behind; when to do it is the test's. Objects are addressed by the FrayJob's name.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from e2e.cluster.api import Api, Response
from fray import vocabulary as words
from tests.child_objects import build_job, build_pod

__all__ = ["DEADLINE_SECONDS", "NODE", "Hands", "Manifest", "condition", "eventually", "now"]

Manifest = dict[str, Any]

DEADLINE_SECONDS = 120.0
NODE = "node-1"


def now() -> str:
    """The time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def eventually(check: Callable[[], Any], *, told: Callable[[], object] = lambda: "") -> Any:
    """Return the first truthy result of `check`; fail with what `told` returns when there is none in time."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (result := check()):
        assert time.monotonic() < deadline, f"this didn't happen: {told()}"
        time.sleep(0.01)
    return result


def condition(job: Manifest, kind: str) -> Manifest:
    """Return a condition of a FrayJob; empty when it has none."""
    conditions = job.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == kind), {})


class Hands:
    """The controllers of one namespace, and the user of its FrayJobs."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        group = f"/apis/{words.API_VERSION}/namespaces/{namespace}"
        self.jobs = f"{group}/{words.FRAYJOB_PLURAL}"
        self.batch_jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self.jobsets = f"/apis/{words.JOBSET_API_VERSION}/namespaces/{namespace}/jobsets"
        self.actors = f"{group}/{words.FRAYACTOR_PLURAL}"
        self.sets = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
        self.policies = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
        self.core = f"/api/v1/namespaces/{namespace}"

    # --- the user ---------------------------------------------------------------------------------------

    def submit(self, name: str, **spec: Any) -> Manifest:
        """Create a FrayJob: one CPU host unless the spec says otherwise."""
        body = {
            "apiVersion": words.API_VERSION,
            "kind": words.FRAYJOB_KIND,
            "metadata": {"name": name},
            "spec": {"entrypoint": {"command": ["train"]}, **spec},
        }
        return self._must(self.api.post(self.jobs, body))

    def job(self, name: str) -> Manifest:
        """Return a FrayJob as it is now."""
        return self._must(self.api.get(f"{self.jobs}/{name}"))

    def edit(self, name: str, **spec: Any) -> Manifest:
        """Change mutable fields of a FrayJob's spec."""
        return self._must(self.api.merge(f"{self.jobs}/{name}", {"spec": spec}))

    def scale(self, name: str, replicas: int) -> None:
        """Do what `kubectl scale` does."""
        self._must(self.api.merge(f"{self.jobs}/{name}/scale", {"spec": {"replicas": replicas}}))

    def await_job(self, name: str, check: Callable[[Manifest], Any]) -> Manifest:
        """Return the FrayJob once `check` holds for it."""
        return eventually(
            lambda: (job := self.job(name)) and check(job) and job,
            told=lambda: f"{name} is {self.job(name)}, its JobSets are {self.list(self.jobsets)}",
        )

    def await_phase(self, name: str, phase: str) -> Manifest:
        """Return the FrayJob once it is in a phase."""
        return self.await_job(name, lambda job: job.get("status", {}).get("phase") == phase)

    def await_condition(self, name: str, kind: str, *, status: str, reason: str) -> Manifest:
        """Return a condition once it has this status and reason."""
        job = self.await_job(
            name,
            lambda job: (c := condition(job, kind)) and (c["status"], c["reason"]) == (status, reason),
        )
        return condition(job, kind)

    def delete_job(self, name: str) -> None:
        """Delete a FrayJob; what it owns is left to `collect`."""
        self._must(self.api.delete(f"{self.jobs}/{name}"))

    # --- the JobSet and Job controllers -----------------------------------------------------------------

    def await_jobset(self, name: str) -> Manifest:
        """Return a JobSet once it exists."""
        path = f"{self.jobsets}/{name}"
        return eventually(
            lambda: (found := self.api.get(path)).ok and found.body,
            told=lambda: (
                f"there is no JobSet {name}, but {[x['metadata']['name'] for x in self.list(self.jobsets)]}"
            ),
        )

    def create_pods(self, jobset: Manifest) -> list[Manifest]:
        """Create the pods of a JobSet, Pending and without a node."""
        pods = []
        for group in jobset["spec"]["replicatedJobs"]:
            job = group["template"]["spec"]
            for index in range(group["replicas"]):
                owner = self._require_job(jobset, index)
                for host in range(job["completions"]):
                    pod = build_pod(owner, host)
                    pods.append(self._must_exist(self.api.post(f"{self.core}/pods", pod)) or pod)
        return pods

    def pods_of(self, jobset: Manifest) -> list[Manifest]:
        """Return the pods of a JobSet by rank."""
        uid = jobset["metadata"]["uid"]
        pods = [
            pod
            for pod in self.list(f"{self.core}/pods")
            if pod["metadata"].get("labels", {}).get(words.LABEL_JOBSET_UID) == uid
        ]
        return sorted(pods, key=rank)

    def complete(self, jobset: Manifest) -> None:
        """Report a JobSet as completed."""
        self._end(jobset, "Completed", "AllJobsCompleted", "jobset completed successfully")

    def fail(self, jobset: Manifest, pods: list[Manifest] | None = None) -> None:
        """Report a JobSet as failed; those of its pods (all by default) that still run are deleted."""
        self._end(jobset, "Failed", "FailedJobs", "jobset failed due to one or more job failures")
        for pod in self.pods_of(jobset) if pods is None else pods:
            if pod["status"]["phase"] in ("Pending", "Running"):
                self.delete_pod(pod)

    def fail_job(self, jobset: Manifest, message: str, *, index: int = 0) -> None:
        """Report that a rule of its podFailurePolicy ended a Job of a JobSet."""
        name = self._require_job(jobset, index)["metadata"]["name"]
        told = {"reason": "PodFailurePolicy", "message": message, "lastTransitionTime": now()}
        ended = [{"type": kind, "status": "True", **told} for kind in ("FailureTarget", "Failed")]
        status = {"startTime": now(), "conditions": ended}
        self._must(self.api.merge(f"{self.batch_jobs}/{name}/status", {"status": status}))

    def _require_job(self, jobset: Manifest, index: int) -> Manifest:
        """Return a Job of a JobSet, made if there is none; one of another JobSet of its name goes."""
        body = build_job(jobset, index)
        path = f"{self.batch_jobs}/{body['metadata']['name']}"
        if (found := self.api.get(path)).ok:
            if found.body["metadata"]["ownerReferences"] == body["metadata"]["ownerReferences"]:
                return found.body
            self._must(self.api.request("DELETE", path, {"propagationPolicy": "Background"}))
        return self._must(self.api.post(self.batch_jobs, body))

    def disown(self, jobset: Manifest) -> None:
        """Take away a JobSet's owner."""
        path = f"{self.jobsets}/{jobset['metadata']['name']}"
        self._must(self.api.merge(path, {"metadata": {"ownerReferences": None}}))

    def create_late(self, jobset: Manifest) -> Manifest:
        """Carry out the request again by which the operator created a JobSet that is gone."""
        kept = ("name", "labels", "ownerReferences", "annotations")
        metadata = {key: value for key, value in jobset["metadata"].items() if key in kept}
        again = {key: jobset[key] for key in ("apiVersion", "kind", "spec")}
        return self._must(self.api.post(self.jobsets, {**again, "metadata": metadata}))

    def suspend(self, jobset: Manifest) -> None:
        """Suspend a JobSet, as Kueue does to preempt it."""
        self._must(
            self.api.merge(f"{self.jobsets}/{jobset['metadata']['name']}", {"spec": {"suspend": True}})
        )

    def report_create_failure(self, jobset: Manifest, message: str, *, index: int = 0) -> None:
        """Post the event of a Job that could not create its pods."""
        name = f"{jobset['metadata']['name']}-{words.REPLICATED_JOB}-{index}"
        about = {"kind": "Job", "apiVersion": "batch/v1", "name": name}
        self._warn(about, "FailedCreate", message, firstTimestamp=now(), lastTimestamp=now())

    def report_job_create_failure(self, jobset: Manifest, message: str) -> None:
        """Post the event of a JobSet that could not create its Jobs; it is of the newer form of events."""
        name = jobset["metadata"]["name"]
        about = {"kind": "JobSet", "apiVersion": words.JOBSET_API_VERSION, "name": name}
        time_of_day = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        reporter = {"reportingComponent": "jobset", "reportingInstance": "jobset-1", "action": "Reconciling"}
        self._warn(about, "JobCreationFailed", message, eventTime=time_of_day, **reporter)

    def _warn(self, about: Manifest, reason: str, message: str, **rest: str) -> None:
        body = {
            "metadata": {"name": f"{about['name']}.{secrets.token_hex(4)}", "namespace": self.namespace},
            "involvedObject": {**about, "namespace": self.namespace},
            "reason": reason,
            "message": message,
            "type": "Warning",
            **rest,
        }
        self._must(self.api.post(f"{self.core}/events", body))

    def _end(self, jobset: Manifest, kind: str, reason: str, message: str) -> None:
        ended = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": now(),
        }
        status = {"conditions": [ended], "terminalState": kind}
        path = f"{self.jobsets}/{jobset['metadata']['name']}/status"
        self._must(self.api.merge(path, {"status": status}))

    # --- the scheduler and the kubelet ------------------------------------------------------------------

    def refuse_pod(self, pod: Manifest, message: str) -> None:
        """Report a pod as unschedulable."""
        unscheduled = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": now(),
        }
        self._set_pod(pod, {"conditions": [unscheduled]})

    def bind(self, pod: Manifest, node: str = NODE) -> None:
        """Give a pod a node."""
        name = pod["metadata"]["name"]
        body = {"metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}
        self._must_exist(self.api.post(f"{self.core}/pods/{name}/binding", body))

    def hold(self, pod: Manifest, reason: str, message: str) -> None:
        """Report that a pod's container waits."""
        self._set_container(pod, "Pending", {"waiting": {"reason": reason, "message": message}})

    def run(self, pod: Manifest) -> None:
        """Report that a pod's container runs."""
        self._set_container(pod, "Running", {"running": {"startedAt": now()}})

    def exit(self, pod: Manifest, code: int, *, message: str = "", reason: str = "") -> None:
        """Report that a pod's container has ended; when it began stays as it was told, as with a kubelet."""
        containers = self._must(self.api.get(f"{self.core}/pods/{pod['metadata']['name']}"))["status"]
        (state,) = (each["state"] for each in containers.get("containerStatuses", [{"state": {}}]))
        ended = {
            "exitCode": code,
            "reason": reason or ("Error" if code else "Completed"),
            "message": message,
            "startedAt": state.get("running", {}).get("startedAt", now()),
            "finishedAt": now(),
        }
        self._set_container(pod, "Failed" if code else "Succeeded", {"terminated": ended})

    def disrupt(self, pod: Manifest, reason: str, message: str) -> None:
        """Mark a pod as one that is about to be taken away."""
        marked = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": now(),
        }
        self._set_pod(pod, {"conditions": [marked]})

    def reject(self, pod: Manifest, reason: str, message: str) -> None:
        """Report that the kubelet refused a pod, of which no container was ever begun."""
        self._set_pod(pod, {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {message}"})

    def run_all(self, jobset: Manifest, *, node: str = NODE) -> list[Manifest]:
        """Create all pods of a JobSet and let them run."""
        pods = self.create_pods(jobset)
        for pod in pods:
            self.bind(pod, node)
            self.run(pod)
        return pods

    def delete_pod(self, pod: Manifest) -> None:
        """Remove a pod at once."""
        path = f"{self.core}/pods/{pod['metadata']['name']}"
        self._may_be_gone(self.api.request("DELETE", path, {"gracePeriodSeconds": 0}))

    def _set_container(self, pod: Manifest, phase: str, state: Manifest) -> None:
        container = {
            "name": words.CONTAINER,
            "image": "image",
            "imageID": "",
            "ready": "running" in state,
            "restartCount": 0,
            "state": state,
        }
        self._set_pod(pod, {"phase": phase, "containerStatuses": [container]})

    def _set_pod(self, pod: Manifest, status: Manifest) -> None:
        self._must(self.api.merge(f"{self.core}/pods/{pod['metadata']['name']}/status", {"status": status}))

    # --- the garbage collector --------------------------------------------------------------------------

    def finish_deletion(self, jobset: Manifest, pods: list[Manifest] | None = None) -> None:
        """Do what follows a foreground deletion: the pods (all by default) end, then the JobSet goes."""
        assert "deletionTimestamp" in jobset["metadata"], jobset["metadata"]
        for pod in self.pods_of(jobset) if pods is None else pods:
            self.delete_pod(pod)
        path = f"{self.jobsets}/{jobset['metadata']['name']}"
        self._may_be_gone(self.api.merge(path, {"metadata": {"finalizers": None}}))

    def finish_job_deletion(self, job: Manifest) -> None:
        """Do what follows a foreground deletion of a FrayJob: what it owns goes, then the FrayJob."""
        assert job["metadata"]["finalizers"] == ["foregroundDeletion"], job["metadata"]
        for jobset in self.list(self.jobsets):
            owners = [owner["uid"] for owner in jobset["metadata"].get("ownerReferences", [])]
            if job["metadata"]["uid"] in owners:
                for pod in self.pods_of(jobset):
                    self.delete_pod(pod)
                self._may_be_gone(self.api.delete(f"{self.jobsets}/{jobset['metadata']['name']}"))
        path = f"{self.jobs}/{job['metadata']['name']}"
        self._may_be_gone(self.api.merge(path, {"metadata": {"finalizers": None}}))

    def collect(self) -> None:
        """Delete JobSets whose FrayJob is gone, and what is being deleted in the foreground, Jobs too."""
        alive = {job["metadata"]["uid"] for job in self.list(self.jobs)}
        for jobset in self.list(self.jobsets):
            owners = {owner["uid"] for owner in jobset["metadata"].get("ownerReferences", [])}
            if owners and not owners & alive:
                self._may_be_gone(self.api.delete(f"{self.jobsets}/{jobset['metadata']['name']}"))
            elif "deletionTimestamp" in jobset["metadata"]:
                self.finish_deletion(jobset)
        for job in self.list(self.batch_jobs):
            if "deletionTimestamp" in job["metadata"]:
                path = f"{self.batch_jobs}/{job['metadata']['name']}"
                self._may_be_gone(self.api.merge(path, {"metadata": {"finalizers": None}}))

    def collect_until(self, check: Callable[[], Any]) -> None:
        """Collect until `check` holds."""

        def collected() -> Any:
            self.collect()
            return check()

        eventually(collected, told=lambda: self.list(self.jobs))

    # --- looking ----------------------------------------------------------------------------------------

    def list(self, collection: str, *, cached: bool = False) -> list[Manifest]:
        """Return all objects of a collection.

        Up to date unless `cached`: then as the server last heard from its database, without a wait of up to
        100 ms; never older than what a watcher was told.
        """
        query = {"resourceVersion": "0"} if cached else {}
        items: list[Manifest] = self._must(self.api.get(collection, **query))["items"]
        return items

    def events_of(self, name: str) -> list[Manifest]:
        """Return the events about a FrayJob by name, so in no order of time."""
        found = [
            e
            for e in self.list(f"{self.core}/events")
            if e["involvedObject"].get("kind") == words.FRAYJOB_KIND
        ]
        return [event for event in found if event["involvedObject"]["name"] == name]

    def await_events(self, name: str, reasons: set[str]) -> None:
        """Wait until the events about a FrayJob have exactly these reasons."""
        eventually(
            lambda: {event["reason"] for event in self.events_of(name)} == reasons,
            told=lambda: [event["message"] for event in self.events_of(name)],
        )

    def await_event(self, name: str, reason: str) -> Manifest:
        """Return the event about a FrayJob that has this reason; the status tells the same, and earlier."""

        def find() -> list[Manifest]:
            return [event for event in self.events_of(name) if event["reason"] == reason]

        found: list[Manifest] = eventually(find, told=lambda: self.events_of(name))
        assert len(found) == 1, found
        return found[0]

    def _must(self, answer: Response) -> Manifest:
        assert answer.ok, answer.body
        body: Manifest = answer.body
        return body

    def _must_exist(self, answer: Response) -> Manifest | None:
        """Return what was made, None when it was there already."""
        assert answer.ok or answer.status == 409, answer.body
        return answer.body if answer.ok else None

    def _may_be_gone(self, answer: Response) -> None:
        assert answer.ok or answer.status == 404, answer.body


def rank(pod: Manifest) -> tuple[int, int]:
    """Return slice and host of a pod."""
    labels = pod["metadata"]["labels"]
    return int(labels[words.LABEL_JOB_INDEX]), int(labels[words.LABEL_COMPLETION_INDEX])
