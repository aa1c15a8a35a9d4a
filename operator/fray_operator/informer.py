"""A cache of labelled objects, kept by list and watch: JobSets and pods that belong to FrayJobs.

kopf keeps something of every object that it sees, so it watches only Fray's own kinds. Objects are
trimmed before they are kept, and kept as text: as Python objects they take four times as much memory, and
those of finished jobs are there by the thousand without ever being asked for. Each change puts its FrayJob's
key on the queue; what the change means is nobody's business here.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from fray.kube.api import KubeApi, Manifest
from fray.kube.errors import ApiError, ExpiredError, UnreachableError
from fray.kube.resources import Resource
from fray.vocabulary import FRAYJOB_KIND, LABEL_JOB

__all__ = ["PAGE", "Informer", "JobKey", "trim_jobset", "trim_pod"]

logger = logging.getLogger(__name__)

JobKey = tuple[str, str]
"""Namespace and name of a FrayJob."""

PAGE = 100
"""Objects to a page of a list. What one takes while it is read, the process doesn't give back."""
RETRY_CAP_SECONDS = 30.0
SHORT_WATCH_SECONDS = 1.0
"""A watch that ends sooner was not ended by the server's timeout."""

_Place = tuple[str, str]


class Informer:
    """All objects of a resource that carry the label of a FrayJob, in one namespace or in all."""

    def __init__(
        self,
        api: KubeApi,
        resource: Resource,
        *,
        namespace: str | None,
        on_change: Callable[[JobKey], None],
        trim: Callable[[Manifest], Manifest],
    ) -> None:
        self._api, self._resource, self._namespace = api, resource, namespace
        self._on_change, self._trim = on_change, trim
        self._texts: dict[_Place, bytes] = {}
        self._by_job: defaultdict[JobKey, set[_Place]] = defaultdict(set)
        self._loop = asyncio.get_running_loop()
        self._heard_at: float | None = None
        self._failures = 0
        self._told = ""
        """The version up to which every change is known."""
        self.synced = asyncio.Event()

    @property
    def silent_seconds(self) -> float:
        """How long nothing, not even a bookmark, was heard from the server."""
        return float("inf") if self._heard_at is None else self._loop.time() - self._heard_at

    def get(self, namespace: str, name: str) -> Manifest | None:
        """Return an object, or None."""
        text = self._texts.get((namespace, name))
        return None if text is None else _unpack(text)

    def of_job(self, key: JobKey) -> list[Manifest]:
        """Return all objects that belong to a FrayJob, by name: what is told must not depend on chance."""
        return [_unpack(self._texts[place]) for place in sorted(self._by_job.get(key, ()))]

    def remember(self, manifest: Manifest) -> None:
        """Keep an object that was just written or read, so that the next look sees it before the watch does.

        One without the label, whom somebody took it from, is known by its owner, and no watch tells of it.
        """
        known = self.get(*_place(manifest))
        if _job_name(manifest) is None or (known is not None and _is_newer(known, manifest)):
            return  # the watch may have told of a later change before the answer came
        labelled = LABEL_JOB in manifest["metadata"].get("labels", {})
        if known is None and labelled and _is_version_up_to(manifest["metadata"], self._told):
            return  # it has told of the end too, and will never tell of it again
        self._store(manifest)

    def forget(self, known: Manifest) -> None:
        """Drop an object that no watch tells of and that is gone, unless it has changed meanwhile."""
        if self.get(*_place(known)) == known:
            self._forget(_place(known))

    async def run(self) -> None:
        """List and watch for ever; errors are logged and tried again."""
        while True:
            try:
                version = await self._list()
                while True:
                    version = await self._watch(version)
            except ExpiredError as expired:
                logger.info("watch of %s is too old; listing again", self._resource)
                await self._pause(expired.retry_after_seconds)
            except ApiError as error:
                # A silent watch is cut by whoever is on the way, or by ourselves: that is routine. Trouble is
                # what can't be mended by asking again at once.
                routine = isinstance(error, UnreachableError) and not self._failures
                level = logging.DEBUG if routine else logging.WARNING
                logger.log(level, "watch of %s ended; listing again: %s", self._resource, error)
                await self._pause(error.retry_after_seconds)

    async def _pause(self, at_least: float | None = None) -> None:
        """Wait after a failure, longer after each in a row."""
        self._failures += 1
        # Spread: after an outage not all watchers must come back in the same instant.
        pause = min(RETRY_CAP_SECONDS, 0.1 * 2.0 ** min(self._failures, 10)) * random.uniform(0.5, 1.0)
        await asyncio.sleep(max(pause, at_least or 0.0))

    async def _list(self) -> str:
        # What is written while the list is read may be missing from it, and is not gone.
        known, seen = set(self._texts), set[_Place]()
        version = ""
        async for page in self._api.list_pages(
            self._resource, namespace=self._namespace, labels=LABEL_JOB, limit=PAGE
        ):
            for item in page.items:
                seen.add(self._store(item))
            version = page.resource_version
            self._heard_at = self._loop.time()
        for place in sorted(known - seen):
            self._forget(place)
        self._told = version
        self.synced.set()
        return version

    async def _watch(self, version: str) -> str:
        """Follow changes until the server ends the watch; return the version to go on from."""
        events = self._api.watch(
            self._resource, resource_version=version, namespace=self._namespace, labels=LABEL_JOB
        )
        started = self._loop.time()
        try:
            async for event in events:
                self._heard_at = self._loop.time()
                self._failures = 0
                version = event.object["metadata"]["resourceVersion"]
                if event.type == "DELETED":
                    self._forget(_place(event.object), uid=event.object["metadata"]["uid"])
                elif event.type != "BOOKMARK":
                    self._store(event.object)
                self._told = version
        finally:
            if self._loop.time() - started >= RETRY_CAP_SECONDS:
                # Nothing to tell, and then cut, as idle connections are: no failure in a row.
                self._failures = 0
        if self._loop.time() - started < SHORT_WATCH_SECONDS:
            # Somebody on the way ends watches at once; asking again at once would be a storm.
            await self._pause()
        self._heard_at = self._loop.time()
        return version

    def _store(self, manifest: Manifest) -> _Place:
        place = _place(manifest)
        if _job_name(manifest) is None:
            # Anybody may give an object an empty label, which selects it too: it belongs to no FrayJob.
            self._forget(place)
            return place
        key = _job_key(manifest)
        known, text = self._texts.get(place), _pack(self._trim(manifest))
        if text == known:
            return place  # a pass that reads what it knows must not be the cause of the next one
        if known is not None and _job_key(_unpack(known)) != key:
            self._forget(place)  # somebody gave it to another job
        self._texts[place] = text
        self._by_job[key].add(place)
        self._on_change(key)
        return place

    def _forget(self, place: _Place, *, uid: str | None = None) -> None:
        """Drop the object of this place; with a uid only that one, for a newer one may be there already."""
        manifest = self.get(*place)
        if manifest is None or uid not in (None, manifest["metadata"]["uid"]):
            return
        del self._texts[place]
        key = _job_key(manifest)
        places = self._by_job[key]
        places.discard(place)
        if not places:
            del self._by_job[key]
        self._on_change(key)


