"""How a member fares, as its pod tells it: a ConfigMap that callers read to find it.

The number of its starts and its restarts are kept there too, so that they go on when the pod's container is
restarted; the restarts also when another pod takes its place.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Protocol

from fray.errors import ActorReplacedError
from fray.kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from fray.kube.objects import Manifest
from fray.kube.resources import CONFIG_MAPS, Resource
from fray.runtime.actors.identity import ActorPod, Member
from fray.runtime.api.client import ObjectApi
from fray.runtime.pool.transport.addresses import Address
from fray.vocabulary import API_VERSION, FRAYACTOR_KIND, LABEL_ACTOR, LABEL_MANAGED_BY, MANAGED_BY

__all__ = [
    "LastError",
    "MemberRecord",
    "RecordApi",
    "RecordWriter",
    "derive_start",
    "is_spent",
    "read_record",
]

MOST_CONFLICTS: Final = 10


@dataclass(frozen=True)
class LastError:
    """Why the last run of an actor's process ended: an exception of its constructor, or what became of it."""

    type: str
    message: str
    traceback: str = ""
    constructing: bool = False
    """Whether the constructor, or what it needs, had not returned."""


@dataclass(frozen=True)
class MemberRecord:
    """What the pod of a member tells of it."""

    pod_uid: str
    start: int
    """Number of the actor's start in this pod, from 1."""
    address: str
    """Where it listens: `tcp:host:port`."""
    restarts: int = 0
    """How often the member was started again, in this pod and in those before it."""
    ready: bool = False
    """Whether the constructor has returned."""
    exhausted: bool = False
    """Whether the actor isn't started any more: it was, as often as it may be."""
    error: LastError | None = None
    failures: int = 0
    """How often in a row its constructor, or what that needs, has failed."""

    idle: bool = False
    """Whether nobody has called it for as long as its FrayActor says."""
    ended: str = ""
    """Why it has ended for good, by its own will; empty while it hasn't."""
    pod: str = ""
    """Name of the pod; empty: that of the member."""

    @property
    def at_rest(self) -> bool:
        """Whether nobody needs it: its actor ends once all members are so, and one not for its failures."""
        return self.idle or self.exhausted or bool(self.ended)

    def gave_up(self, max_task_retries: int) -> bool:
        """Return whether callers learn that its constructor fails: it is tried again all the same."""
        return not self.ready and 0 <= max_task_retries < self.failures

    def to_data(self) -> dict[str, str]:
        """Return it as the data of a ConfigMap."""
        error = None if self.error is None else asdict(self.error)
        return {
            "podUid": self.pod_uid,
            "startNumber": str(self.start),
            "address": self.address,
            "restarts": str(self.restarts),
            "ready": str(self.ready).lower(),
            "exhausted": str(self.exhausted).lower(),
            "lastError": "" if error is None else json.dumps(error),
            "failures": str(self.failures),
            "idle": str(self.idle).lower(),
            "ended": self.ended,
            "pod": self.pod,
        }

    @classmethod
    def from_data(cls, data: dict[str, str]) -> MemberRecord | None:
        """Return the record in a ConfigMap; None where it holds none: anybody may have written it."""
        try:
            error = data.get("lastError")
            return cls(
                data["podUid"],
                int(data["startNumber"]),
                data["address"],
                int(data["restarts"]),
                data.get("ready") == "true",
                data.get("exhausted") == "true",
                LastError(**json.loads(error)) if error else None,
                int(data.get("failures") or 0),
                data.get("idle") == "true",
                data.get("ended") or "",
                data.get("pod") or "",
            )
        except (KeyError, TypeError, ValueError):
            return None


def derive_start(found: MemberRecord | None, own: MemberRecord, max_restarts: int | None) -> MemberRecord:
    """Return the record of a member's next start in the pod of `own`; `found` is what stands there now.

    The first start of another pod is a restart of the member too. One more than `max_restarts` (None: no
    limit) isn't counted as one: the record keeps its numbers and is `exhausted`. Nor is one of a member that
    has ended for good.
    """
    before = replace(own, ready=False, idle=False)
    if found is None and own.start == 0:
        return replace(before, start=1)
    if found is not None and found.pod_uid == own.pod_uid:
        before = replace(found, address=own.address, ready=False, idle=False)
    elif found is not None:
        before = replace(
            before, restarts=found.restarts, error=found.error, failures=found.failures, ended=found.ended
        )
    if before.ended:
        return before
    if is_spent(before, max_restarts):
        return replace(before, exhausted=True)
    return replace(before, start=before.start + 1, restarts=before.restarts + 1)


