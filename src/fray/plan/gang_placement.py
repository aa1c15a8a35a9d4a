"""Who keeps the hosts of a gang together, by what the cluster has: read from it, never guessed.

JobSet gives each multi-host slice a node pool of its own. Kueue does it where the queue's flavors have a
topology that it can do it by. Where slices are formed on demand (tpu7x), both work by other labels. Each is
one function that returns what manifests have to say; a scheduler's own gangs would be one more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fray.accelerators import LABEL_HOSTNAME, LABEL_NODE_POOL, LABEL_TPU_CUBE, LABEL_TPU_SLICE
from fray.plan.gang import Gang
from fray.plan.manifests import Fact
from fray.vocabulary import (
    ANNOTATION_EXCLUSIVE_TOPOLOGY,
    ANNOTATION_PREFERRED_TOPOLOGY,
    ANNOTATION_SLICE_REQUIRED_TOPOLOGY,
    ANNOTATION_SLICE_SIZE,
    ANNOTATION_TPU_SLICE_TOPOLOGY,
)

__all__ = [
    "NOTHING_READ",
    "ClusterTopology",
    "GangPlacement",
    "QueueFlavor",
    "build_gang_placement",
    "is_dynamic",
]

EXCLUSIVE_DOCS = "https://jobset.sigs.k8s.io/docs/tasks/exclusive_placement/"
KUEUE_DOCS = "https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/"
SLICES_DOCS = "https://docs.cloud.google.com/kubernetes-engine/docs/how-to/create-dynamic-slices"


@dataclass(frozen=True)
class QueueFlavor:
    """A ResourceFlavor of a job's queue: its node labels, and the levels of its topology, widest first."""

    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    levels: tuple[str, ...] = ()

    def fits(self, selector: Mapping[str, str]) -> bool:
        """Return whether pods with this node selector may use it; Kueue passes it over where they may not."""
        return all(selector.get(key, value) == value for key, value in self.node_labels.items())


@dataclass(frozen=True)
class ClusterTopology:
    """What a cluster has that keeps gangs together, as far as one job goes.

    `flavors` are those of its queue. `cubes` says whether there are nodes with its accelerator that slices
    are formed of on demand. `unread` has a sentence for each thing that could not be read.
    """

    flavors: tuple[QueueFlavor, ...] = ()
    cubes: bool = False
    unread: tuple[str, ...] = ()

    def list_levels(self, selector: Mapping[str, str]) -> tuple[str, ...]:
        """Return the levels, widest first, that hold whichever flavor Kueue chooses for such pods."""
        fitting = [flavor.levels for flavor in self.flavors if flavor.fits(selector)]
        return (
            tuple(level for level in fitting[0] if all(level in each for each in fitting)) if fitting else ()
        )


NOTHING_READ = ClusterTopology()
"""Of a cluster that was not asked, or need not be."""


@dataclass(frozen=True)
class GangPlacement:
    """What the JobSet and its pods have to say to who keeps the gang together, and why it is that one."""

    jobset_annotations: Mapping[str, str] = field(default_factory=dict)
    pod_annotations: Mapping[str, str] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()
    notices: tuple[str, ...] = ()


def is_dynamic(gang: Gang, topology: ClusterTopology) -> bool:
    """Return whether the slices of a gang are formed on demand: no node has their topology before."""
    return topology.cubes and gang.tpu is not None and gang.tpu.cubes > 0


def build_gang_placement(
    gang: Gang, topology: ClusterTopology, *, queue: str | None, selector: Mapping[str, str]
) -> GangPlacement:
    """Return who keeps a gang together whose pods have this node selector, and wait in this queue if any."""
    levels = topology.list_levels(selector) if queue is not None else ()
    if is_dynamic(gang, topology):
        return _form_slices(gang, topology, levels)
    if not gang.multi_host_slices:
        return _place_near(topology, _find_above(LABEL_HOSTNAME, levels) if gang.hosts > 1 else None)
    if LABEL_NODE_POOL in levels:
        return _place_slices(gang, topology, levels)
    return _reserve_pools(topology, queue, levels)


def _reserve_pools(topology: ClusterTopology, queue: str | None, levels: tuple[str, ...]) -> GangPlacement:
    """Have JobSet give each slice a node pool."""
    notices = topology.unread
    if levels:
        notices += (
            f"the topology of queue {queue} has no level {LABEL_NODE_POOL}, so Kueue may choose hosts of "
            "several node pools for one slice, which never start together: add that level to the Topology",
        )
    known = "no topology of a queue is known that" if topology.unread else "no topology of a queue"
    subject = f"annotation {ANNOTATION_EXCLUSIVE_TOPOLOGY}"
    why = "a multi-host slice is one node pool: each slice gets one of its own"
    return GangPlacement(
        {ANNOTATION_EXCLUSIVE_TOPOLOGY: LABEL_NODE_POOL},
        facts=(
            _name_placer("JobSet", f"{known} keeps slices together", EXCLUSIVE_DOCS),
            Fact(subject, LABEL_NODE_POOL, why, EXCLUSIVE_DOCS),
        ),
        notices=notices,
    )


