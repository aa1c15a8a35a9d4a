"""The operator process, assembled: lease and claims first, then caches, then kopf and the workers.

A standby holds no watch: it waits for the lease. A process that loses the lease ends at once, since
anything it does from then on might be done twice. It also ends when any of its parts does: Kubernetes
starts it anew, and starting is what is tested best.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable

from fray.kube.api import KubeApi, Manifest
from fray.kube.errors import ApiError, NotFoundError
from fray.kube.resources import FRAYJOBS, JOBS, JOBSETS, NODES, PODS, Resource
from fray.plan.remains import tells_of_end
from fray.plan.settings import PlanSettings, RetryPolicy
from fray.vocabulary import AUTH_SECRET
from fray_operator.act import Actor
from fray_operator.auth import AuthKeeper
from fray_operator.health import SILENCE_LIMIT_SECONDS, HealthServer
from fray_operator.informer import Informer, JobKey, trim_job, trim_jobset
from fray_operator.jobs import JobStore
from fray_operator.lease import Lease
from fray_operator.list_watch import ListWatch
from fray_operator.metrics import Metrics
from fray_operator.nodes import NodeInformer
from fray_operator.observe import Observer
from fray_operator.obsolete import UNKNOWN_JOB_SECONDS
from fray_operator.ownership import find_orphans, may_be_obsolete
from fray_operator.parts import Parts
from fray_operator.pods import PodInformer
from fray_operator.queue import WorkQueue
from fray_operator.reconcile import Reconciler
from fray_operator.scope import Scope
from fray_operator.settings import OperatorSettings
from fray_operator.source import FrayJobSource
from fray_operator.worker import work

__all__ = ["MissingKindError", "OperatorProcess"]

logger = logging.getLogger(__name__)

START_PAUSE_SECONDS = 2.0
"""Between two attempts to reach the server when the process starts."""
CLAIM_DURATION = 4
"""Duration of a claim to what is served, in durations of the Lease: claims may be many."""


class MissingKindError(Exception):
    """A CRD that the operator needs isn't installed; the message says which and how to install it."""


