"""The pods of FrayJobs: those whose controllers end, by uid, at a JobSet that is known.

Labels only say which pods to look at: anybody can set them. A pod counts when it is controlled by a JobSet
that Fray made, or by a Job of one, all in its namespace; its labels are then taken from that JobSet.
What isn't ours is dropped while it is read, so that memory is bounded by what is. Who may create pods in a
namespace can still name one of its Jobs as the controller of any pod: that is the Job controller's to see.

A pod may outlive its owners: where a JobSet is deleted in the background, the garbage collector takes the
JobSet first and its pods last. One that wasn't known before then is held until it is gone. It is no host of
any attempt, but no attempt starts beside it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from fray.kube.api import KubeApi, Manifest
from fray.kube.errors import ApiError, NotFoundError
from fray.kube.resources import JOBS, JOBSETS, PODS, Resource
from fray.plan.pod_observation import derive_pod_observation
from fray.vocabulary import (
    FRAYJOB_KIND,
    LABEL_ATTEMPT,
    LABEL_COMPLETION_INDEX,
    LABEL_JOB,
    LABEL_JOB_INDEX,
    LABEL_JOB_UID,
    LABEL_JOBSET_UID,
)
from fray.wire.frayjob import FrayJob
from fray_operator.informer import Informer, JobKey, trim_pod
from fray_operator.kinds import Kind
from fray_operator.list_watch import Place, find_controller, place_of

__all__ = ["PodInformer"]

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
"""How often it is looked whether the owners of held pods have become known."""
ASK_SECONDS = 1.0
"""How long their own watches have to tell of them, before the server is asked."""
HELD_PODS = 5_000
"""Pods that are held at once, at most, until it is known whose they are."""
HELD_BYTES = 8 << 20
FOREIGN_JOBS = 10_000
"""Jobs of others that are remembered, so that they are asked about once."""
PODS_PER_INDEX = 2
"""One that runs, and one before it that has yet to go."""
PROVEN = (LABEL_JOB, LABEL_JOB_UID, LABEL_JOBSET_UID, LABEL_ATTEMPT)
"""Labels of pods that are taken from their JobSet."""


@dataclass
class _Held:
    """Pods of a Job that isn't known, or whose JobSet isn't: by place, newest state last."""

    namespace: str
    controller: Manifest
    since: float
    pods: dict[Place, Manifest] = field(default_factory=dict)
    outlived: bool = False
    """Whether the server has said that the Job, or its JobSet, is no more."""


class _OutlivedError(Exception):
    """The Job of a pod, or the JobSet of that, is no more."""


class PodInformer(Informer):
    """The pods of all FrayJobs of a namespace, or of all namespaces.

    `jobs` and `jobsets` are the caches of their owners, which must be complete before this runs. Of each step
    of a pod that neither fails nor is taken away, `on_step` gets the owner and how many pods that has: a pass
    looks at all of them, and may wait for more such steps.
    """

    def __init__(  # noqa: PLR0913 - two caches more than others
        self,
        api: KubeApi,
        kind: Kind[FrayJob],
        *,
        namespace: str | None,
        on_change: Callable[[JobKey], None],
        on_step: Callable[[JobKey, int], None],
        jobs: Informer,
        jobsets: Informer,
        outlives: Callable[[Manifest], bool] = lambda _: False,
    ) -> None:
        super().__init__(
            api, PODS, kind, namespace=namespace, on_change=on_change, trim=trim_pod, outlives=outlives
        )
        self._jobs, self._jobsets, self._on_step = jobs, jobsets, on_step
        self._held: dict[str, _Held] = {}
        self._held_at: dict[Place, tuple[str, int]] = {}
        """The uid of the Job of each held pod, and its size."""
        self._held_bytes = 0
        self._holds = asyncio.Event()
        self._foreign: OrderedDict[str, None] = OrderedDict()
        self._by_index: dict[tuple[str, ...], list[Place]] = {}

    async def run(self) -> None:
        """List and watch for ever, and find out whose the pods are of which that isn't known."""
        async with asyncio.TaskGroup() as group:
            group.create_task(super().run())
            group.create_task(self._settle_held())

    def held_of_job(self, key: JobKey) -> list[Manifest]:
        """Return the pods that may be a FrayJob's: their owners aren't known, or are no more."""
        pods = (pod for held in self._held.values() for pod in held.pods.values())
        return [pod for pod in pods if self.owner_of(pod) == key]

    async def read(self, *, namespace: str, labels: str) -> list[Manifest]:
        """Return those by these labels whose Jobs are of a known JobSet; raises `ApiError`.

        Their Jobs are read too: the cache of Jobs may be behind.
        """
        pages = self._api.list_pages(JOBS, namespace=namespace, labels=labels, metadata_only=True)
        async for page in pages:
            for job in page.items:
                self._jobs.remember(job)
        return await super().read(namespace=namespace, labels=labels)

    def _admit(self, manifest: Manifest) -> Manifest | None:
        metadata = manifest["metadata"]
        known = self.get(*place_of(manifest))
        if known is not None and known["metadata"]["uid"] == metadata["uid"]:
            # Its owners may be gone before it is.
            return _relabel(self._trim(manifest), known["metadata"]["labels"])
        controller = find_controller(manifest)
        if controller is None:
            return None
        jobset = self._find_jobset(controller, metadata["namespace"])
        return None if jobset is None else _relabel(self._trim(manifest), _labels_of(jobset))

    def _store(self, manifest: Manifest) -> bool:
        self._release(place_of(manifest))
        stored = super()._store(manifest)
        if not stored:
            self._hold(manifest)
        return stored

    def _keep(self, kept: Manifest) -> None:
        super()._keep(kept)
        places = self._by_index.setdefault(_index_of(kept), [])
        if place_of(kept) not in places:
            places.append(place_of(kept))
        while len(places) > PODS_PER_INDEX:
            ages = {place: (self.get(*place) or kept)["metadata"]["creationTimestamp"] for place in places}
            self._forget(min(places, key=lambda place: ages[place]))

    def _report(self, owner: JobKey, kept: Manifest) -> None:
        pod = derive_pod_observation(kept)
        if pod.failed or pod.evidence is not None:
            self._on_change(owner)
        else:
            self._on_step(owner, len(self._by_owner[owner]))

    def _forget(self, place: Place, *, uid: str | None = None) -> None:
        self._release(place)
        known = self.get(*place)
        super()._forget(place, uid=uid)
        if known is not None and self.get(*place) is None:
            index = _index_of(known)
            self._by_index[index].remove(place)
            if not self._by_index[index]:
                del self._by_index[index]

    def _find_jobset(self, controller: Manifest, namespace: str) -> Manifest | None:
        """Return the JobSet that a pod's controller is, or that of that Job, if known and Fray's."""
        job = self._jobs.find(controller, namespace=namespace)
        above = find_controller(job) if job is not None else None
        jobset = self._jobsets.find(controller if above is None else above, namespace=namespace)
        return jobset if jobset is not None and _is_ours(jobset) else None

    # --- pods whose owners aren't known -----------------------------------------------------------------

    def _hold(self, manifest: Manifest) -> None:
        """Keep a pod aside until it is known whose it is, where it may be one of ours."""
        controller, namespace = find_controller(manifest), manifest["metadata"]["namespace"]
        if controller is None or controller["uid"] in self._foreign or not manifest["metadata"]["labels"]:
            return
        job = self._jobs.find(controller, namespace=namespace)
        above = None if job is None else find_controller(job)
        if controller.get("kind") not in ("Job", "JobSet") or (
            # Workers are controlled by a Job of their FrayJob's: they are no hosts.
            job is not None and (above is None or above.get("kind") == FRAYJOB_KIND)
        ):
            return
        kept = self._trim(manifest)
        fresh = _Held(namespace, controller, self._loop.time())
        held = self._held.setdefault(controller["uid"], fresh)
        held.pods[place_of(kept)] = kept
        size = len(str(kept))
        self._held_at[place_of(kept)] = controller["uid"], size
        self._held_bytes += size
        self._holds.set()
        while len(self._held_at) > HELD_PODS or self._held_bytes > HELD_BYTES:
            self._drop_held(next(iter(self._held)))

    def _release(self, place: Place) -> None:
        """Hold a pod no longer."""
        held = self._held_at.pop(place, None)
        if held is not None:
            uid, size = held
            self._held_bytes -= size
            self._tell_of(self._held[uid].pods.pop(place))
            if not self._held[uid].pods:
                del self._held[uid]

    def _tell_of(self, pod: Manifest) -> None:
        """Have a pass look again at the job that a held pod was in the way of."""
        if (key := self.owner_of(pod)) is not None:
            self._on_change(key)

    def _drop_held(self, job: str) -> list[Manifest]:
        """Hold the pods of a Job no longer; return them."""
        held = self._held.pop(job)
        for place in held.pods:
            self._held_bytes -= self._held_at.pop(place)[1]
        return list(held.pods.values())

    def _adopt(self, job: str, jobset: Manifest) -> None:
        for pod in self._drop_held(job):
            self._keep(_relabel(pod, _labels_of(jobset)))

    async def _settle_held(self) -> None:
        """Look for the owners of held pods: first in the caches, then on the server, one after the other."""
        while True:
            if not self._held:
                self._holds.clear()
                await self._holds.wait()
            await asyncio.sleep(LOOK_SECONDS)
            for uid, held in list(self._held.items()):
                jobset = self._find_jobset(held.controller, held.namespace)
                if jobset is not None:
                    self._adopt(uid, jobset)
            now = self._loop.time()
            unknown = ((uid, held) for uid, held in self._held.items() if not held.outlived)
            due = (uid for uid, held in unknown if now - held.since >= ASK_SECONDS)
            if (first := next(due, None)) is not None:
                await self._ask(first, self._held[first])

    async def _ask(self, uid: str, held: _Held) -> None:
        """Ask the server whose a Job is; once, unless it doesn't answer."""
        try:
            jobset = await self._look_up(uid, held)
        except _OutlivedError:
            held.outlived = True
            return
        except ApiError as error:
            logger.warning("a pod's Job can't be read; trying again: %s", error)
            held.since = self._loop.time()
            return
        if uid not in self._held:
            return  # its pods have gone since
        if jobset is not None:
            self._adopt(uid, jobset)
            return
        for pod in self._drop_held(uid):
            self._tell_of(pod)
        self._foreign[uid] = None
        if len(self._foreign) > FOREIGN_JOBS:
            self._foreign.popitem(last=False)

    async def _look_up(self, uid: str, held: _Held) -> Manifest | None:
        """Return the JobSet of a Job as the server has both, None where they aren't Fray's.

        Raises `_OutlivedError` and `ApiError`.
        """
        above: Manifest | None = held.controller
        if held.controller["kind"] == "Job":
            above = find_controller(await self._get(JOBS, uid, held.controller["name"], held.namespace))
        if above is None or above.get("kind") != "JobSet":
            return None
        jobset = self._jobsets.find(above, namespace=held.namespace)
        if jobset is None:
            jobset = await self._get(JOBSETS, above["uid"], above["name"], held.namespace)
            self._jobsets.remember(jobset)
        return jobset if _is_ours(jobset) else None

    async def _get(self, resource: Resource, uid: str, name: str, namespace: str) -> Manifest:
        try:
            found = await self._api.get(resource, name, namespace=namespace)
        except NotFoundError as error:
            raise _OutlivedError from error
        if found["metadata"]["uid"] != uid:
            raise _OutlivedError
        return found


