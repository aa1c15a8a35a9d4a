"""FrayJobs, as a kind of the operator: the caches of what belongs to them, and the passes over them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Final

from fray.kube.api import Manifest
from fray.kube.resources import JOBS, JOBSETS
from fray.plan.remains import tells_of_end
from fray.vocabulary import LABEL_JOB, Role
from fray.wire.frayjob import FrayJob
from fray.wire.schema import FRAYJOB as CUSTOM
from fray_operator.act import RESOURCES, Actor
from fray_operator.auth import wants_auth
from fray_operator.cleanup import UNKNOWN_JOB_SECONDS
from fray_operator.frayactors import FRAYACTOR
from fray_operator.informer import Informer, JobKey, trim_job, trim_jobset, trim_worker_job
from fray_operator.kinds import Controller, Kind, Services
from fray_operator.node_pools import NodePools
from fray_operator.observe import Observer
from fray_operator.ownership import find_orphans, may_be_obsolete
from fray_operator.pods import PodInformer
from fray_operator.reconcile import Reconciler
from fray_operator.store import Store
from fray_operator.writer import Writer

__all__ = ["FRAYJOB", "KINDS"]

WATCHED: Final[Mapping[Role, tuple[Callable[[Manifest], Manifest], Role | None]]] = {
    Role.HOST: (trim_jobset, None),
    Role.WORKER: (trim_worker_job, Role.WORKER),
}
"""The roles whose children are watched: what is kept of each, and the role that one must say for it."""

STEP_SECONDS = 0.0005
"""How long a pass waits, for each pod of the job, when pods only start or end well.

To look at a pod takes about a tenth of it, so a job of thousands takes no more of a processor than that.
"""


def _control(kind: Kind[FrayJob], services: Services) -> Controller:
    api, settings = services.api, services.settings
    queue = services.queue
    store = Store(lambda key: queue.add(kind.key(key)), wants_keys=wants_auth)

    def tell(key: JobKey) -> None:
        if store.get(key) is not None:
            queue.add(kind.key(key))
            return
        # Its FrayJob may have gone while nobody led: no event tells of that, only what is left of it.
        left = observer.list_children(key)
        if find_orphans(left, living=store.knows):
            queue.add(kind.key(key))
        elif any(map(may_be_obsolete, left)):
            queue.add_after(kind.key(key), UNKNOWN_JOB_SECONDS)

    def tell_step(key: JobKey, pods: int) -> None:
        if store.get(key) is None:
            tell(key)
        else:
            queue.add_after(kind.key(key), pods * STEP_SECONDS)

    namespaces: tuple[str | None, ...] = settings.namespaces or (None,)
    children = {
        role: {
            each: Informer(api, RESOURCES[role], kind, namespace=each, on_change=tell, trim=trim, role=label)
            for each in namespaces
        }
        for role, (trim, label) in WATCHED.items()
    }
    # No pass is about these: they only tell whose pods are.
    jobs = {
        each: Informer(
            api, JOBS, kind, namespace=each, on_change=lambda _: None, trim=trim_job, metadata_only=True
        )
        for each in namespaces
    }
    pods = {
        each: PodInformer(
            api,
            kind,
            namespace=each,
            on_change=tell,
            on_step=tell_step,
            jobs=jobs[each],
            jobsets=children[Role.HOST][each],
            outlives=tells_of_end,
        )
        for each in namespaces
    }

    def child_of(role: Role, namespace: str) -> Informer:
        return children[role][namespace if settings.namespaces else None]

    def pods_of(namespace: str) -> PodInformer:
        return pods[namespace if settings.namespaces else None]

    def remember(role: Role, child: Manifest) -> None:
        if role in children:
            child_of(role, child["metadata"]["namespace"]).remember(child)

    node_pools = NodePools.of(services, store, on_change=lambda key: queue.add(kind.key(key)))
    observer = Observer(
        api,
        children={role: functools.partial(child_of, role) for role in children},
        pods=pods_of,
        nodes=services.nodes,
        policy=settings.policy,
        node_pools=node_pools,
    )
    actor = Actor(api, services.lease, settings=settings.plan, remember=remember)
    reconciler = Reconciler(
        kind,
        store,
        observer,
        actor,
        Writer(api, services.lease, kind, identity=services.identity),
        services.metrics,
        policy=settings.policy,
        clock=services.clock,
    )
    owners = [children[Role.HOST], jobs, children[Role.WORKER]]
    watches = [*(tuple(each.values()) for each in owners), tuple(pods.values())]
    writers = {} if node_pools is None else {"node pools": node_pools.run}
    return Controller(kind, store, reconciler.reconcile, watches, writers)


FRAYJOB: Final = Kind(custom=CUSTOM, label=LABEL_JOB, control=_control, requires=(JOBSETS,))
KINDS: Final = (FRAYJOB, FRAYACTOR)
"""All that an operator serves."""
