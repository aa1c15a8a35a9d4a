"""A cache of objects that belong to those of a kind, kept by list and watch: JobSets and pods of FrayJobs.

kopf keeps something of every object that it sees, so it watches only Fray's own kinds. Objects are
trimmed before they are kept, and kept packed: those of finished jobs are there by the thousand without ever
being asked for. Each change tells whose the object is; what the change means is nobody's business here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from fray.kube.api import KubeApi, Manifest
from fray.kube.resources import Resource
from fray.plan.kueue import trim_number
from fray.plan.pod_disruption import MARKS
from fray.vocabulary import (
    ANNOTATION_AVOIDED,
    ANNOTATION_KUEUE_ELASTIC,
    LABEL_ACTOR,
    LABEL_ACTOR_UID,
    LABEL_ATTEMPT,
    LABEL_COMPLETION_INDEX,
    LABEL_CONTROLLER_UID,
    LABEL_JOB,
    LABEL_JOB_INDEX,
    LABEL_JOB_UID,
    LABEL_JOBSET_NAME,
    LABEL_JOBSET_UID,
    LABEL_KUEUE_PRIORITY,
    LABEL_KUEUE_QUEUE,
    LABEL_MANAGED_BY,
    LABEL_POD_INDEX,
    LABEL_REPLICATED_JOB,
    LABEL_ROLE,
    Role,
)
from fray_operator.kinds import Kind
from fray_operator.list_watch import PAGE, ListWatch, Place, place_of
from fray_operator.packing import Packer

__all__ = [
    "Informer",
    "JobKey",
    "trim_actor_pod",
    "trim_actor_report",
    "trim_attempts_job",
    "trim_job",
    "trim_jobset",
    "trim_pod",
    "trim_stateful_set",
    "trim_worker_job",
]

JobKey = Place
"""Namespace and name of a FrayJob."""

WHERE = ("nodeSelector", "tolerations", "affinity", "schedulingGates")
METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
WORKER_STATUS = (
    "active",
    "completedIndexes",
    "conditions",
    "failed",
    "ready",
    "succeeded",
    "terminating",
)
REPORTED = ("podUid", "startNumber", "ready", "restarts", "exhausted", "lastError", "idle", "ended")
LONGEST_REPORT = 1 << 16
LABELS = frozenset(
    {
        LABEL_ACTOR,
        LABEL_ACTOR_UID,
        LABEL_ATTEMPT,
        LABEL_COMPLETION_INDEX,
        LABEL_CONTROLLER_UID,
        LABEL_JOB,
        LABEL_JOBSET_NAME,
        LABEL_JOBSET_UID,
        LABEL_JOB_INDEX,
        LABEL_JOB_UID,
        LABEL_KUEUE_PRIORITY,
        LABEL_KUEUE_QUEUE,
        LABEL_MANAGED_BY,
        LABEL_POD_INDEX,
        LABEL_REPLICATED_JOB,
        LABEL_ROLE,
    }
)
"""Those by which anything is decided, beside a kind's own; anybody may add more than fit into memory."""