def is_spent(record: MemberRecord, max_restarts: int | None) -> bool:
    """Return whether a member was started again as often as it may be; None: no limit."""
    return max_restarts is not None and record.restarts >= max_restarts


def read_record(api: ObjectApi, member: Member) -> MemberRecord | None:
    """Return what the member's pod has told; None: nothing yet. Raises `ApiError`."""
    found = _find(api, member)
    return None if found is None else MemberRecord.from_data(found.get("data") or {})


class RecordApi(ObjectApi, Protocol):
    """An API that can change objects, too."""

    def patch(
        self, resource: Resource, name: str, changes: Manifest, *, namespace: str | None = None
    ) -> Manifest:
        """Change these fields of an object of this version. Raises `ConflictError`, `NotFoundError`."""
        ...


class RecordWriter:
    """Writes the record of one pod. All methods raise `ApiError`, which an outage of the server causes."""

    def __init__(self, api: RecordApi, pod: ActorPod, address: Address) -> None:
        self._api = api
        self._pod = pod
        self._last = MemberRecord(pod.pod_uid, 0, str(address), pod=pod.name)
        self._begun: MemberRecord | None = None
        """The start that was counted, unless an answer says so."""

    def begin(self) -> MemberRecord:
        """Count a further start of the actor, and return the record of it.

        Where it was started as often as it may be, nothing is counted: the record says `exhausted`.
        Raises `ActorReplacedError` as `tell` does; a pod's first start takes an earlier pod's place.
        """
        found = read_record(self._api, self._pod.member)
        if found is None or found != self._begun:
            self._begun = derive_start(found, self._last, self._pod.max_restarts)
        # Else an earlier try was carried out whose answer was lost.
        started = self._begun
        self._write(started, takes_over=self._last.start == 0)
        self._begun = None
        return started

    def tell(self, **changes: Any) -> None:
        """Change what the record says.

        Raises `ActorReplacedError` if it is that of a later pod: this one is to end.
        """
        self._write(replace(self._last, **changes), takes_over=False)

    def _write(self, record: MemberRecord, *, takes_over: bool) -> None:
        member = self._pod.member
        conflict: ApiError | None = None
        for _ in range(MOST_CONFLICTS):
            found = _find(self._api, member)
            try:
                if found is None:
                    self._api.create(CONFIG_MAPS, self._build(record), namespace=self._api.namespace)
                else:
                    kept = MemberRecord.from_data(found.get("data") or {})
                    if not takes_over and kept is not None and kept.pod_uid != self._pod.pod_uid:
                        raise ActorReplacedError(member.name, member.index, kept.pod_uid)
                    version = found["metadata"]["resourceVersion"]
                    changes = {"metadata": {"resourceVersion": version}, "data": record.to_data()}
                    name, namespace = member.record_name, self._api.namespace
                    self._api.patch(CONFIG_MAPS, name, changes, namespace=namespace)
            except (AlreadyExistsError, ConflictError, NotFoundError) as changed:
                conflict = changed
                continue
            self._last = record
            return
        # Such as a ConfigMap of an earlier FrayActor of this name, which the garbage collector will take.
        assert conflict is not None
        raise conflict

    def _build(self, record: MemberRecord) -> Manifest:
        member = self._pod.member
        owner = {"apiVersion": API_VERSION, "kind": FRAYACTOR_KIND, "name": member.name, "uid": member.uid}
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": member.record_name,
                "labels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_ACTOR: member.name},
                "ownerReferences": [owner],
            },
            "data": record.to_data(),
        }


def _find(api: ObjectApi, member: Member) -> Manifest | None:
    """Return the ConfigMap of this FrayActor: one of the same name may have had it before."""
    try:
        found = api.get(CONFIG_MAPS, member.record_name, namespace=api.namespace)
    except NotFoundError:
        return None
    owners = found["metadata"].get("ownerReferences") or ()
    return found if any(owner.get("uid") == member.uid for owner in owners) else None
