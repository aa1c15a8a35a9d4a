"""Objects of Fray's own kinds, and what belongs to them, on the server; each write is fenced by the Lease."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from fray.kube.api import KubeApi, Manifest
from fray.kube.errors import (
    AlreadyExistsError,
    ForbiddenError,
    NotFoundError,
    RefusedError,
    ServerError,
)
from fray.kube.resources import EVENTS, Resource
from fray.plan.events import EventDraft
from fray.plan.observation import Waiting
from fray.plan.scheduling import derive_refusal
from fray.vocabulary import LABEL_MANAGED_BY, MANAGED_BY
from fray.wire.frayjob import ObjectMeta
from fray_operator.kinds import Kind
from fray_operator.lease import Lease
from fray_operator.list_watch import Place
from fray_operator.logs import job_context
from fray_operator.store import Store

__all__ = ["Writer", "create_child", "delete_child", "fetch"]

logger = logging.getLogger(__name__)

NAME_LIMIT = 253
NAMESPACE_ENDS = "because it is being terminated"
"""In the API server's message about what can't be created any more since the namespace is being deleted."""
WEBHOOK_FAILED = "failed calling webhook"
"""In the API server's message when a webhook it must ask gives no answer; it says 500 then."""


async def fetch(api: KubeApi, resource: Resource, metadata: Mapping[str, Any]) -> Manifest | None:
    """Return this very object as the server has it, None when it exists no more."""
    try:
        found = await api.get(resource, metadata["name"], namespace=metadata["namespace"])
    except NotFoundError:
        return None
    return found if found["metadata"]["uid"] == metadata["uid"] else None


async def create_child(
    api: KubeApi,
    lease: Lease,
    resource: Resource,
    child: Manifest,
    *,
    find_stranger: Callable[[Manifest], Waiting | None],
) -> Manifest | Waiting:
    """Create what belongs to an object, or find it where it is there; return it, or why it was refused.

    `find_stranger` returns why what has its name is somebody else's, None where it isn't.
    """
    metadata = child["metadata"]
    lease.require()
    try:
        return await api.create(resource, child)
    except AlreadyExistsError:
        found = await api.get(resource, metadata["name"], namespace=metadata.get("namespace"))
        return find_stranger(found) or found
    except (ForbiddenError, RefusedError, ServerError) as refused:
        if isinstance(refused, ServerError) and WEBHOOK_FAILED not in refused.detail:
            raise
        return derive_refusal(refused.reason or str(refused.status), refused.detail)


async def delete_child(api: KubeApi, lease: Lease, resource: Resource, child: Mapping[str, Any]) -> None:
    """Delete what belongs to an object; what has pods disappears when the last of them has ended."""
    metadata = child["metadata"]
    lease.require()
    await api.delete(
        resource,
        metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        # Its name must stay taken until the pods are gone: gone means that the chips are free.
        propagation="Foreground",
    )


class Writer:
    """Writes about the objects of one kind. Every call is idempotent: a pass that died is done again."""

    def __init__(self, api: KubeApi, lease: Lease, kind: Kind[Any], *, identity: str) -> None:
        self._api, self._lease, self._kind, self._identity = api, lease, kind, identity

    async def read_whole(self, store: Store, place: Place) -> Manifest | None:
        """Return an unfinished object, which the server is asked for where only a part of it is kept."""
        known = store.get(place)
        if known is None or not store.is_cut(known):
            return known
        found = await fetch(self._api, self._kind.resource, known["metadata"])
        if found is None:
            store.discard(place, uid=known["metadata"]["uid"])
            return None
        store.update(found)
        return found if store.get(place) is not None else None

    async def write_status(self, body: Manifest, status: Manifest) -> Manifest:
        """Write a status over the one in `body`; return the object as it is now.

        Raises `ConflictError` when the object has changed since `body` was read.
        """
        self._lease.require()
        return await self._api.replace(self._kind.resource, {**body, "status": status}, subresource="status")

    async def delete(self, place: Place, *, uid: str, version: str) -> None:
        """Delete an object and all that it owns, if it still is of this version; it goes last."""
        self._lease.require()
        namespace, name = place
        await self._api.delete(
            self._kind.resource,
            name,
            namespace=namespace,
            uid=uid,
            resource_version=version,
            propagation="Foreground",
        )

    async def send_event(self, metadata: ObjectMeta, draft: EventDraft) -> None:
        """Send an event about an object; it exists once, however often it is sent.

        One that the server will never take is dropped: the status tells the same.
        """
        self._lease.require()
        try:
            await self._api.create(EVENTS, self._build_event(metadata, draft))
        except AlreadyExistsError:
            return
        except (ForbiddenError, NotFoundError, RefusedError) as refused:
            ending = isinstance(refused, NotFoundError) or NAMESPACE_ENDS in refused.detail
            with job_context(attempt=draft.attempt):
                level = logging.INFO if ending else logging.WARNING
                logger.log(level, "event %s was refused: %s", draft.reason, refused)

    def _build_event(self, metadata: ObjectMeta, draft: EventDraft) -> Manifest:
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        uid = metadata.uid or ""
        custom = self._kind.custom
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{metadata.name}.{uid[:8]}.{draft.key}"[:NAME_LIMIT],
                "namespace": metadata.namespace,
                "labels": {self._kind.label: metadata.name, LABEL_MANAGED_BY: MANAGED_BY},
            },
            "involvedObject": {
                "apiVersion": f"{custom.group}/{custom.version}",
                "kind": custom.kind,
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": uid,
            },
            "type": "Warning" if draft.warning else "Normal",
            "reason": draft.reason,
            "message": draft.message,
            "source": {"component": "fray-operator", "host": self._identity},
            "reportingComponent": "fray.dev/operator",
            "reportingInstance": self._identity,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