class Informer(ListWatch):
    """All objects of a resource that carry the label of a kind, in one namespace or in all.

    `trim` returns what is kept of an object, and `on_change` gets the owner of each that changes.
    With `metadata_only` nothing else is asked for, with a `role` for those alone that say so.
    What `outlives` says so of is kept beyond its deletion, as it was last, until `forget_gone`.
    """

    def __init__(  # noqa: PLR0913 - each resource differs in them
        self,
        api: KubeApi,
        resource: Resource,
        kind: Kind[Any],
        *,
        namespace: str | None,
        on_change: Callable[[Place], None],
        trim: Callable[[Manifest], Manifest],
        metadata_only: bool = False,
        role: Role | None = None,
        outlives: Callable[[Manifest], bool] = lambda _: False,
    ) -> None:
        labels = kind.label if role is None else f"{kind.label},{LABEL_ROLE}={role}"
        super().__init__(api, resource, namespace=namespace, labels=labels, metadata_only=metadata_only)
        self._kind, self._on_change, self._trim, self._outlives = kind, on_change, trim, outlives
        self._packer = Packer()
        self._packed: dict[Place, bytes] = {}
        self._by_owner: defaultdict[Place, set[Place]] = defaultdict(set)
        self._gone: defaultdict[Place, dict[str, bytes]] = defaultdict(dict)
        """The last states of objects that are gone, by uid."""

    def get(self, namespace: str, name: str) -> Manifest | None:
        """Return an object, or None."""
        packed = self._packed.get((namespace, name))
        return None if packed is None else self._packer.unpack(packed)

    def find(self, reference: Manifest, *, namespace: str) -> Manifest | None:
        """Return the object that one of this namespace refers to, as to its owner: by name and uid."""
        found = self.get(namespace, reference["name"])
        return found if found is not None and found["metadata"]["uid"] == reference["uid"] else None

    def of_job(self, key: Place) -> list[Manifest]:
        """Return all objects that belong to one, by name: what is shown must not depend on chance."""
        return [self._packer.unpack(self._packed[place]) for place in sorted(self._by_owner.get(key, ()))]

    def gone_of_job(self, key: Place) -> list[Manifest]:
        """Return the last states of objects of one's that are gone and have outlived it."""
        return [self._packer.unpack(packed) for packed in self._gone.get(key, {}).values()]

    def forget_gone(self, key: Place, uids: Iterable[str] | None = None) -> None:
        """Forget what was kept of objects of one's that are gone: of these, or of all."""
        gone = self._gone.get(key, {})
        for uid in tuple(gone) if uids is None else uids:
            gone.pop(uid, None)
        if not gone:
            self._gone.pop(key, None)

    def remember(self, manifest: Manifest) -> None:
        """Keep an object that was just written or read, so that the next look sees it before the watch does.

        One without the label, whom somebody took it from, is known by its owner, and no watch tells of it.
        """
        known = self.get(*place_of(manifest))
        if self.owner_of(manifest) is None or (known is not None and _is_newer(known, manifest)):
            return  # the watch may have reported a later change before the answer came
        labelled = self._kind.label in manifest["metadata"].get("labels", {})
        if known is None and labelled and _is_version_up_to(manifest["metadata"], self._listed_version):
            return  # it has reported the end too, and will never do so again
        self._store(manifest)

    def forget(self, known: Manifest) -> None:
        """Drop an object that no watch tells of and that is gone, unless it has changed since."""
        if self.get(*place_of(known)) == known:
            self._forget(place_of(known))

    async def read(self, *, namespace: str, labels: str) -> list[Manifest]:
        """Return what would be kept of the objects that the server has by these labels; raises `ApiError`."""
        pages = self._api.list_pages(
            self.resource, namespace=namespace, labels=labels, limit=PAGE, metadata_only=self._metadata_only
        )
        return [kept async for page in pages for item in page.items if (kept := self._admit(item))]

    def _places(self) -> set[Place]:
        return set(self._packed)

    def _lose(self, place: Place) -> None:
        self._bury(self.get(*place))
        self._forget(place)

    def _end(self, last: Manifest) -> None:
        self._bury(self._admit(last))
        self._forget(place_of(last), uid=last["metadata"]["uid"])

    def _admit(self, manifest: Manifest) -> Manifest | None:
        """Return what is kept of an object, None where it belongs to nobody.

        Anybody may give an object an empty label, which selects it too.
        """
        if self.owner_of(manifest) is None:
            return None
        kept, own = self._trim(manifest), _select(manifest["metadata"].get("labels", {}), (self._kind.label,))
        if own:
            kept["metadata"]["labels"] |= own
        return kept

    def _store(self, manifest: Manifest) -> bool:
        """Keep an object as it is now; return whether it is one to be kept."""
        place, kept = place_of(manifest), self._admit(manifest)
        if kept is None:
            self._forget(place)
        else:
            self._keep(kept)
        return kept is not None

    def _keep(self, kept: Manifest) -> None:
        place, owner, uid = place_of(kept), self._require_owner(kept), kept["metadata"]["uid"]
        known, packed = self._packed.get(place), self._packer.pack(kept)
        if packed == known:
            return  # a pass that reads what it knows must not be the cause of the next one
        if known is not None:
            before = self._packer.unpack(known)
            if self.owner_of(before) != owner or before["metadata"]["uid"] != uid:
                self._forget(place)  # somebody gave it to another owner, or it is another object
        self._packed[place] = packed
        self._by_owner[owner].add(place)
        self._report(owner, kept)

    def _report(self, owner: Place, kept: Manifest) -> None:
        """Tell that an object is new, or has changed to this."""
        del kept
        self._on_change(owner)

    def _bury(self, last: Manifest | None) -> None:
        """Keep the last state of an object that is gone, if it tells anything."""
        owner = None if last is None else self.owner_of(last)
        if last is not None and owner is not None and self._outlives(last):
            self._gone[owner][last["metadata"]["uid"]] = self._packer.pack(last)

    def _forget(self, place: Place, *, uid: str | None = None) -> None:
        """Drop the object of this place; with a uid only that one, for a newer one may be there already."""
        manifest = self.get(*place)
        if manifest is None or uid not in (None, manifest["metadata"]["uid"]):
            return
        del self._packed[place]
        owner = self._require_owner(manifest)
        places = self._by_owner[owner]
        places.discard(place)
        if not places:
            del self._by_owner[owner]
        self._on_change(owner)

    def owner_of(self, manifest: Manifest) -> Place | None:
        """Return where the object is that another says it belongs to."""
        name = self._kind.find_owner(manifest)
        return None if name is None else (manifest["metadata"]["namespace"], name)

    def _require_owner(self, manifest: Manifest) -> Place:
        owner = self.owner_of(manifest)
        assert owner is not None
        return owner


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


