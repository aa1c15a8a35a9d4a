"""JobSet, the Job controller, scheduler, kubelets and garbage collector, as far as the operator sees them.

Level-based, as the real ones: what is to be done follows from the objects that there are, some time later.
What a program does, and who takes its host away, is not known here. The same contract is held on a real
cluster by: e2e/test_endings.py (exit codes, `Failed` and `Completed`, foreground deletion, suspension),
e2e/test_taken_away.py (DisruptionTarget, PodFailurePolicy, owners), e2e/test_gangs.py (labels and ranks),
e2e/test_kubectl.py (garbage collection).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from fray import vocabulary as words
from fray.kube.api import Manifest
from fray.kube.resources import FRAYJOBS, JOBS, JOBSETS, NODES, PODS, Resource
from fray.plan.observation import KILL_CODES
from fray.testing.memory import MemoryServer
from tests.child_objects import build_job, build_pod

__all__ = ["Controllers", "now", "place_of"]

START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
NODE_COUNT = 12
LABEL_JOB_NAME = "batch.kubernetes.io/job-name"
DISRUPTED = "has condition DisruptionTarget matching FailJob rule at index 0"


class Controllers:
    """All controllers of the cluster. `rng` decides how long each takes."""

    def __init__(self, server: MemoryServer, rng: random.Random) -> None:
        self._server, self._rng = server, rng
        self._loop = asyncio.get_running_loop()
        self._due: set[str] = set()
        self.never_scheduled: set[str] = set()
        """Names of JobSets whose pods get no node."""
        server.listeners.append(self._on_change)
        for number in range(NODE_COUNT):
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": START.isoformat()}
            node = {"metadata": {"name": f"node-{number}", "labels": {}}, "spec": {}}
            server.store(NODES, {**node, "status": {"conditions": [ready], "allocatable": {"cpu": "8"}}})

    # --- what others do ---------------------------------------------------------------------------------

    def pods_of(self, jobset: Manifest) -> list[Manifest]:
        """Return the pods of a JobSet by rank; they are only to be looked at."""
        label = words.LABEL_JOBSET_UID, jobset["metadata"]["uid"]
        return sorted(self._server.look(PODS, label=label), key=place_of)

    def exit(self, name: str, code: int, *, reason: str = "") -> None:
        """Have a pod's program end by itself."""
        pod = self._find(PODS, name)
        if pod is not None and _runs(pod) and "deletionTimestamp" not in pod["metadata"]:
            self._end(pod, code, reason)

    def shut_down(self, name: str) -> None:
        """Have a pod's node shut down gracefully: the kubelet ends the pod, which stays, and says why.

        https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/
        """
        pod = self._find(PODS, name)
        if pod is not None and _runs(pod):
            message = "Pod was terminated in response to imminent node shutdown."
            self._mark(pod, "TerminationByKubelet", message)
            pod["status"] |= {"reason": "Terminated", "message": message}
            self._end(pod, 143, "Error")

    def misplace(self, name: str) -> None:
        """Have JobSet find a pod in another slice's node pool."""
        pod = self._find(PODS, name)
        if pod is not None and _runs(pod):
            self._mark(pod, "ExclusivePlacementViolation", "Pod violated JobSet exclusive placement policy")
            self._end(pod, 143, "Error")

    def evict(self, name: str) -> None:
        """Evict a pod by the API, as `kubectl drain` does."""
        pod = self._find(PODS, name)
        if pod is not None:
            self._mark(pod, "EvictionByEvictionAPI", "Eviction API: evicting")
            self._server.store(PODS, pod)
            self.delete_pod(name)

    def delete_pod(self, name: str) -> None:
        """Delete a pod: its kubelet ends it, sooner or later; one that has no node is gone at once."""
        pod = self._find(PODS, name)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return
        if _ended(pod) or "nodeName" not in pod["spec"]:
            self._server.remove(PODS, name)
            return
        grace = self._rng.choice([0, 30])
        until = now() + timedelta(seconds=grace)
        pod["metadata"] |= {"deletionTimestamp": _time(until), "deletionGracePeriodSeconds": grace}
        self._server.store(PODS, pod)
        takes = self._rng.uniform(0.0, grace) if self._rng.random() < 0.3 else self._rng.uniform(0.0, 2.0)
        self._loop.call_later(min(takes, grace), self._terminate, name, pod["metadata"]["uid"])

    # --- the controllers of objects ---------------------------------------------------------------------

    def _on_change(self, resource: Resource, old: Manifest | None, new: Manifest | None) -> None:
        body = new or old
        assert body is not None
        match resource.plural:
            case "jobsets":
                self._poke(body["metadata"]["name"])
            case "jobs" | "pods":
                self._poke(body["metadata"]["labels"][words.LABEL_JOBSET_NAME])
            case "frayjobs" if new is None:
                for jobset in self._server.look(JOBSETS, label=(words.LABEL_JOB, body["metadata"]["name"])):
                    self._poke(jobset["metadata"]["name"])

    def _poke(self, jobset: str) -> None:
        """Have the controllers look at a JobSet soon."""
        if jobset not in self._due:
            self._due.add(jobset)
            self._loop.call_later(self._rng.choice([0.02, 0.2, 1.0]) * self._rng.random(), self._sync, jobset)

    def _sync(self, name: str) -> None:
        self._due.discard(name)
        jobset = self._find(JOBSETS, name)
        self._collect_jobs(name, jobset)
        if jobset is None:
            return
        if "deletionTimestamp" in jobset["metadata"]:
            self._finish_deletion(jobset)
        elif self._is_orphaned(jobset):
            self._server.delete(
                JOBSETS, name, jobset["metadata"]["namespace"], uid=None, propagation="Foreground"
            )
        elif _condition(jobset, "Completed", "Failed"):
            for job in self._jobs_of(jobset):
                if not _condition(job, "Complete", "Failed"):
                    self._delete_job(job)
        elif jobset["spec"].get("suspend"):
            self._suspend(jobset)
        else:
            self._advance(jobset)

    def _collect_jobs(self, name: str, jobset: Manifest | None) -> None:
        """Let Jobs go that are deleted, and delete those whose JobSet is gone."""
        for job in self._jobs_named(name):
            owner = job["metadata"]["ownerReferences"][0]["uid"]
            if "deletionTimestamp" in job["metadata"]:
                self._finish_job_deletion(job)
            elif jobset is None or owner != jobset["metadata"]["uid"]:
                self._delete_job(job)

    def _suspend(self, jobset: Manifest) -> None:
        for pod in self.pods_of(jobset):
            if not _ended(pod):
                self.delete_pod(pod["metadata"]["name"])
            elif "deletionTimestamp" in pod["metadata"]:
                self._server.remove(PODS, pod["metadata"]["name"])

    def _advance(self, jobset: Manifest) -> None:
        """Make what is missing of a JobSet, and report how it ended."""
        jobs = self._jobs_of(jobset)
        (group,) = jobset["spec"]["replicatedJobs"]
        if not jobs and not self.pods_of(jobset):
            made = [build_job(jobset, index) for index in range(group["replicas"])]
            # Names that Jobs of a deleted JobSet still have are taken.
            if not any(self._find(JOBS, job["metadata"]["name"]) for job in made):
                for job in made:
                    self._server.store(JOBS, job | {"status": {"conditions": []}})
            return
        for job in jobs:
            if "deletionTimestamp" not in job["metadata"]:
                self._advance_job(jobset, job)
        jobs = self._jobs_of(jobset)
        if any(_condition(job, "Failed") for job in jobs):
            self._end_jobset(jobset, "Failed", "FailedJobs", "jobset failed due to one or more job failures")
        elif len(jobs) == group["replicas"] and all(_condition(job, "Complete") for job in jobs):
            self._end_jobset(jobset, "Completed", "AllJobsCompleted", "jobset completed successfully")

    def _advance_job(self, jobset: Manifest, job: Manifest) -> None:
        """Do what the Job controller does: one pod that fails fails the Job, all that succeed complete it."""
        pods = self._pods_of_job(job)
        target = _condition(job, "FailureTarget")
        if _condition(job, "Complete", "Failed"):
            return
        failed = [pod for pod in pods if pod["status"]["phase"] == "Failed"]
        if failed and not target:
            target = _describe_failure(failed)
            self._add_condition(job, {**target, "type": "FailureTarget"})
        for pod in pods:
            # Only now: a pod is held until it was counted.
            if _ended(pod) and "deletionTimestamp" in pod["metadata"]:
                self._server.remove(PODS, pod["metadata"]["name"])
            elif target and not _ended(pod):
                self.delete_pod(pod["metadata"]["name"])
        if target:
            if all(_ended(pod) for pod in pods):
                self._add_condition(job, {**target, "type": "Failed"})
            return
        there = {place_of(pod)[1] for pod in pods}
        for host in range(job["spec"]["completions"]):
            if host not in there:
                self._make_pod(jobset, job, host)
        if len(pods) == job["spec"]["completions"] and all(_succeeded(pod) for pod in pods):
            self._add_condition(job, {"type": "Complete", "reason": "CompletionsReached", "message": ""})

    def _add_condition(self, job: Manifest, told: Manifest) -> None:
        added = {"status": "True", "lastTransitionTime": _time(now()), **told}
        found = self._find(JOBS, job["metadata"]["name"])
        assert found is not None
        found["status"]["conditions"].append(added)
        self._server.store(JOBS, found)

    def _end_jobset(self, jobset: Manifest, kind: str, reason: str, message: str) -> None:
        ended = {"type": kind, "status": "True", "reason": reason, "message": message}
        ended["lastTransitionTime"] = _time(now())
        self._server.store(JOBSETS, {**jobset, "status": {"conditions": [ended], "terminalState": kind}})

    def _delete_job(self, job: Manifest) -> None:
        if "deletionTimestamp" not in job["metadata"]:
            metadata = {**job["metadata"], "deletionTimestamp": _time(now())}
            self._server.store(JOBS, {**job, "metadata": metadata})

    def _finish_job_deletion(self, job: Manifest) -> None:
        pods = self._pods_of_job(job)
        for pod in pods:
            if _ended(pod):
                self._server.remove(PODS, pod["metadata"]["name"])
            else:
                self.delete_pod(pod["metadata"]["name"])
        if not self._pods_of_job(job):
            self._server.remove(JOBS, job["metadata"]["name"])

    def _pods_of_job(self, job: Manifest) -> list[Manifest]:
        named = self._server.look(PODS, label=(LABEL_JOB_NAME, job["metadata"]["name"]))
        return [
            pod for pod in named if pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
        ]

    def _finish_deletion(self, jobset: Manifest) -> None:
        """Let a JobSet go that is deleted in the foreground, once nothing is left of it."""
        jobs = self._jobs_of(jobset)
        for job in jobs:
            self._delete_job(job)
        if not jobs:
            self._server.remove(JOBSETS, jobset["metadata"]["name"])

    def _is_orphaned(self, jobset: Manifest) -> bool:
        """Return whether the garbage collector takes it: it has owners, and none of them is there."""
        owners = {owner["uid"] for owner in jobset["metadata"].get("ownerReferences", [])}
        return bool(owners) and not owners & {job["metadata"]["uid"] for job in self._server.look(FRAYJOBS)}

    # --- scheduler and kubelet --------------------------------------------------------------------------

    def _make_pod(self, jobset: Manifest, job: Manifest, host: int) -> None:
        pod = self._server.store(PODS, build_pod(job, host) | {"status": {"phase": "Pending"}})
        if jobset["metadata"]["name"] not in self.never_scheduled:
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            self._loop.call_later(
                self._rng.choice([0.1, 1.0, 5.0]) * self._rng.random(), self._bind, name, uid
            )

    def _bind(self, name: str, uid: str) -> None:
        pod = self._find(PODS, name, uid=uid)
        if pod is not None and "deletionTimestamp" not in pod["metadata"]:
            pod["spec"]["nodeName"] = f"node-{self._rng.randrange(NODE_COUNT)}"
            self._server.store(PODS, pod)
            self._loop.call_later(
                self._rng.choice([0.1, 1.0, 8.0]) * self._rng.random(), self._run, name, uid
            )

    def _run(self, name: str, uid: str) -> None:
        pod = self._find(PODS, name, uid=uid)
        if pod is not None and "deletionTimestamp" not in pod["metadata"]:
            self._set(pod, "Running", {"running": {"startedAt": _time(now())}})
            self._server.store(PODS, pod)

    def _terminate(self, name: str, uid: str) -> None:
        pod = self._find(PODS, name, uid=uid)
        if pod is None or _ended(pod):
            return
        if _runs(pod):
            self._end(pod, self._rng.choice(KILL_CODES), "Error")
        else:
            self._server.store(PODS, {**pod, "status": {**pod["status"], "phase": "Failed"}})

    def _mark(self, pod: Manifest, reason: str, message: str) -> None:
        marked = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
        marked["lastTransitionTime"] = _time(now())
        pod["status"].setdefault("conditions", []).append(marked)

    def _end(self, pod: Manifest, code: int, reason: str) -> None:
        started = pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
        state = {"exitCode": code, "startedAt": started, "finishedAt": _time(now())}
        state["reason"] = reason or ("Error" if code else "Completed")
        self._set(pod, "Failed" if code else "Succeeded", {"terminated": state})
        self._server.store(PODS, pod)

    def _set(self, pod: Manifest, phase: str, state: Manifest) -> None:
        container = {"name": words.CONTAINER, "image": "image", "state": state}
        pod["status"] |= {"phase": phase, "containerStatuses": [container]}

    # --- looking ----------------------------------------------------------------------------------------

    def _find(self, resource: Resource, name: str, *, uid: str | None = None) -> Manifest | None:
        found = self._server.find(resource, name)
        return found if found is not None and uid in (None, found["metadata"]["uid"]) else None

    def _jobs_named(self, jobset: str) -> list[Manifest]:
        return self._server.look(JOBS, label=(words.LABEL_JOBSET_NAME, jobset))

    def _jobs_of(self, jobset: Manifest) -> list[Manifest]:
        uid, named = jobset["metadata"]["uid"], self._jobs_named(jobset["metadata"]["name"])
        return [job for job in named if job["metadata"]["ownerReferences"][0]["uid"] == uid]


