"""Node pools for gangs that no node takes: what a provider is asked, and what jobs show of its answers.

One task of the leader. Which gangs wait is read from the statuses of their jobs, what is in use from pods and
nodes, and which pools there are the provider finds out anew in each pass: a successor goes on where this
process has stopped. Where the cluster can't be read nothing is created, and nothing deleted.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Self

from pydantic import ValidationError

from fray.errors import FrayError, GkeClusterError
from fray.kube.api import KubeApi, Manifest
from fray.kube.errors import ApiError, NotFoundError
from fray.kube.resources import FRAYJOBS, PODS
from fray.nodepools.bodies import GkeCluster
from fray.nodepools.decisions import Limits, PendingGang
from fray.nodepools.gke import Gke, open_client
from fray.nodepools.provider import GkeNodePools, NodePoolProvider
from fray.nodepools.requests import PoolChoices, choose_for_job, derive_pool_demand, find_own_choice
from fray.nodepools.usage import ClusterObjects, trim_pod
from fray.plan import manifests
from fray.plan.observation import Waiting
from fray.plan.placement import derive_demand
from fray.plan.pod_observation import is_ending
from fray.plan.reasons import get_row
from fray.plan.scheduling import NodeSummary
from fray.plan.status import find_condition
from fray.vocabulary import ConditionType, Reason
from fray.wire.frayjob import FrayJob
from fray_operator.kinds import Services
from fray_operator.lease import Lease, LeaseLostError
from fray_operator.list_watch import Place
from fray_operator.nodes import NodeInformer
from fray_operator.settings import OperatorSettings, SettingsError
from fray_operator.shared_answers import SharedAnswer
from fray_operator.store import Store

__all__ = ["NodePools", "build_provider", "find_gang"]

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""How often it is looked whether gangs have begun or ceased to wait; that asks nobody."""
PODS_SECONDS = 30.0
"""How long a list of the cluster's pods is good enough: it is a large one."""
RETRY_SECONDS = 30.0
"""When a pass is tried again that failed."""
RUNNING_PODS: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
HEAVY: Final = ("podTemplate", "environment")
"""Parts of a spec that say nothing about nodes."""


