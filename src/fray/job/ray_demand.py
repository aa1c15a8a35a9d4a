"""How many workers there is work for in a Ray, and who keeps the number of a job's workers right.

Ray's own autoscaler doesn't run. Its head says what waits and which nodes idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from fray.job.engine_pods import ANSWER_SECONDS, Unheld, holds
from fray.job.ray_node import LOOK_SECONDS, connect, read_head_versions, write_offer
from fray.runtime.pool.head.scaling import FOLLOW_SECONDS, JobScale, ScaleLimits, keep_scale
from fray.runtime.pool.machine.growth import count_missing
from fray.runtime.pool.messages.specs import Shape
from fray.runtime.pool.transport.addresses import Address
from fray.vocabulary import LABEL_ROLE

__all__ = ["RayNode", "RayWorkload", "ask_for_workers", "await_head"]

_log = logging.getLogger(__name__)

STATES: Final = "ray.core.generated.autoscaler_pb2"
"""Ray's module of what the head says of nodes; its names exist only once it's imported."""
KINDS: Final = frozenset({"CPU", "GPU", "TPU", "memory"})
"""Resources of which a worker has none where its offer doesn't name them."""


@dataclass(frozen=True)
class RayNode:
    """A worker's node, as Ray's head knows it. `idle`: it runs nothing, and keeps no object that counts."""

    id: str
    total: Mapping[str, float]
    idle: bool


@dataclass
class RayWorkload:
    """The workers of a Ray, and what waits for them: needs and a count each; see `Workload`.

    `gcs` is the client of Ray's head.
    """

    gcs: Any
    nodes: Sequence[RayNode] = ()
    waiting: Sequence[tuple[Shape, int]] = ()
    others: Sequence[Mapping[str, float]] = ()
    """What ranks' nodes have: no CPU, and all else."""
    keeping: Set[str] = frozenset()
    """The nodes that actors run on."""
    stopped: bool = field(default=False, init=False)
    _released: set[str] = field(default_factory=set)

    def count_wanted(self, offered: Shape) -> int:
        """See `Workload`: those at work, and those that what waits would fill."""
        totals = [node.total for node in self.nodes] or [{"CPU": 1.0}]
        known = offered or tuple(max(totals, key=lambda total: total.get("CPU", 0.0)).items())
        return sum(not node.idle for node in self.nodes) + count_missing(known, self.waiting)

    def find_unheld(self, offered: Shape) -> dict[Shape, int]:
        """Return what waits and no node can ever hold, with counts; see `Workload` for `offered`.

        Ray itself gives nodes further resources, such as `accelerator_type:A100`: what names them is looked
        at once there is a worker. Those of placement groups are no node's own.
        """
        nodes = [dict(offered), *(node.total for node in self.nodes), *self.others]
        unheld: Counter[Shape] = Counter()
        for shape, count in self.waiting if offered else ():
            wanted = dict(shape)
            known = bool(self.nodes) or wanted.keys() <= KINDS | nodes[0].keys()
            of_group = any("_group_" in name for name in wanted)
            if known and not of_group and not any(holds(node, wanted) for node in nodes):
                unheld[tuple(sorted(shape))] += count
        return unheld

    def count_workers(self) -> int:
        """See `Workload`."""
        return sum(node.id not in self._released for node in self.nodes)

    def release(self, surplus: int) -> int:
        """See `Workload`: Ray drains them, and refuses for one that has work by now."""
        idle = [node for node in self.nodes if node.idle]
        return self._drain(idle, "DRAIN_NODE_REASON_IDLE_TERMINATION", surplus)

    def retire(self, surplus: int) -> None:
        """See `Workload`: the worker's pod notices, and goes as after SIGTERM."""
        busy = [node for node in self.nodes if not node.idle and node.id not in self.keeping]
        self._drain(busy, "DRAIN_NODE_REASON_PREEMPTION", surplus)

    def recall(self, missing: int) -> None:
        """See `Workload`: Ray takes no node back, so that others must follow."""

    def _drain(self, nodes: Sequence[RayNode], reason: str, most: int) -> int:
        from ray.exceptions import RayError  # noqa: PLC0415 - of the job's image

        number, drained = import_module(STATES).DrainNodeReason.Value(reason), 0
        for node in nodes:
            if drained == most:
                break
            if node.id in self._released:
                continue
            with contextlib.suppress(RayError):  # the next look asks again
                accepted, _ = self.gcs.drain_node(node.id, number, "there are more workers than asked for", 0)
                if accepted:
                    self._released.add(node.id)
                    drained += 1
        return drained

    def look(self) -> None:
        """Ask the head what there is; raises what Ray raises."""
        from ray.autoscaler.v2.sdk import get_cluster_resource_state  # noqa: PLC0415 - of the job's image

        state = get_cluster_resource_state(self.gcs)
        status = import_module(STATES).NodeStatus
        idle = status.Value("IDLE")
        at_work = (idle, status.Value("RUNNING"))
        there = [node for node in state.node_states if node.status in at_work]
        self.nodes = [
            RayNode(node.node_id.hex(), dict(node.total_resources), node.status == idle)
            for node in there
            if node.labels.get(LABEL_ROLE) == "worker"
        ]
        self.others = [
            dict(node.total_resources) for node in there if node.labels.get(LABEL_ROLE) != "worker"
        ]
        asked = [(each.request, each.count) for each in state.pending_resource_requests]
        asked += [(each, 1) for gang in state.pending_gang_resource_requests for each in gang.requests]
        self.waiting = [(tuple(request.resources_bundle.items()), count) for request, count in asked]


async def ask_for_workers(head: Address, limits: ScaleLimits, scale: JobScale) -> None:
    """Keep the number of a job's workers right, once Ray's head is ready; SIGTERM ends the process."""
    from ray.exceptions import RayError  # noqa: PLC0415 - of the job's image

    # At once, since a look at a head that has ended takes up to a minute, and nothing here needs an order.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    gcs = await await_head(head)
    workload, unheld = RayWorkload(gcs), Unheld()
    await asyncio.to_thread(write_offer, gcs, limits.offered)
    keep_scale(asyncio.get_running_loop(), workload, limits=limits, scale=scale)
    while True:
        try:
            await asyncio.to_thread(workload.look)
            if limits.most is None:
                workload.keeping = await find_actor_nodes(gcs)
            unheld.tell(workload.find_unheld(limits.offered), limits.offered)
        except RayError as error:
            _log.warning("Ray's head doesn't say what work there is: %s", error)
        # What users ask for is read no more often.
        await asyncio.sleep(LOOK_SECONDS if limits.most is not None else FOLLOW_SECONDS)


async def find_actor_nodes(gcs: Any) -> set[str]:
    """Return the nodes that actors run on, as the head knows them; raises what Ray raises."""
    actors = (await gcs.async_get_all_actor_info(timeout=ANSWER_SECONDS)).values()
    alive = [actor for actor in actors if actor.state == type(actor).ALIVE]
    return {actor.address.node_id.hex() for actor in alive}


async def await_head(head: Address) -> Any:
    """Return a client of the head once it's ready: this container starts before that of the head.

    A head that isn't may be started again. It is another one then, and answers no client of the first.
    """
    from ray.exceptions import RayError  # noqa: PLC0415 - of the job's image

    while True:
        with contextlib.suppress(OSError, RayError):
            gcs = await asyncio.to_thread(connect, head)
            await asyncio.to_thread(read_head_versions, gcs)
            return gcs
        await asyncio.sleep(LOOK_SECONDS)