def _pack(manifest: Manifest) -> bytes:
    """Return an object as text, the same for the same object."""
    return json.dumps(manifest, separators=(",", ":"), sort_keys=True).encode()


def _unpack(text: bytes) -> Manifest:
    manifest: Manifest = json.loads(text)
    return manifest


def _is_newer(manifest: Manifest, other: Manifest) -> bool:
    """Return whether an object is a later state of another.

    Resource versions of one resource are whole numbers that grow:
    https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
    """
    metadata, others = manifest["metadata"], other["metadata"]
    if metadata["uid"] != others["uid"]:
        return False
    version, than = (str(each.get("resourceVersion")) for each in (metadata, others))
    return version.isdecimal() and than.isdecimal() and int(version) > int(than)


def _is_version_up_to(metadata: Manifest, told: str) -> bool:
    version = str(metadata.get("resourceVersion"))
    return version.isdecimal() and told.isdecimal() and int(version) <= int(told)


def _place(manifest: Manifest) -> _Place:
    metadata = manifest["metadata"]
    return metadata["namespace"], metadata["name"]


def _job_key(manifest: Manifest) -> JobKey:
    name = _job_name(manifest)
    assert name is not None
    return manifest["metadata"]["namespace"], name


def _job_name(manifest: Manifest) -> str | None:
    """Return the name of an object's FrayJob: as its label says, or else the FrayJob that controls it."""
    metadata = manifest["metadata"]
    owners = metadata.get("ownerReferences", [])
    named = [o["name"] for o in owners if o.get("controller") and o.get("kind") == FRAYJOB_KIND]
    name: str | None = metadata.get("labels", {}).get(LABEL_JOB) or next(iter(named), None)
    return name


def trim_jobset(manifest: Manifest) -> Manifest:
    """Return what decisions need of a JobSet."""
    return {
        "metadata": _trim_metadata(manifest["metadata"]),
        "spec": {"suspend": manifest.get("spec", {}).get("suspend", False)},
        "status": _keep(manifest.get("status", {}), ("conditions", "terminalState")),
    }


def trim_pod(manifest: Manifest) -> Manifest:
    """Return what decisions and explanations need of a pod."""
    spec, status = manifest.get("spec", {}), manifest.get("status", {})
    return {
        "metadata": _trim_metadata(manifest["metadata"]),
        "spec": {
            **_keep(spec, ("nodeName", "nodeSelector", "tolerations", "affinity", "schedulingGates")),
            "containers": [
                _keep(container, ("name", "resources")) for container in spec.get("containers", [])
            ],
        },
        "status": {
            **_keep(status, ("phase", "reason", "message", "startTime")),
            "conditions": [
                condition
                for condition in status.get("conditions", [])
                if condition["type"] in ("PodScheduled", "DisruptionTarget")
            ],
            "containerStatuses": _trim_containers(status.get("containerStatuses", [])),
            "initContainerStatuses": _trim_containers(status.get("initContainerStatuses", [])),
        },
    }


def _trim_containers(containers: Iterable[Manifest]) -> list[Manifest]:
    return [_keep(container, ("name", "state", "image")) for container in containers]


def _trim_metadata(metadata: Manifest) -> Manifest:
    return _keep(
        metadata,
        (
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "labels",
            "ownerReferences",
        ),
    )


def _keep(mapping: Manifest, keys: Iterable[str]) -> dict[str, Any]:
    return {key: mapping[key] for key in keys if key in mapping}