class NodePools:
    """What is asked of a provider for all jobs, and what each of them shows.

    `choices` are the administrator's, for what jobs leave open. `on_change` gets each job that is to
    show something else.
    """

    def __init__(  # noqa: PLR0913 - it joins what there is of the cluster
        self,
        api: KubeApi,
        lease: Lease,
        jobs: Store,
        provider: NodePoolProvider,
        *,
        nodes: NodeInformer,
        choices: PoolChoices,
        on_change: Callable[[Place], None],
        clock: Callable[[], datetime],
    ) -> None:
        self._api, self._lease, self._jobs, self._provider = api, lease, jobs, provider
        self._nodes, self._choices, self._on_change, self._clock = nodes, choices, on_change, clock
        self._pods = SharedAnswer(self._list_pods, seconds=PODS_SECONDS)
        self._due = self._not_before = -math.inf
        self._waiting: frozenset[Place] = frozenset()
        self._told: Mapping[str, Waiting] | None = None
        """Why jobs wait, by `namespace/name`; None before the first pass."""
        self._large: dict[tuple[str, str], FrayJob] = {}

    @classmethod
    def of(cls, services: Services, jobs: Store, *, on_change: Callable[[Place], None]) -> Self | None:
        """Return that of a process; None where others provide node pools."""
        if services.node_pools is None or services.nodes is None:
            return None
        return cls(
            services.api,
            services.lease,
            jobs,
            services.node_pools,
            nodes=services.nodes,
            choices=build_choices(services.settings),
            on_change=on_change,
            clock=services.clock,
        )

    def explain(self, job: FrayJob, waiting: Waiting) -> Waiting:
        """Return why a job waits: what is done about nodes that it lacks, or else what was known before."""
        if not get_row(waiting.reason).lacks_nodes:
            return waiting
        if self._told is None:
            # A process that has just begun to lead knows no better than the one before it.
            said = find_condition(job.status, ConditionType.SCHEDULED)
            if said is None or not get_row(said.reason).told_by_provider:
                return waiting
            return Waiting(Reason(said.reason), said.message)
        return self._told.get(f"{job.metadata.namespace}/{job.metadata.name}", waiting)

    async def run(self) -> None:
        """Look for ever; raises `LeaseLostError` when this process may not write any more."""
        while True:
            try:
                await self.look()
            except LeaseLostError:
                raise
            except Exception:
                # An answer of GKE that nobody has thought of must not stop the jobs.
                logger.exception("the pass over node pools failed; this is a bug of the operator")
                self._not_before = self._clock().timestamp() + RETRY_SECONDS
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Make a pass if one is due, or if other gangs wait than in the last one."""
        await self._jobs.complete.wait()
        waiting = frozenset(key for key in self._jobs if is_waiting(self._jobs.get(key)))
        now = self._clock().timestamp()
        if now < self._not_before or (waiting == self._waiting and now < self._due):
            return
        try:
            jobs = await self._read_jobs()
            objects = await self._read_objects(jobs)
        except ApiError as error:
            logger.warning("what the cluster has can't be read; no node pool is changed: %s", error)
            self._not_before = now + RETRY_SECONDS
            return
        choices = replace(self._choices, dynamic_slices=objects.has_cubes)
        gangs = [find_gang(job, choices) for job in jobs if _place_of(job) in waiting]
        decision = await asyncio.to_thread(
            self._provider.provide,
            [gang for gang in gangs if gang is not None],
            objects,
            now=now,
            require=self._lease.require,
        )
        self._waiting = waiting
        self._due = math.inf if decision.again is None else now + decision.again
        before, self._told = self._told, decision.waits
        for key in waiting:
            name = "/".join(key)
            if before is None or before.get(name) != self._told.get(name):
                self._on_change(key)

    # --- what there is ------------------------------------------------------------------------------------

    async def _read_jobs(self) -> list[FrayJob]:
        """Return the unfinished jobs, the oldest first; a large one is read once for each generation.

        One that another version of Fray wrote is left out: what it needs isn't known.
        """
        jobs, large = [], {}
        for key in self._jobs:
            manifest = self._jobs.get(key)
            if manifest is None or is_ending(manifest):
                continue
            if not self._jobs.is_cut(manifest):
                found = _parse(manifest)
            else:
                version = manifest["metadata"]["uid"], str(manifest["metadata"].get("generation"))
                found = self._large.get(version) or await self._fetch(key)
                if found is not None:
                    large[version] = found
            if found is not None:
                jobs.append(found)
        self._large = large
        return sorted(jobs, key=lambda job: (job.metadata.creation_timestamp or "", *_place_of(job)))

    async def _fetch(self, key: Place) -> FrayJob | None:
        try:
            return _parse(await self._api.get(FRAYJOBS, key[1], namespace=key[0]))
        except NotFoundError:
            return None

    async def _read_objects(self, jobs: Iterable[FrayJob]) -> ClusterObjects:
        """Return what is in use; raises `ApiError`."""
        nodes = await self._nodes.get()
        if isinstance(nodes, ApiError):
            raise nodes
        return ClusterObjects([_describe(node) for node in nodes], await self._pods.get(), [*jobs])

    async def _list_pods(self) -> list[dict[str, Any]]:
        # Page by page, and little of each: the pods of a large cluster take hundreds of megabytes.
        pages = self._api.list_pages(PODS, fields=RUNNING_PODS)
        return [trim_pod(pod) async for page in pages for pod in page.items]


def build_provider(settings: OperatorSettings) -> NodePoolProvider | None:
    """Return what provides node pools, None where others do; GKE isn't asked yet.

    Raises:
        SettingsError: A setting can't be understood.
    """
    if settings.node_pools == "none":
        return None
    if settings.node_pools != "gke":
        raise SettingsError(f"FRAY_NODE_POOLS={settings.node_pools}: legal are none and gke")
    if not settings.read_nodes:
        raise SettingsError("FRAY_NODE_POOLS=gke: needs FRAY_READ_NODES=true, to see which pools are in use")
    try:
        place = GkeCluster.parse(settings.gke_cluster or "")
    except GkeClusterError as error:
        legal = "projects/PROJECT/locations/LOCATION/clusters/NAME"
        raise SettingsError(f"FRAY_GKE_CLUSTER={settings.gke_cluster or ''}: must be {legal}") from error
    chips = dict(map(_read_limit, settings.max_chips))
    return GkeNodePools(
        lambda: Gke(place, open_client()),
        Limits(settings.max_pools, chips, settings.pool_idle_seconds),
        f"operator.{settings.lease_namespace}"[:63].rstrip("-"),
    )


def build_choices(settings: OperatorSettings) -> PoolChoices:
    """Return what the administrator chose for what jobs leave open."""
    return PoolChoices(
        spot=settings.pool_spot, zones=settings.pool_zones, service_account=settings.pool_service_account
    )


def is_waiting(manifest: Manifest | None) -> bool:
    """Return whether a job's status says that no node takes its pods."""
    if manifest is None or is_ending(manifest):
        return False
    scheduled = manifests.find_condition(manifest, ConditionType.SCHEDULED, status="False")
    return get_row(scheduled.get("reason")).lacks_nodes


def find_gang(job: FrayJob, choices: PoolChoices) -> PendingGang | None:
    """Return what a job that waits needs; None where that is no pool, or others decide about its nodes."""
    placement, demand = job.spec.placement, derive_pool_demand(job, dynamic=choices.dynamic_slices)
    if demand.accelerator is None or find_own_choice(job) is not None:
        return None
    # What the administrator prefers is no reason to refuse a job that needs something else.
    spot = choices.spot and demand.spot != "Refused" and not (placement.flex_start or demand.reservation)
    chosen = PoolChoices(spot=spot, zones=choices.zones, service_account=choices.service_account)
    name = f"{job.metadata.namespace}/{job.metadata.name}"
    return PendingGang(name, demand, choose_for_job(job, chosen))


def _read_limit(text: str) -> tuple[str, int]:
    accelerator, equals, chips = text.partition("=")
    if not accelerator or not equals or not chips.isascii() or not chips.isdigit():
        raise SettingsError(f"FRAY_MAX_CHIPS={text}: must be ACCELERATOR=CHIPS, such as tpu-v5p-slice=64")
    return accelerator, int(chips)


def _parse(manifest: Manifest) -> FrayJob | None:
    """Return what matters here of a job, None where it can't be judged."""
    spec = {key: value for key, value in manifest.get("spec", {}).items() if key not in HEAVY}
    try:
        job = FrayJob.from_manifest({**manifest, "spec": spec})
        derive_demand(job)
    except (ValidationError, FrayError) as error:
        logger.debug("job %s isn't looked at: %s", manifest["metadata"]["name"], error)
        return None
    return job


def _place_of(job: FrayJob) -> Place:
    return job.metadata.namespace or "", job.metadata.name


def _describe(node: NodeSummary) -> Manifest:
    return {"metadata": {"name": node.name, "labels": node.labels}}