def _place_slices(gang: Gang, topology: ClusterTopology, levels: tuple[str, ...]) -> GangPlacement:
    """Have Kueue place each slice on one node pool, and the slices near each other."""
    above = _find_above(LABEL_NODE_POOL, levels) if gang.slices > 1 else None
    near = _place_near(topology, above)
    why = "the topology of the queue's flavors has the level of node pools, and a multi-host slice is one"
    return GangPlacement(
        pod_annotations={**near.pod_annotations, **_build_parts(LABEL_NODE_POOL, gang.hosts_per_slice)},
        facts=(
            _name_placer("Kueue", why, KUEUE_DOCS),
            *_explain_parts(LABEL_NODE_POOL, gang.hosts_per_slice, "hosts of a slice"),
            *_explain_nearness(above),
        ),
        notices=near.notices,
    )


def _place_near(topology: ClusterTopology, level: str | None) -> GangPlacement:
    """Have Kueue place hosts near each other where there is a level to do it by; they run apart as well."""
    if level is None:
        return GangPlacement(notices=topology.unread)
    placer = _name_placer("Kueue", "the queue's flavors have a topology", KUEUE_DOCS)
    return GangPlacement(
        pod_annotations={ANNOTATION_PREFERRED_TOPOLOGY: level},
        facts=(placer, *_explain_nearness(level)),
        notices=topology.unread,
    )


def _explain_nearness(level: str | None) -> tuple[Fact, ...]:
    if level is None:
        return ()
    why = "Kueue tries this level first, and then wider ones"
    return (Fact(f"annotation {ANNOTATION_PREFERRED_TOPOLOGY}", level, why, KUEUE_DOCS),)


def _form_slices(gang: Gang, topology: ClusterTopology, levels: tuple[str, ...]) -> GangPlacement:
    """Have GKE form each slice of cubes; Kueue counts and places the cubes where it knows them."""
    assert gang.tpu is not None
    wanted, cube_hosts = gang.tpu.topology, gang.tpu.hosts // gang.tpu.cubes
    counted = LABEL_TPU_CUBE in levels
    because = f"nodes of {gang.tpu.generation} have the label {LABEL_TPU_CUBE}: slices are formed of them"
    return GangPlacement(
        {ANNOTATION_EXCLUSIVE_TOPOLOGY: LABEL_TPU_SLICE},
        {
            ANNOTATION_TPU_SLICE_TOPOLOGY: wanted,
            **(_build_parts(LABEL_TPU_CUBE, cube_hosts) if counted else {}),
        },
        facts=(
            _name_placer("dynamic slices, by Kueue" if counted else "dynamic slices", because, SLICES_DOCS),
            Fact(
                f"annotation {ANNOTATION_EXCLUSIVE_TOPOLOGY}",
                LABEL_TPU_SLICE,
                "each child Job gets a slice of its own",
                SLICES_DOCS,
            ),
            Fact(
                f"annotation {ANNOTATION_TPU_SLICE_TOPOLOGY}",
                wanted,
                "the slice to form; no node has this topology before, so none is selected",
                SLICES_DOCS,
            ),
            *(_explain_parts(LABEL_TPU_CUBE, cube_hosts, "hosts of a cube") if counted else ()),
        ),
        notices=topology.unread,
    )


def _build_parts(level: str, size: int) -> dict[str, str]:
    return {ANNOTATION_SLICE_REQUIRED_TOPOLOGY: level, ANNOTATION_SLICE_SIZE: str(size)}


def _explain_parts(level: str, size: int, what: str) -> tuple[Fact, ...]:
    why = "Kueue keeps as many hosts as the next line says within one of these"
    return (
        Fact(f"annotation {ANNOTATION_SLICE_REQUIRED_TOPOLOGY}", level, why, KUEUE_DOCS),
        Fact(f"annotation {ANNOTATION_SLICE_SIZE}", str(size), what, KUEUE_DOCS),
    )


def _name_placer(who: str, because: str, source: str) -> Fact:
    return Fact("gang kept together by", who, because, source)


def _find_above(label: str, levels: tuple[str, ...]) -> str | None:
    """Return the narrowest level above a label's own, which need not be one; None where there is none."""
    wider = levels[: levels.index(label)] if label in levels else levels
    return wider[-1] if wider else None
