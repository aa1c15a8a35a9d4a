"""FrayActors, as a kind of the operator: the caches of what belongs to them, and the passes over them.

What is to be shown and done is `fray.plan.actor_lifecycle`'s to say. The status is written before the step,
so that a process that dies in between finds everything again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from fray.kube.api import KubeApi, Manifest
from fray.kube.errors import NotFoundError
from fray.kube.resources import (
    CONFIG_MAPS,
    FRAYJOBS,
    JOBS,
    JOBSETS,
    NETWORK_POLICIES,
    PODS,
    STATEFUL_SETS,
    Resource,
)
from fray.plan.actor_lifecycle import (
    ActorDecision,
    ActorObservation,
    CreateMembers,
    RebuildMembers,
    RemoveMembers,
    RootState,
    ScaleMembers,
    decide_actor,
    find_lacking,
    read_root,
)
from fray.plan.actor_set import build_actor_labels, build_actor_set, build_actor_slice, build_slice_name
from fray.plan.actor_slices import EndSlice, StartSlice
from fray.plan.complaints import (
    MEMBER_CREATE_FAILURES,
    PATIENCE_SECONDS,
    VOLUME_FAILURES,
    Complaint,
    derive_pause,
    find_held,
)
from fray.plan.network_policy import build_actor_network_policy
from fray.plan.observation import Waiting
from fray.plan.pod_observation import is_ending
from fray.plan.remains import tells_of_end
from fray.plan.timestamps import parse_time
from fray.vocabulary import LABEL_ACTOR, LABEL_ACTOR_UID, Reason
from fray.wire.frayactor import FRAYACTOR as CUSTOM
from fray.wire.frayactor import FrayActor
from fray_operator.cleanup import Expiry
from fray_operator.informer import (
    Informer,
    trim_actor_pod,
    trim_actor_report,
    trim_job,
    trim_jobset,
    trim_stateful_set,
)
from fray_operator.kinds import Controller, Kind, RefusedError, Services
from fray_operator.list_watch import Place, find_controller, is_controlled_by
from fray_operator.shared_answers import share_complaints
from fray_operator.store import Store
from fray_operator.writer import Writer, create_child, delete_child, fetch

__all__ = ["FRAYACTOR"]

logger = logging.getLogger(__name__)

ROOT_SECONDS = 10.0
"""How often an actor's root job, or the pod that hosts it, is looked at: no event of it tells of those."""
CHANGING_SECONDS = 20.0
"""How often an actor is looked at while pods start or end: of volumes and dead nodes no event tells."""
TRIMS: Final = {
    JOBSETS: trim_jobset,
    JOBS: trim_job,
    STATEFUL_SETS: trim_stateful_set,
    PODS: trim_actor_pod,
    CONFIG_MAPS: trim_actor_report,
}
"""What is watched for actors, owners first, and what is kept of each."""


def _control(kind: Kind[FrayActor], services: Services) -> Controller:
    api, settings = services.api, services.settings

    def due(place: Place) -> None:
        services.queue.add(kind.key(place))

    caches = {
        resource: {
            each: Informer(
                # Of all these, pods alone tell of an end.
                api,
                resource,
                kind,
                namespace=each,
                on_change=due,
                trim=trim,
                metadata_only=resource is JOBS,
                outlives=tells_of_end,
            )
            for each in settings.namespaces or (None,)
        }
        for resource, trim in TRIMS.items()
    }
    store = Store(due, wants_keys=lambda _: True)
    reconciler = _Reconciler(kind, services, store, caches)
    return Controller(
        kind,
        store,
        reconciler.reconcile,
        [tuple(row.values()) for row in caches.values()],
    )


class _ChildRefusedError(RefusedError):
    """An object of an actor can't be made: the actor as the server has it, and what its status is to say."""

    def __init__(self, actor: Manifest, waiting: Waiting) -> None:
        super().__init__(waiting.message)
        self.actor = actor
        self.waiting = waiting


