"""Watches pods, JobSets, FrayJobs and FrayActors of a namespace, and who leads, whatever the operator does.

It asks the API server itself, never the proxy. What the sightings mean is `prediction` and `invariants`.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, Self, TypeVar

from e2e.chaos.records import (
    ActorSighting,
    JobSetSighting,
    JobSighting,
    PodSighting,
    Records,
    read_actor,
    read_job,
    read_jobset,
    read_lease,
    read_pod,
)
from e2e.cluster.api import Api, ApiError
from fray.vocabulary import API_VERSION, FRAYACTOR_PLURAL, FRAYJOB_PLURAL, JOBSET_API_VERSION

__all__ = ["Recorder", "collection_of"]

WATCH_SECONDS = 10.0
PAUSE_SECONDS = 0.2
START_SECONDS = 120.0
LEASE = "fray-operator"

_Sighting = TypeVar("_Sighting", PodSighting, JobSetSighting, JobSighting, ActorSighting)


def collection_of(namespace: str, plural: str) -> str:
    """Path of a collection of a namespace."""
    version = {
        FRAYJOB_PLURAL: f"/apis/{API_VERSION}",
        FRAYACTOR_PLURAL: f"/apis/{API_VERSION}",
        "statefulsets": "/apis/apps/v1",
        "jobsets": f"/apis/{JOBSET_API_VERSION}",
        "jobs": "/apis/batch/v1",
        "leases": "/apis/coordination.k8s.io/v1",
        "networkpolicies": "/apis/networking.k8s.io/v1",
    }.get(plural, "/api/v1")
    return f"{version}/namespaces/{namespace}/{plural}"


class _Note(Protocol):
    def __call__(self, at: float, manifest: Mapping[str, Any], *, gone: bool) -> None: ...


class Recorder:
    """Fills `records` from the start of its `with` block until the end.

    Parameters: `namespace` of the jobs; `system` that of the operator, whose Lease is watched too;
    `watch_seconds` is how long one watch lasts, and how long the end of the block may take.
    """

    def __init__(
        self, api: Api, namespace: str, *, system: str, watch_seconds: float = WATCH_SECONDS
    ) -> None:
        self.records = Records()
        self._watch_seconds = watch_seconds
        self._api, self._namespace = api, namespace
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._pods: dict[str, PodSighting] = {}
        self._jobs: dict[str, JobSighting] = {}
        self._jobsets: dict[str, JobSetSighting] = {}
        self._actors: dict[str, ActorSighting] = {}
        notes: dict[str, _Note] = {
            "pods": self._note_pod,
            "jobsets": self._note_jobset,
            FRAYJOB_PLURAL: self._note_job,
            FRAYACTOR_PLURAL: self._note_actor,
            "leases": self._note_lease,
        }
        self._listed = {plural: threading.Event() for plural in notes}
        self._threads = [
            threading.Thread(
                target=self._run,
                args=(system if plural == "leases" else namespace, plural, note),
                name=f"watch of {plural}",
            )
            for plural, note in notes.items()
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        for plural, listed in self._listed.items():
            if not listed.wait(START_SECONDS):
                self._stopped.set()
                self.check()
                raise TimeoutError(f"{plural} could not be listed")
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def check(self) -> None:
        """Raise what ended a watch."""
        if self._failure is not None:
            raise self._failure

    def living_pods(self) -> list[PodSighting]:
        """The pods that may run and aren't being deleted, by name."""
        living = [pod for pod in list(self._pods.values()) if pod.lives and not pod.ending]
        return sorted(living, key=lambda pod: pod.name)

    def job(self, name: str) -> JobSighting | None:
        """A FrayJob as it was seen last; None before that."""
        return self._jobs.get(name)

    def actor(self, name: str) -> ActorSighting | None:
        """A FrayActor as it was seen last; None before that."""
        return self._actors.get(name)

    def has_caught_up(self) -> bool:
        """Whether all watches have come to what is there now; they are threads, and none waits for another.

        Raises ApiError when the server refuses to say.
        """
        pods = [read_pod(0.0, item, gone=False) for item in self._read("pods")]
        jobsets = [read_jobset(0.0, item, gone=False) for item in self._read("jobsets")]
        jobs = [read_job(0.0, item, gone=False) for item in self._read(FRAYJOB_PLURAL)]
        actors = [read_actor(0.0, item, gone=False) for item in self._read(FRAYACTOR_PLURAL)]
        return (
            _last(self._pods) == {pod.uid: pod for pod in pods if pod is not None}
            and _last(self._jobsets) == {jobset.uid: jobset for jobset in jobsets if jobset is not None}
            and _last(self._jobs) == {job.name: job for job in jobs}
            and _last(self._actors) == {actor.name: actor for actor in actors}
        )

    def last_attempt(self, job: str) -> int:
        """The highest number of an attempt of a job whose JobSet was seen, 0 before any."""
        found = (jobset.attempt for jobset in list(self._jobsets.values()) if jobset.job == job)
        return max(found, default=0)

    def _run(self, namespace: str, plural: str, note: _Note) -> None:
        path = collection_of(namespace, plural)
        try:
            self._follow(path, note, self._listed[plural].set)
        except BaseException as error:  # noqa: BLE001 - raised by `check`
            self._failure = error

    def _follow(self, path: str, note: _Note, listed: Callable[[], None]) -> None:
        known: dict[str, Mapping[str, Any]] = {}
        version = ""
        while not self._stopped.is_set():
            try:
                if not version:
                    version = self._list(path, note, known)
                    listed()
                version = self._watch(path, note, known, version)
            except (OSError, http.client.HTTPException):
                self._stopped.wait(PAUSE_SECONDS)
            except ApiError as error:
                if error.response.status == 410:
                    version = ""
                elif error.response.status == 429 or error.response.status >= 500:
                    self._stopped.wait(PAUSE_SECONDS)  # a server that is short of breath
                else:
                    raise

    def _read(self, plural: str) -> Sequence[Mapping[str, Any]]:
        path = collection_of(self._namespace, plural)
        answer = self._api.get(path)
        if not answer.ok:
            raise ApiError(f"{path} can't be listed", answer)
        found: Sequence[Mapping[str, Any]] = answer.body["items"]
        return found

    def _list(self, path: str, note: _Note, known: dict[str, Mapping[str, Any]]) -> str:
        answer = self._api.get(path)
        if not answer.ok:
            raise ApiError(f"{path} can't be listed", answer)
        found = {item["metadata"]["uid"]: item for item in answer.body["items"]}
        for uid in known.keys() - found.keys():
            note(time.time(), known.pop(uid), gone=True)
        for uid, manifest in found.items():
            known[uid] = manifest
            note(time.time(), manifest, gone=False)
        return str(answer.body["metadata"]["resourceVersion"])

    def _watch(self, path: str, note: _Note, known: dict[str, Mapping[str, Any]], version: str) -> str:
        """Follow one watch until it ends; returns the version it got to, empty when that is too old."""
        for event in self._api.watch(path, version=version, seconds=self._watch_seconds):
            manifest = event["object"]
            if event["type"] == "ERROR":
                return ""
            version = manifest["metadata"]["resourceVersion"]
            if event["type"] == "BOOKMARK":
                continue
            gone = event["type"] == "DELETED"
            if gone:
                known.pop(manifest["metadata"]["uid"], None)
            else:
                known[manifest["metadata"]["uid"]] = manifest
            note(time.time(), manifest, gone=gone)
            if self._stopped.is_set():
                break
        return version

    def _note_pod(self, at: float, manifest: Mapping[str, Any], *, gone: bool) -> None:
        pod = read_pod(at, manifest, gone=gone)
        if pod is not None:
            self._pods[pod.uid] = pod
            self.records.pods.append(pod)

    def _note_jobset(self, at: float, manifest: Mapping[str, Any], *, gone: bool) -> None:
        jobset = read_jobset(at, manifest, gone=gone)
        if jobset is not None:
            self._jobsets[jobset.uid] = jobset
            self.records.jobsets.append(jobset)

    def _note_job(self, at: float, manifest: Mapping[str, Any], *, gone: bool) -> None:
        job = read_job(at, manifest, gone=gone)
        self._jobs[job.name] = job
        self.records.jobs.append(job)

    def _note_actor(self, at: float, manifest: Mapping[str, Any], *, gone: bool) -> None:
        actor = read_actor(at, manifest, gone=gone)
        self._actors[actor.name] = actor
        self.records.actors.append(actor)

    def _note_lease(self, at: float, manifest: Mapping[str, Any], *, gone: bool) -> None:
        if manifest["metadata"]["name"] == LEASE and not gone:
            self.records.leases.append(read_lease(at, manifest))


def _last(seen: Mapping[str, _Sighting]) -> dict[str, _Sighting]:
    """Return what is there by the last sightings, without their times."""
    return {key: replace(one, at=0.0) for key, one in list(seen.items()) if not one.gone}