def _is_version_up_to(metadata: Manifest, limit: str) -> bool:
    version = str(metadata.get("resourceVersion"))
    return version.isdecimal() and limit.isdecimal() and int(version) <= int(limit)


def trim_job(manifest: Manifest) -> Manifest:
    """Return what a Job is known by: it is only asked who controls it."""
    return {"metadata": _trim_metadata(manifest["metadata"])}


def trim_attempts_job(manifest: Manifest) -> Manifest:
    """Return what a Job of an attempt tells of its end."""
    return {
        "metadata": _trim_metadata(manifest["metadata"]),
        "status": _select(manifest.get("status", {}), ("conditions",)),
    }


def trim_worker_job(manifest: Manifest) -> Manifest:
    """Return what decisions need of a Job of workers."""
    return {
        "metadata": {
            **_trim_metadata(manifest["metadata"]),
            "annotations": _select(manifest["metadata"].get("annotations", {}), (ANNOTATION_KUEUE_ELASTIC,)),
        },
        "spec": _select(manifest.get("spec", {}), ("completions",)),
        "status": _select(manifest.get("status", {}), WORKER_STATUS),
    }


def trim_jobset(manifest: Manifest) -> Manifest:
    """Return what decisions need of a JobSet."""
    return {
        "metadata": _trim_metadata(manifest["metadata"]),
        "spec": {
            "suspend": manifest.get("spec", {}).get("suspend", False),
            "replicatedJobs": trim_number(manifest),
        },
        "status": _select(manifest.get("status", {}), ("conditions", "terminalState")),
    }


def trim_pod(manifest: Manifest) -> Manifest:
    """Return what decisions and explanations need of a pod."""
    spec, status = manifest.get("spec", {}), manifest.get("status", {})
    # Where it may go matters only until it is there.
    kept = ("nodeName",) if spec.get("nodeName") else WHERE
    return {
        "metadata": _trim_metadata(manifest["metadata"]),
        "spec": {
            **_select(spec, kept),
            "containers": [
                _select(container, ("name", "resources")) for container in spec.get("containers", [])
            ],
            **_keep_sidecars(spec.get("initContainers", [])),
        },
        "status": {
            **_select(status, ("phase", "reason", "message", "startTime")),
            "conditions": [
                condition
                for condition in status.get("conditions", [])
                if condition["type"] in ("PodScheduled", *MARKS)
            ],
            "containerStatuses": _trim_containers(status.get("containerStatuses", [])),
            "initContainerStatuses": _trim_containers(status.get("initContainerStatuses", [])),
        },
    }


def trim_stateful_set(manifest: Manifest) -> Manifest:
    """Return what decisions need of an actor's StatefulSet."""
    return {
        "metadata": {
            **_trim_metadata(manifest["metadata"]),
            "annotations": _select(manifest["metadata"].get("annotations", {}), (ANNOTATION_AVOIDED,)),
        },
        "spec": _select(manifest.get("spec", {}), ("replicas",)),
    }


def trim_actor_pod(manifest: Manifest) -> Manifest:
    """Return what a member's status needs of its pod: also where it is, and whether it takes calls."""
    status = manifest.get("status", {})
    kept = trim_pod(manifest)
    kept["status"] |= _select(status, ("podIP",))
    kept["status"]["conditions"] += [
        condition for condition in status.get("conditions", []) if condition["type"] == "Ready"
    ]
    return kept


def trim_actor_report(manifest: Manifest) -> Manifest:
    """Return what a member says of itself; what it says at too great a length isn't kept."""
    data = manifest.get("data") or {}
    return {
        "metadata": _trim_metadata(manifest["metadata"]),
        "data": {
            name: data[name] for name in REPORTED if len(data.get(name, "")) <= LONGEST_REPORT if name in data
        },
    }


def _keep_sidecars(containers: Iterable[Manifest]) -> Manifest:
    """Return which init containers are sidecars, where there are any."""
    found = [_select(each, ("name", "restartPolicy")) for each in containers if "restartPolicy" in each]
    return {"initContainers": found} if found else {}


def _trim_containers(containers: Iterable[Manifest]) -> list[Manifest]:
    return [
        _select(container, ("name", "state", "image", "restartCount", "lastState", "containerID"))
        for container in containers
    ]


def _trim_metadata(metadata: Manifest) -> Manifest:
    kept = _select(metadata, METADATA)
    if "labels" in metadata:
        kept["labels"] = {k: v for k, v in metadata["labels"].items() if k in LABELS}
    if "ownerReferences" in metadata:
        kept["ownerReferences"] = sorted(
            metadata["ownerReferences"], key=lambda owner: not owner.get("controller")
        )[:2]
    return kept


def _select(mapping: Manifest, keys: Iterable[str]) -> dict[str, Any]:
    return {key: mapping[key] for key in keys if key in mapping}