def _is_ours(jobset: Manifest) -> bool:
    """Return whether a FrayJob controls a JobSet, or nobody does any more and it was made for one."""
    controller = find_controller(jobset)
    if controller is None:
        return LABEL_JOB_UID in jobset["metadata"].get("labels", {})
    return bool(controller.get("kind") == FRAYJOB_KIND)


def _labels_of(jobset: Manifest) -> dict[str, str]:
    """Return the labels by which pods of a JobSet are known: what its pods themselves say doesn't count."""
    labels, controller = jobset["metadata"].get("labels", {}), find_controller(jobset)
    proven = {**labels, LABEL_JOBSET_UID: jobset["metadata"]["uid"]}
    if controller is not None:
        proven |= {LABEL_JOB: controller["name"], LABEL_JOB_UID: controller["uid"]}
    return {label: proven[label] for label in PROVEN if label in proven}


def _relabel(pod: Manifest, proven: Manifest) -> Manifest:
    """Return a pod with these labels, as far as they are proven ones, instead of its own."""
    metadata = pod["metadata"]
    labels = {key: value for key, value in metadata.get("labels", {}).items() if key not in PROVEN}
    labels |= {key: value for key, value in proven.items() if key in PROVEN}
    return {**pod, "metadata": {**metadata, "labels": labels}}


def _index_of(pod: Manifest) -> tuple[str, ...]:
    labels = pod["metadata"]["labels"]
    # All pods of a JobSet share its uid.
    return tuple(
        sys.intern(labels.get(key, "")) for key in (LABEL_JOBSET_UID, LABEL_JOB_INDEX, LABEL_COMPLETION_INDEX)
    )
