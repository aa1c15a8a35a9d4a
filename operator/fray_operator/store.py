"""The objects of a kind that have not finished, as last seen: by kopf's events and our own writes.

Of finished ones, of which there may be thousands, only those are remembered that are to be deleted some day:
by their uid, version and that day. Who is whose child is known of unfinished ones only.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from fray.kube.api import Manifest
from fray.plan.pod_observation import is_ending
from fray.plan.raw_jobs import ParentState, derive_expiry, get_parent_name
from fray.vocabulary import ConditionType
from fray_operator.list_watch import Place, place_of
from fray_operator.shared_answers import SharedAnswer

__all__ = ["Finished", "Store"]


LARGE = 1 << 15
"""Characters of a manifest from which on its spec isn't kept."""
CUT = "frayCut"
"""Marks a manifest in the store of which a part isn't kept."""


@dataclass(slots=True)
class Finished:
    """A finished object that is to be deleted at a time; `looked_at` once a pass has seen it."""

    uid: str
    version: str
    expires_at: datetime
    looked_at: bool = False


class Store:
    """The newest known manifest of each unfinished object of a kind; of a large one all but its spec.

    `on_kin` is called with the place of one that must be looked at again because of what came of another one:
    its parent has ended or is being deleted, or the last of its children has ended, for which it waited.
    `wants_keys` says of an object whether its pods mount the Secret `fray-auth`.
    """

    def __init__(
        self,
        on_kin: Callable[[Place], None] = lambda _: None,
        *,
        wants_keys: Callable[[Manifest], bool] = lambda _: False,
    ) -> None:
        self._on_kin, self._wants_keys = on_kin, wants_keys
        self._jobs: dict[Place, Manifest] = {}
        self._finished: dict[Place, Finished] = {}
        self._children: dict[Place, set[Place]] = {}
        self._key_users: set[Place] = set()
        self._parents: dict[Place, SharedAnswer[ParentState | None]] = {}
        self._readers: list[set[str]] = []
        """The uids of jobs that have finished or are gone since, for each reading that goes on."""
        self.complete = asyncio.Event()
        """Set while all jobs of the server are known, but for those that a watch is about to report."""

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Place]:
        return iter(list(self._jobs))

    def get(self, key: Place) -> Manifest | None:
        """Return a job's manifest, or None when it has finished or is gone."""
        return self._jobs.get(key)

    def is_cut(self, manifest: Manifest) -> bool:
        """Return whether a manifest from here is so large that the server must be asked for all of it."""
        return CUT in manifest

    def find_namespaces_with_keys(self) -> set[str]:
        """Return where there are objects whose pods mount `fray-auth`."""
        return {namespace for namespace, _ in self._key_users}

    def get_finished(self, key: Place) -> Finished | None:
        """Return what is known of a finished job that is to be deleted."""
        return self._finished.get(key)

    def has_children(self, key: Place) -> bool:
        """Return whether a job of this name has launched one that has not finished."""
        return key in self._children

    def knows(self, uid: str) -> bool:
        """Return whether an unfinished job has this uid."""
        return any(manifest["metadata"]["uid"] == uid for manifest in self._jobs.values())

    def put(self, manifest: Manifest) -> bool:
        """Keep a manifest, or what matters of it once it has finished; return whether it tells anything new.

        A version that is known, or older than the one known, changes nothing: it is a watch event that was
        overtaken by the answer to our own write.
        """
        self._parents.pop(place_of(manifest), None)
        return self._keep(manifest)

    def _keep(self, manifest: Manifest) -> bool:
        metadata, key = manifest["metadata"], place_of(manifest)
        known = self._jobs.get(key)
        if known is not None and not _is_newer(metadata, known["metadata"]):
            return False
        finished = _has_finished(manifest)
        if finished or is_ending(manifest) or (known and known["metadata"]["uid"] != metadata["uid"]):
            self._tell_children(key)
        if finished:
            self._note_end(metadata["uid"])
            changed = self._remember_end(key, manifest)
            return self._drop(key) or changed
        if known is not None and get_parent_name(known) != get_parent_name(manifest):
            self._drop(key)
        self._finished.pop(key, None)
        kept = {name: value for name, value in metadata.items() if name != "managedFields"}
        self._key_users.discard(key)
        if self._wants_keys(manifest):
            self._key_users.add(key)
        self._jobs[key] = _cut({**manifest, "metadata": kept})
        parent = get_parent_name(manifest)
        if parent is not None:
            self._children.setdefault((key[0], parent), set()).add(key)
        return True

    def look_at_relatives(self) -> None:
        """Have each job looked at again that acts, or doesn't, because of another one.

        That may be gone, without the watch having reported it.
        """
        self._parents.clear()
        for parent, children in list(self._children.items()):
            for key in (parent, *children):
                self._on_kin(key)

    async def learn(self, namespace: str | None, manifests: AsyncIterator[Manifest]) -> None:
        """Keep what is read of all jobs of a namespace, or of all, before any watch reported them.

        What is missing is dropped. Nothing is kept of jobs that have finished, or were deleted, while it was
        read: it may be older than that, and no event would come any more to say so.
        """
        ended: set[str] = set()
        known = {
            key: body["metadata"]["uid"] for key, body in self._jobs.items() if namespace in (None, key[0])
        }
        self._readers.append(ended)
        try:
            async for manifest in manifests:
                metadata, key = manifest["metadata"], place_of(manifest)
                if known.get(key) == metadata["uid"]:
                    del known[key]
                if metadata["uid"] not in ended and self._keep(manifest):
                    self._on_kin(key)
        finally:
            self._readers.remove(ended)
        for key, uid in known.items():
            if uid not in ended:
                self.discard(key, uid=uid)
                self._on_kin(key)

    def update(self, manifest: Manifest) -> bool:
        """Keep the answer to our own write; return False when the job was dropped since.

        That a finished job is to be deleted is left to the watch to tell: what came before, such as a child
        that the job launched as its last act, is known before.
        """
        metadata, key = manifest["metadata"], place_of(manifest)
        known = self._jobs.get(key)
        if known is None or known["metadata"]["uid"] != metadata["uid"]:
            return False
        if _has_finished(manifest):
            self._note_end(metadata["uid"])
            self._drop(key)
        else:
            self.put(manifest)
        return True

    def discard(self, key: Place, *, uid: str) -> None:
        """Drop a job that is gone, but not another one that has taken its name."""
        self._note_end(uid)
        self._parents.pop(key, None)
        self._tell_children(key)
        self.forget_finished(key, uid=uid)
        known = self._jobs.get(key)
        if known is not None and known["metadata"]["uid"] == uid:
            self._drop(key)

    def forget_finished(self, key: Place, *, uid: str) -> None:
        """Drop what is known of a finished job."""
        finished = self._finished.get(key)
        if finished is not None and finished.uid == uid:
            del self._finished[key]

    def share_parent(
        self, key: Place, ask: Callable[[], Awaitable[ParentState | None]]
    ) -> SharedAnswer[ParentState | None]:
        """Return what the server says of a parent, one answer for all its children.

        It is good until the watch tells of that job, and kept until the last of its children has ended.
        """
        answer = self._parents.get(key) or SharedAnswer(ask, seconds=math.inf)
        if key in self._children:
            self._parents[key] = answer
        return answer

    def _remember_end(self, key: Place, manifest: Manifest) -> bool:
        """Remember that a finished job is to be deleted, if it is; return whether that is news."""
        metadata = manifest["metadata"]
        expires_at = None if is_ending(manifest) else derive_expiry(manifest)
        known = self._finished.get(key)
        if known is not None and known.uid == metadata["uid"]:
            if int(metadata["resourceVersion"]) < int(known.version):
                return False
            if expires_at == known.expires_at:
                known.version = metadata["resourceVersion"]
                return False
        if expires_at is None:
            self._finished.pop(key, None)
            return False
        self._finished[key] = Finished(metadata["uid"], metadata["resourceVersion"], expires_at)
        return True

    def _note_end(self, uid: str) -> None:
        """Let no reading that goes on bring a job back that has finished or is gone."""
        for ended in self._readers:
            ended.add(uid)

    def _drop(self, key: Place) -> bool:
        """Forget an unfinished job; return whether there was one."""
        manifest = self._jobs.pop(key, None)
        if manifest is None:
            return False
        self._key_users.discard(key)
        name = get_parent_name(manifest)
        parent = key[0], name or ""
        children = self._children.get(parent)
        if children is not None:
            children.discard(key)
            if not children:
                del self._children[parent]
                self._parents.pop(parent, None)
                if parent in self._finished:
                    self._on_kin(parent)
        return True

    def _tell_children(self, key: Place) -> None:
        for child in self._children.get(key, ()):
            self._on_kin(child)


def _cut(manifest: Manifest) -> Manifest:
    """Return a manifest as it is kept: a large one without what only a pass over it needs."""
    if len(json.dumps(manifest)) < LARGE:
        return manifest
    large = ("annotations", "labels")
    metadata = {name: value for name, value in manifest["metadata"].items() if name not in large}
    spec = {name: value for name, value in manifest.get("spec", {}).items() if name == "parent"}
    return {**manifest, "metadata": metadata, "spec": spec, CUT: True}


def _is_newer(new: Manifest, known: Manifest) -> bool:
    """Return whether `new` is a newer version of the same object, or another object.

    Resource versions may be compared as numbers: Kubernetes promises it since 1.35, etcd gives nothing else.
    """
    return new["uid"] != known["uid"] or int(new["resourceVersion"]) > int(known["resourceVersion"])


def _has_finished(manifest: Manifest) -> bool:
    conditions = manifest.get("status", {}).get("conditions", [])
    return any(c["type"] == ConditionType.FINISHED and c["status"] == "True" for c in conditions)