def now() -> datetime:
    """Return the time of all clocks: that of the loop."""
    return START + timedelta(seconds=asyncio.get_running_loop().time())


def place_of(pod: Manifest) -> tuple[int, int]:
    """Return slice and host of a pod."""
    labels = pod["metadata"]["labels"]
    return int(labels[words.LABEL_JOB_INDEX]), int(labels[words.LABEL_COMPLETION_INDEX])


def _describe_failure(failed: list[Manifest]) -> Manifest:
    """Return the condition of a Job by the first pod that matches a rule of its podFailurePolicy.

    https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/controller/job/pod_failure_policy.go
    """
    for pod in failed:
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        if _condition(pod, "DisruptionTarget"):
            return _failure("PodFailurePolicy", f"Pod {name} {DISRUPTED}")
        for code in _exit_codes(pod):
            if code in KILL_CODES:
                matched = f"failed with exit code {code} matching FailJob rule at index 1"
                return _failure("PodFailurePolicy", f"Container {words.CONTAINER} for pod {name} {matched}")
    return _failure("BackoffLimitExceeded", "Job has reached the specified backoff limit")


def _failure(reason: str, message: str) -> Manifest:
    return {"status": "True", "reason": reason, "message": message}


def _exit_codes(pod: Manifest) -> Iterator[int]:
    for container in pod["status"].get("containerStatuses", []):
        if "terminated" in container["state"]:
            yield container["state"]["terminated"]["exitCode"]


def _condition(body: Manifest, *kinds: str) -> Manifest:
    """Return the condition of one of these types that holds; empty when none does."""
    conditions: list[Any] = body.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] in kinds and c["status"] == "True"), {})


def _ended(pod: Manifest) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def _succeeded(pod: Manifest) -> bool:
    return bool(pod["status"]["phase"] == "Succeeded")


def _runs(pod: Manifest) -> bool:
    return bool(pod["status"]["phase"] == "Running")


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
