"""FrayActors on a cluster, from outside of it: listed, deleted, and what their members printed."""

from __future__ import annotations

from collections.abc import Sequence

from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.api_errors import is_kind_unknown, persistently
from fray.cluster.kubernetes.log_reading import Reading
from fray.cluster.kubernetes.pod_log import PodLog, read_container
from fray.cluster.kubernetes.watching import Subject, list_subject, watch_until_complete
from fray.kube.api import Manifest, WatchEvent
from fray.kube.errors import NotFoundError
from fray.kube.resources import FRAYACTORS, PODS
from fray.plan.manifests import find_condition
from fray.types import JobId
from fray.vocabulary import (
    LABEL_ACTOR,
    LABEL_ACTOR_UID,
    LABEL_COMPLETION_INDEX,
    LABEL_POD_INDEX,
    ConditionType,
)
from fray.wire.frayactor import FrayActor

__all__ = ["ActorReading", "delete_actor", "list_actors"]


async def list_actors(access: Access) -> list[FrayActor]:
    """Return all FrayActors of the namespace, sorted by name; none where Fray's CRDs have no such kind."""

    async def read() -> list[FrayActor]:
        pages = access.api.list_pages(FRAYACTORS, namespace=access.namespace)
        found = [FrayActor.from_manifest(actor) async for page in pages for actor in page.items]
        return sorted(found, key=lambda actor: actor.metadata.name)

    try:
        return await persistently(read)
    except NotFoundError as error:
        if is_kind_unknown(error):
            return []
        raise


async def delete_actor(access: Access, actor: FrayActor) -> None:
    """Delete a FrayActor, unless another one has its name by now; one that is gone is fine."""
    name, uid = actor.metadata.name, actor.metadata.uid
    await persistently(lambda: access.api.delete(FRAYACTORS, name, namespace=access.namespace, uid=uid))


class ActorReading(Reading):
    """What is read of the logs of an actor's members: of all their containers that still have one."""

    def __init__(self, actor: FrayActor, *, follow: bool, member: int | None) -> None:
        labels = {LABEL_ACTOR: actor.metadata.name, LABEL_ACTOR_UID: actor.metadata.uid}
        if member is not None:
            labels[LABEL_POD_INDEX] = str(member)
        selector = ",".join(f"{label}={value}" for label, value in labels.items())
        super().__init__(Subject(PODS, selector), follow=follow)
        self._actor = actor

    async def look_up(self, access: Access) -> None:
        """Do nothing: an actor that is gone has no pods."""

    async def wait_until_over(self, access: Access) -> None:
        """Return once the actor has ended or was deleted."""
        subject = Subject(FRAYACTORS, fields=f"metadata.name={self._actor.metadata.name}")
        life = _ActorLife(self._actor.metadata.uid)
        await persistently(lambda: list_subject(access, subject, life))
        await watch_until_complete(access, subject, life)

    def tell_of_lost_hosts(self) -> None:
        """Do nothing: what the pods before have printed is gone with them, as with `kubectl logs`."""

    def _key(self, pod: Manifest) -> str:
        return read_container(pod)

    def _open_log(self, pod: Manifest) -> PodLog | None:
        labels = pod["metadata"]["labels"]
        index, host = labels.get(LABEL_POD_INDEX, ""), labels.get(LABEL_COMPLETION_INDEX, "0")
        container = read_container(pod)
        if not container or not index.isdecimal() or not host.isdecimal():
            return None
        place = (int(index), int(index), int(host))
        job_id = JobId(self._actor.metadata.name)
        return PodLog(pod["metadata"]["name"], job_id, 1, place, self._news.set, container=container)


class _ActorLife:
    """Observes whether an actor lives."""

    def __init__(self, uid: str | None) -> None:
        self._uid = uid
        self.version: str | None = None
        self.complete = False

    def take_list(self, objects: Sequence[Manifest], version: str) -> None:
        """Note whether it is there."""
        self.complete = not any(map(self._lives, objects))
        self.version = version

    def take_event(self, event: WatchEvent) -> None:
        """Note what became of it."""
        self.version = event.object["metadata"]["resourceVersion"]
        if event.type != "BOOKMARK":
            self.complete = event.type == "DELETED" or not self._lives(event.object)

    def _lives(self, found: Manifest) -> bool:
        finished = find_condition(found, ConditionType.FINISHED, status="True")
        return found["metadata"]["uid"] == self._uid and not finished