class OperatorProcess:
    """One operator: `run` returns when it was told to stop, and raises when it can't go on.

    `claim_signals` is called when a part may have taken the handling of signals away from the caller.
    """

    def __init__(
        self,
        api: KubeApi,
        settings: OperatorSettings,
        metrics: Metrics,
        *,
        claim_signals: Callable[[], None] = lambda: None,
    ) -> None:
        self._api, self._settings, self._metrics = api, settings, metrics
        self._stop = asyncio.Event()
        self._identity = f"{settings.pod_name}_{uuid.uuid4().hex[:8]}"
        self._queue: WorkQueue[JobKey] = WorkQueue()
        self._jobs = JobStore(self._queue.add)
        self._lease = Lease(
            api,
            namespace=settings.lease_namespace,
            name=settings.lease_name,
            identity=self._identity,
            seconds=settings.lease_seconds,
        )
        self._scope = Scope(
            api,
            namespaces=settings.namespaces,
            installation=settings.lease_namespace,
            seconds=CLAIM_DURATION * settings.lease_seconds,
        )
        self._started = False
        namespaces: tuple[str | None, ...] = settings.namespaces or (None,)
        self._jobsets = {each: self._build_informer(JOBSETS, each) for each in namespaces}
        self._child_jobs = {each: self._build_informer(JOBS, each) for each in namespaces}
        self._pods = {each: self._build_pods(each) for each in namespaces}
        self._nodes = NodeInformer(api) if settings.read_nodes else None
        self._source = FrayJobSource(api, self._jobs, self._queue, settings, claim_signals=claim_signals)
        self._health = HealthServer(
            metrics,
            host=settings.http_host,
            port=settings.http_port,
            trouble=self._trouble,
            unready=self._find_unready,
            refresh=self._refresh,
        )

    async def run(self) -> None:
        """Lead when it is this process's turn, until `stop` is called.

        Raises `PortUnavailableError`, `MissingKindError`, `UnwatchedKindError`, `LeaseLostError`, or whatever
        ended a part of it.
        """
        await self._health.start()
        parts = Parts()
        parts.add_watcher(self._raise_when_stopped(), name="stop")
        try:
            await parts.until(self._await_kinds())
            self._started = True
            await parts.until(self._lease.acquire())
            parts.add_writer(self._lease.keep(), name="lease")
            await parts.until(self._scope.acquire())
            for claim in self._scope.claims:
                parts.add_writer(claim.keep(), name="claim")
            # Again: a standby may have waited for long, and the kinds may be gone since.
            await parts.until(self._await_kinds())
            await self._lead(parts)
        except _StoppedError:
            logger.info("told to stop")
        finally:
            # In this order: nothing is written any more, the next process may lead, and only then all that
            # may take its time.
            await parts.end_writers()
            if self._lease.held():
                # Else another replica may lead, and have taken over the claims.
                await self._scope.release()
            await self._lease.release()
            await self._health.stop()
            await parts.end_watchers()

    def stop(self) -> None:
        """Make `run` return, as leader or as standby."""
        self._stop.set()

    async def _raise_when_stopped(self) -> None:
        await self._stop.wait()
        raise _StoppedError

    async def _lead(self, parts: Parts) -> None:
        # Owners first, since whose an object is follows from them. Decisions on half-filled caches would be
        # wrong: nothing is worked on before they are full.
        for informers in (self._jobsets, self._child_jobs, self._pods):
            for informer in informers.values():
                parts.add_watcher(informer.run(), name="informer")
            await parts.until(_all_synced(informers.values()))
        if self._nodes is not None:
            # Not waited for: nodes only make reasons precise, and the right to read them may be missing.
            parts.add_watcher(self._nodes.run(), name="nodes")
        reconciler = self._build_reconciler()
        for _ in range(self._settings.workers):
            parts.add_writer(work(self._queue, reconciler, self._jobs, self._metrics), name="worker")
        parts.add_writer(AuthKeeper(self._api, self._lease, self._jobs).run(), name=AUTH_SECRET)
        parts.add_watcher(self._source.run(), name="watch of FrayJobs")
        await parts.run()

    def _build_reconciler(self) -> Reconciler:
        settings = self._settings
        policy = RetryPolicy(
            settings.backoff_seconds,
            settings.backoff_cap_seconds,
            settings.avoid_seconds,
            settle_seconds=settings.settle_seconds,
            unreachable_seconds=settings.unreachable_seconds,
        )
        observer = Observer(
            self._api,
            jobsets=self._jobsets_of,
            pods=self._pods_of,
            nodes=self._nodes,
            policy=policy,
        )
        actor = Actor(
            self._api,
            self._lease,
            settings=PlanSettings(
                image=settings.runtime_image,
                injector_image=settings.injector_image,
                service_account=settings.service_account,
                metadata_server=settings.metadata_server,
            ),
            remember=self._remember,
            identity=self._identity,
        )
        return Reconciler(self._jobs, observer, actor, self._metrics, policy=policy)

    async def _await_kinds(self) -> None:
        """Wait for a server that answers; raises `MissingKindError` when it lacks a kind."""
        for resource in (FRAYJOBS, JOBSETS):
            while (trouble := await self._find_trouble(resource)) is not None:
                logger.warning("%s can't be read; trying again: %s", resource, trouble)
                await asyncio.sleep(max(START_PAUSE_SECONDS, trouble.retry_after_seconds or 0.0))

    async def _find_trouble(self, resource: Resource) -> ApiError | None:
        namespace = self._settings.namespaces[0] if self._settings.namespaces else None
        try:
            async for _ in self._api.list_pages(resource, namespace=namespace, limit=1):
                break
        except NotFoundError as missing:
            how = "the chart's CRDs" if resource is FRAYJOBS else "JobSet"
            raise MissingKindError(f"the cluster has no {resource}: install {how} first") from missing
        except ApiError as error:
            return error
        return None

    def _build_informer(self, resource: Resource, namespace: str | None) -> Informer:
        if resource == JOBSETS:
            return Informer(self._api, JOBSETS, namespace=namespace, on_change=self._due, trim=trim_jobset)
        # No pass is about Jobs: they only tell whose pods are.
        return Informer(
            self._api,
            resource,
            namespace=namespace,
            on_change=lambda _: None,
            trim=trim_job,
            metadata_only=True,
        )

    def _build_pods(self, namespace: str | None) -> PodInformer:
        return PodInformer(
            self._api,
            namespace=namespace,
            on_change=self._due,
            jobs=self._child_jobs[namespace],
            jobsets=self._jobsets[namespace],
            outlives=tells_of_end,
        )

    def _jobsets_of(self, namespace: str) -> Informer:
        return self._jobsets[namespace if self._settings.namespaces else None]

    def _pods_of(self, namespace: str) -> PodInformer:
        return self._pods[namespace if self._settings.namespaces else None]

    def _due(self, key: JobKey) -> None:
        # Its FrayJob may have gone while nobody led: no event tells of that, only what is left of it.
        jobsets = self._jobsets_of(key[0]).of_job(key)
        if self._jobs.get(key) is not None or find_orphans(jobsets, living=self._jobs.knows):
            self._queue.add(key)
        elif any(map(may_be_obsolete, jobsets)):
            self._queue.add_after(key, UNKNOWN_JOB_SECONDS)

    def _remember(self, jobset: Manifest) -> None:
        self._jobsets_of(jobset["metadata"]["namespace"]).remember(jobset)

    def _find_unready(self) -> str | None:
        return self._scope.overlap if self._started else "starting"

    def _trouble(self) -> str | None:
        if not self._lease.held():
            return None
        for resource, seconds in self._silent_seconds().items():
            if seconds > SILENCE_LIMIT_SECONDS:
                return f"a watch has been silent for {seconds:.0f} s: that of {resource}"
        return None

    def _silent_seconds(self) -> dict[Resource, float]:
        """Return how long the watches of each resource have been silent at most.

        0 before they are synced, and for nodes that may not be read: a restart would not help.
        """
        watches: dict[Resource, Iterable[ListWatch]] = {
            JOBSETS: self._jobsets.values(),
            JOBS: self._child_jobs.values(),
            PODS: self._pods.values(),
            NODES: () if self._nodes is None or self._nodes.refused else (self._nodes,),
        }
        silent = {
            resource: max((each.silent_seconds for each in found if each.synced.is_set()), default=0.0)
            for resource, found in watches.items()
        }
        return {FRAYJOBS: self._source.silent_seconds, **silent}

    def _refresh(self) -> None:
        self._metrics.leading.set(1 if self._lease.held() else 0)
        self._metrics.jobs.set(len(self._jobs))
        self._metrics.queued.set(len(self._queue))
        for resource, seconds in self._silent_seconds().items():
            self._metrics.silent_seconds.labels(str(resource)).set(seconds)


class _StoppedError(Exception):
    """`stop` was called."""


async def _all_synced(informers: Iterable[Informer]) -> None:
    for informer in informers:
        await informer.synced.wait()