class _Reconciler:
    """Passes over FrayActors."""

    def __init__(
        self,
        kind: Kind[FrayActor],
        services: Services,
        store: Store,
        caches: Mapping[Resource, Mapping[str | None, Informer]],
    ) -> None:
        self._kind, self._services, self._store, self._caches = kind, services, store, caches
        self._api: KubeApi = services.api
        self._writer = Writer(services.api, services.lease, kind, identity=services.identity)
        self._expiry = Expiry(store, self._writer)
        self._refusals: dict[Place, Waiting] = {}
        self._volume_failures = share_complaints(services.api, VOLUME_FAILURES)
        self._create_failures = share_complaints(services.api, MEMBER_CREATE_FAILURES)

    async def reconcile(self, place: Place) -> float | None:
        """Bring one actor a step further; return seconds after which to look again, None when events will do.

        Raises `RefusedError` when its pods can't be made, `UnreadableError`, and `ApiError`.
        """
        body = await self._writer.read_whole(self._store, place)
        if body is None:
            self._refusals.pop(place, None)
            self._cache(PODS, place[0]).forget_gone(place)
            return await self._expiry.expire(place, now=self._services.clock())
        if is_ending(body):
            return None  # what it owns is the garbage collector's
        actor = self._kind.parse(body)
        now = self._services.clock()
        root, host = await self._look_at_root(actor), await self._look_at_host(actor)
        observed = self._observe(place, actor, root, host)
        # Seconds since which each StatefulSet or JobSet has been there that lacks pods.
        lacking = [
            (now - parse_time(each["metadata"]["creationTimestamp"])).total_seconds()
            for each in find_lacking(actor, observed)
        ]
        complaints = await self._read_complaints(place[0], observed, lacking, now)
        observed = replace(observed, complaints=complaints)
        decision = self._decide(actor, observed, now=now)
        status = decision.status.to_manifest()
        if status != body.get("status"):
            self._store.update(await self._writer.write_status(body, status))
        # Those alone that were looked at: others may have gone since.
        self._cache(PODS, place[0]).forget_gone(place, [pod["metadata"]["uid"] for pod in observed.gone])
        try:
            await self._apply(place, actor, observed, decision)
        except _ChildRefusedError as refused:
            await self._tell_refusal(place, refused)
            raise
        if self._refusals.pop(place, None) is not None:
            self._services.queue.add(self._kind.key(place))  # the status says so still
        looks = list[float]()
        if root is not None or actor.spec.entrypoint.hosted is not None:
            looks.append(ROOT_SECONDS)
        if any(_is_starting(pod) or is_ending(pod) for pod in observed.pods):
            looks.append(CHANGING_SECONDS)
        if lacking:
            looks.append(derive_pause(min(lacking) / 4))
        if decision.wake_at is not None:
            # A moment later: a timer may fire a little early, and the pass would find nothing due.
            looks.append((decision.wake_at - now).total_seconds() + 0.02)
        return min(looks, default=None)

    async def _apply(
        self, place: Place, actor: FrayActor, observed: ActorObservation, decision: ActorDecision
    ) -> None:
        """Take the steps that are decided; raises `RefusedError` and `ApiError`."""
        plan = self._services.settings.plan
        match decision.action:
            case CreateMembers(replicas):
                members = build_actor_set(actor, replicas=replicas, settings=plan)
                await self._create(place, actor, STATEFUL_SETS, members)
            case RebuildMembers(replicas) if observed.members is not None:
                renewed = actor.model_copy(update={"status": decision.status})
                members = build_actor_set(renewed, replicas=replicas, settings=plan)
                await self._replace(observed.members, members)
            case ScaleMembers(replicas) if observed.members is not None:
                await self._scale(observed.members, replicas)
            case RemoveMembers() if observed.members is not None:
                await delete_child(self._api, self._services.lease, STATEFUL_SETS, observed.members)
            case _:
                pass
        refusal: RefusedError | None = None
        # First what ends: it may give room to what starts. One that is refused keeps no other member.
        for step in sorted(decision.slices, key=lambda step: isinstance(step, StartSlice)):
            try:
                await self._step(place, actor, decision, step)
            except RefusedError as refused:
                refusal = refusal or refused
        if refusal is not None:
            raise refusal

    async def _step(
        self, place: Place, actor: FrayActor, decision: ActorDecision, step: StartSlice | EndSlice
    ) -> None:
        """Create or delete the JobSet of a member; raises `RefusedError`."""
        match step:
            case StartSlice(index, attempt):
                renewed = actor.model_copy(update={"status": decision.status})
                plan = self._services.settings.plan
                if attempt > 1:
                    last = build_slice_name(actor, index=index, attempt=attempt - 1)
                    await self._make_sure_gone(place, actor, last)
                made = build_actor_slice(renewed, index=index, attempt=attempt, settings=plan)
                await self._create(place, actor, JOBSETS, made)
            case EndSlice(jobset):
                await delete_child(self._api, self._services.lease, JOBSETS, jobset)

    async def _make_sure_gone(self, place: Place, actor: FrayActor, name: str) -> None:
        """Ask the server for the JobSet before: caches may be wrong. Raises `RefusedError` if it is there."""
        try:
            found = await self._api.get(JOBSETS, name, namespace=place[0])
        except NotFoundError:
            return
        if is_controlled_by(found, actor.metadata.uid):
            self._cache(JOBSETS, place[0]).remember(found)
            raise RefusedError(f"JobSet {name} is still there")

    def _decide(self, actor: FrayActor, observed: ActorObservation, *, now: datetime) -> ActorDecision:
        return decide_actor(actor, observed, now=now, policy=self._services.settings.policy)

    async def _look_at_root(self, actor: FrayActor) -> RootState | None:
        name = actor.spec.root_job
        if name is None:
            return None
        try:
            root = await self._api.get(FRAYJOBS, name, namespace=actor.metadata.namespace)
        except NotFoundError:
            return read_root(actor, None)
        return read_root(actor, root)

    async def _look_at_host(self, actor: FrayActor) -> Manifest | None:
        """Return the pod of the process that hosts an actor, if it is there."""
        hosted = actor.spec.entrypoint.hosted
        if hosted is None:
            return None
        # A list of one: the operator has no right to get single pods.
        pages = self._api.list_pages(
            PODS, namespace=actor.metadata.namespace, fields=f"metadata.name={hosted.pod}"
        )
        found = [pod async for page in pages for pod in page.items]
        return found[0] if found else None

    async def _read_complaints(
        self, namespace: str, observed: ActorObservation, lacking: Sequence[float], now: datetime
    ) -> Sequence[Complaint]:
        """Return what is said of volumes and of pods that can't be made, where it is time to ask for it."""
        complaints = list[Complaint]()
        if max(lacking, default=0.0) >= PATIENCE_SECONDS:
            complaints += await self._create_failures.get(namespace)
        if find_held(observed.pods, now=now):
            complaints += await self._volume_failures.get(namespace)
        return complaints

    def _observe(
        self,
        place: Place,
        actor: FrayActor,
        root: RootState | None,
        host: Manifest | None = None,
    ) -> ActorObservation:
        members = next(
            (each for each in self._list(STATEFUL_SETS, place) if is_controlled_by(each, actor.metadata.uid)),
            None,
        )
        jobsets = [each for each in self._list(JOBSETS, place) if is_controlled_by(each, actor.metadata.uid)]
        of_slices = {each["metadata"]["uid"] for each in jobsets}
        controllers = {
            job["metadata"]["uid"]
            for job in self._list(JOBS, place)
            if (owner := find_controller(job)) is not None and owner["uid"] in of_slices
        }
        if members is not None:
            controllers.add(members["metadata"]["uid"])

        def select_own(pods: Sequence[Manifest]) -> list[Manifest]:
            found = [(pod, find_controller(pod)) for pod in pods]
            return [pod for pod, owner in found if owner is not None and owner["uid"] in controllers]

        pods = self._list(PODS, place)
        own = select_own(pods)
        uids = {pod["metadata"]["uid"] for pod in own}
        return ActorObservation(
            members=members,
            pods=own,
            strangers=[
                pod
                for pod in pods
                if pod["metadata"]["uid"] not in uids
                and pod["metadata"].get("labels", {}).get(LABEL_ACTOR_UID) == actor.metadata.uid
            ],
            gone=select_own(self._cache(PODS, place[0]).gone_of_job(place)),
            reports=self._list(CONFIG_MAPS, place),
            root=root,
            refusal=self._refusals.get(place),
            host=host,
            jobsets=jobsets,
        )

    def _list(self, resource: Resource, place: Place) -> Sequence[Manifest]:
        return self._cache(resource, place[0]).of_job(place)

    def _cache(self, resource: Resource, namespace: str) -> Informer:
        return self._caches[resource][namespace if self._services.settings.namespaces else None]

    # --- steps ------------------------------------------------------------------------------------------

    async def _create(self, place: Place, actor: FrayActor, resource: Resource, members: Manifest) -> None:
        """Create what guards the members, and what makes them, or adopt it; raises `RefusedError`."""
        meant = {"name": place[1], "namespace": place[0], "uid": actor.metadata.uid}
        current = await fetch(self._api, self._kind.resource, meant)
        if current is None or is_ending(current):
            return  # it was deleted, and the watch has yet to tell: its pods would come and go for ever
        policy = build_actor_network_policy(actor, labels=build_actor_labels(actor))
        # Before any pod that listens.
        await self._create_child(place, current, NETWORK_POLICIES, policy)
        made = await self._create_child(place, current, resource, members)
        self._cache(resource, place[0]).remember(made)

    async def _create_child(
        self, place: Place, actor: Manifest, resource: Resource, child: Manifest
    ) -> Manifest:
        """Create an object of an actor, or find it where it is this actor's; raises `RefusedError`."""
        name = child["metadata"]["name"]

        def find_stranger(found: Manifest) -> Waiting | None:
            if is_controlled_by(found, actor["metadata"]["uid"]):
                return None
            owner = find_controller(found) or {}
            text = f"{child['kind']} {name} isn't this actor's: delete it, or use another name"
            if (owner.get("kind"), owner.get("name")) == (self._kind.name, place[1]):
                text = f"{child['kind']} {name} is an earlier actor's of this name, and about to be deleted"
            return Waiting(Reason.NAME_TAKEN, text)

        lease = self._services.lease
        made = await create_child(self._api, lease, resource, child, find_stranger=find_stranger)
        if isinstance(made, Waiting):
            raise _ChildRefusedError(actor, made)
        return made

    async def _tell_refusal(self, place: Place, refused: _ChildRefusedError) -> None:
        """Let the status say why there are no pods."""
        if self._refusals.get(place) == refused.waiting:
            return
        self._refusals[place] = refused.waiting
        actor = self._kind.parse(refused.actor)
        observed = self._observe(place, actor, None)
        status = self._decide(actor, observed, now=self._services.clock()).status.to_manifest()
        if status != refused.actor.get("status"):
            self._store.update(await self._writer.write_status(refused.actor, status))

    async def _scale(self, members: Mapping[str, Any], replicas: int) -> None:
        """Give the StatefulSet another number of pods; raises `ConflictError` if another write came first."""
        found = await fetch(self._api, STATEFUL_SETS, members["metadata"])
        if found is not None:
            await self._write(found | {"spec": {**found["spec"], "replicas": replicas}})

    async def _replace(self, members: Mapping[str, Any], meant: Manifest) -> None:
        """Give the StatefulSet another template; raises `ConflictError` if another write came first."""
        found = await fetch(self._api, STATEFUL_SETS, members["metadata"])
        if found is None:
            return
        parts = {part: meant["spec"][part] for part in ("replicas", "template")}
        annotations = (found["metadata"].get("annotations") or {}) | meant["metadata"]["annotations"]
        metadata = {**found["metadata"], "annotations": annotations}
        await self._write(found | {"metadata": metadata, "spec": {**found["spec"], **parts}})

    async def _write(self, members: Manifest) -> None:
        self._services.lease.require()
        written = await self._api.replace(STATEFUL_SETS, members)
        self._cache(STATEFUL_SETS, written["metadata"]["namespace"]).remember(written)


def _is_starting(pod: Mapping[str, Any]) -> bool:
    """Return whether a node has taken a pod that has begun no container."""
    status = pod.get("status") or {}
    return status.get("phase") == "Pending" and "startTime" in status


FRAYACTOR: Final = Kind(custom=CUSTOM, label=LABEL_ACTOR, control=_control)
