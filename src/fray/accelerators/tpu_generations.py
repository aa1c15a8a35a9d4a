"""The table of TPU generations on GKE: how each is named, and which machines carry which topologies.

Facts and what follows from them by arithmetic; turning a user's name into a slice is `tpu`'s work.
The CRD's rules are generated from `generations()`.

Sources: machine types, labels and single-host topologies from the GKE cluster autoscaler's table and XPK
(`core/system_characteristics.py` of release 1.16.0, 2026-08); the rule for 3-D topologies from GKE's page
"Plan TPUs" as kuberay's TPU validation and XPK transcribe it; sizes of hosts from Marin's Fray table, the
autoscaler and, where those have none, the machine types in Google's pages on each TPU version (2025-11).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from types import MappingProxyType

from fray.accelerators.host_sizes import HostSize

__all__ = [
    "TorusRule",
    "TpuGeneration",
    "TpuMachine",
    "generations",
    "generations_by_spelling",
    "topology_dimensions",
]


def topology_dimensions(topology: str) -> tuple[int, ...]:
    """The dimensions of a well-formed topology, in chips: `2x2x4` is `(2, 2, 4)`.

    Raises:
        ValueError: A part of `topology` is not a number.
    """
    return tuple(int(part) for part in topology.split("x"))


@dataclass(frozen=True)
class TorusRule:
    """GKE's rule for 3-D topologies of more than one chip, in their normal form.

    Up to 64 chips these are 2x2x1, 2x2x2, 2x2x4, 2x4x4 and 4x4x4; above, every dimension is a multiple
    of 4 and none is smaller than the one before it (4x4x8 is legal, 8x4x4 is another spelling of it and
    no node has that label).

    Attributes:
        max_chips: Chips of the largest slice.
        max_dimension: Chips along its longest side. 256 is the longest that any of XPK's slices has.
    """

    max_chips: int
    max_dimension: int

    def __iter__(self) -> Iterator[str]:
        """Every topology of this rule, in no particular order."""
        yield from ("2x2x1", "2x2x2", "2x2x4", "2x4x4")
        sides = range(4, self.max_dimension + 1, 4)
        for a in sides:
            for b in range(a, self.max_dimension + 1, 4):
                longest = min(self.max_dimension, self.max_chips // (a * b))
                if longest < b:
                    break
                yield from (f"{a}x{b}x{c}" for c in range(b, longest + 1, 4))


@dataclass(frozen=True)
class TpuMachine:
    """One machine type that carries TPU chips.

    Attributes:
        machine_type: The Compute Engine name, e.g. `ct5p-hightpu-4t`.
        chips: TPU chips of one machine, all of which one pod takes.
        accelerator_label: Its nodes' value of `cloud.google.com/gke-tpu-accelerator`.
        topologies: The slices that are built of it.
        size: CPU and memory of one machine; None where no source says so.
        others: Machine types with the same chips and label, which a job doesn't tell apart.
    """

    machine_type: str
    chips: int
    accelerator_label: str
    topologies: tuple[str, ...] | TorusRule
    size: HostSize | None = None
    others: tuple[str, ...] = ()

    @property
    def machine_types(self) -> tuple[str, ...]:
        """All machine types of this kind, the default first."""
        return (self.machine_type, *self.others)


@dataclass(frozen=True)
class TpuGeneration:
    """One family of TPU types: the part of their names before the dash, and all its legal slices.

    A type is named `<spelling>-<size>` or `<spelling>-<topology>`. A size stands for the topology with
    the smallest longest side and then the smallest sum of sides among those with as many chips (the
    choice of XPK and of Google's tables); any other legal topology has to be asked for.

    Attributes:
        name: The canonical spelling, e.g. `v5litepod`.
        cores_per_chip: What the size counts: 2 where it is TensorCores (`v5p-8` has 4 chips), 1 where
            it is chips (`v6e-8` has 8).
        machines: Its machine types. Where two carry the same topology, the first is the default.
        aliases: Other spellings, e.g. `v5e`.
        multislice: Whether several slices of it can form one multislice.
    """

    name: str
    cores_per_chip: int
    machines: tuple[TpuMachine, ...]
    aliases: tuple[str, ...] = ()
    multislice: bool = True

    @property
    def spellings(self) -> tuple[str, ...]:
        """The name and its aliases."""
        return (self.name, *self.aliases)

    @property
    def size_counts(self) -> str:
        """What the number in a type's name counts: `TensorCores` or `chips`."""
        return "TensorCores" if self.cores_per_chip == 2 else "chips"

    @cached_property
    def _machines_of(self) -> dict[str, tuple[TpuMachine, ...]]:
        """Topology -> the machines that carry it, default first; best topology of each size first."""
        found: dict[str, list[TpuMachine]] = {}
        for machine in self.machines:
            for topology in machine.topologies:
                found.setdefault(topology, []).append(machine)
        return {topology: tuple(found[topology]) for topology in sorted(found, key=_preference)}

    @cached_property
    def _topologies_of(self) -> dict[str, tuple[str, ...]]:
        """Size as it is spelled in a name -> its topologies, default first; sizes ascend."""
        found: dict[str, list[str]] = {}
        for topology in self.topologies:
            size = math.prod(topology_dimensions(topology)) * self.cores_per_chip
            found.setdefault(str(size), []).append(topology)
        return {size: tuple(topologies) for size, topologies in found.items()}

    @property
    def topologies(self) -> tuple[str, ...]:
        """Every legal topology: ascending by chips, the default of each size before the others."""
        return tuple(self._machines_of)

    @property
    def dimensions(self) -> int:
        """The number of dimensions of all its topologies: 2 or 3."""
        return len(topology_dimensions(next(iter(self.machines[0].topologies))))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers that a type's name can have, ascending; they count `size_counts`."""
        return tuple(int(size) for size in self._topologies_of)

    @property
    def size_names(self) -> tuple[str, ...]:
        """The canonical names by size, ascending: `v5p-8`, `v5p-16`, ..."""
        return tuple(f"{self.name}-{size}" for size in self._topologies_of)

    def topologies_of_size(self, size: str) -> tuple[str, ...]:
        """The topologies with as many chips as a size has, default first; none if there is no such size.

        Args:
            size: The number as the name has it (`16`); it counts `size_counts`.
        """
        return self._topologies_of.get(size, ())

    def machines_of(self, topology: str) -> tuple[TpuMachine, ...]:
        """The machines that carry a topology, default first; none if the topology isn't legal."""
        return self._machines_of.get(topology, ())

    def chips_per_host(self, topology: str) -> tuple[int, ...]:
        """The legal `chipsPerHost` of a topology, default first; none if the topology isn't legal."""
        return tuple(machine.chips for machine in self.machines_of(topology))

    def canonical_name(self, topology: str) -> str:
        """The one name by which `topology` is looked up again: by size where it is the size's default.

        Args:
            topology: One of `topologies`.
        """
        size = str(math.prod(topology_dimensions(topology)) * self.cores_per_chip)
        is_default = self.topologies_of_size(size)[:1] == (topology,)
        return f"{self.name}-{size}" if is_default else f"{self.name}-{topology}"


def _preference(topology: str) -> tuple[int, int, int, tuple[int, ...]]:
    """Sorts by chips, then by what a size name stands for: short longest side, then small sum."""
    dimensions = topology_dimensions(topology)
    return math.prod(dimensions), max(dimensions), sum(dimensions), dimensions


# --- the table: oldest first ---------------------------------------------------------------------------

_PLANE_4T = ("2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_V3_POD = ("4x4", "4x8", "8x8", "8x16", "16x16", "16x32", "32x32")
_V5E = "tpu-v5-lite-podslice"
_V5E_DEVICE = "tpu-v5-lite-device"
_V6E = "tpu-v6e-slice"

_GENERATIONS = (
    TpuGeneration(
        "v3",
        cores_per_chip=2,
        machines=(
            TpuMachine("ct3-hightpu-4t", 4, "tpu-v3-device", ("2x2",), HostSize(96, 340)),
            TpuMachine("ct3p-hightpu-4t", 4, "tpu-v3-slice", _V3_POD, HostSize(48, 340)),
        ),
        multislice=False,
    ),
    TpuGeneration(
        "v4",
        cores_per_chip=2,
        machines=(
            TpuMachine("ct4p-hightpu-4t", 4, "tpu-v4-podslice", TorusRule(4096, 16), HostSize(240, 400)),
        ),
    ),
    # Inference chips with one core, as all of Google's "lite" names: the size counts chips.
    TpuGeneration(
        "v4lite",
        cores_per_chip=1,
        machines=(TpuMachine("ct4l-hightpu-4t", 4, "tpu-v4-lite-device", ("2x2",)),),
    ),
    # The v5e machines of before `v5litepod`: same chips, other label, single hosts only.
    TpuGeneration(
        "v5litedevice",
        cores_per_chip=1,
        machines=(
            TpuMachine("ct5l-hightpu-1t", 1, _V5E_DEVICE, ("1x1",)),
            TpuMachine("ct5l-hightpu-4t", 4, _V5E_DEVICE, ("2x2",)),
            TpuMachine("ct5l-hightpu-8t", 8, _V5E_DEVICE, ("2x4",)),
        ),
    ),
    # There is no machine with 2 chips, whatever older tables say of `v5litepod-2`. Topology 2x4 exists
    # as one machine of 8 and as two of 4: Marin's Fray means the first, XPK the second.
    TpuGeneration(
        "v5litepod",
        cores_per_chip=1,
        machines=(
            TpuMachine("ct5lp-hightpu-1t", 1, _V5E, ("1x1",), HostSize(24, 48)),
            TpuMachine("ct5lp-hightpu-8t", 8, _V5E, ("2x4",), HostSize(224, 384)),
            TpuMachine("ct5lp-hightpu-4t", 4, _V5E, _PLANE_4T, HostSize(112, 192)),
        ),
        aliases=("v5e", "v5lite"),
    ),
    TpuGeneration(
        "v5p",
        cores_per_chip=2,
        machines=(
            TpuMachine("ct5p-hightpu-4t", 4, "tpu-v5p-slice", TorusRule(6144, 256), HostSize(208, 448)),
        ),
    ),
    TpuGeneration(
        "v6e",
        cores_per_chip=1,
        machines=(
            TpuMachine("ct6e-standard-1t", 1, _V6E, ("1x1",), HostSize(44, 176)),
            TpuMachine("ct6e-standard-8t", 8, _V6E, ("2x4",), HostSize(180, 1440)),
            TpuMachine("ct6e-standard-4t", 4, _V6E, _PLANE_4T, HostSize(180, 720)),
        ),
    ),
    # Sizes of both kinds of Ironwood count TensorCores, as XPK has it; other tools may count chips, so
    # `tpu7x-2x2x1` is the safer way to write them.
    TpuGeneration(
        "tpu7",
        cores_per_chip=2,
        machines=(
            TpuMachine("tpu7-standard-1t", 1, "tpu7", ("1x1x1",)),
            TpuMachine("tpu7-standard-4t", 4, "tpu7", TorusRule(256, 256)),
        ),
    ),
    TpuGeneration(
        "tpu7x",
        cores_per_chip=2,
        machines=(
            TpuMachine("tpu7x-standard-1t", 1, "tpu7x", ("1x1x1",)),
            # The autoscaler's table has `ultranet` beside it; what sets them apart no page says.
            TpuMachine(
                "tpu7x-standard-4t",
                4,
                "tpu7x",
                TorusRule(9216, 256),
                HostSize(224, 960),
                others=("tpu7x-ultranet-4t",),
            ),
        ),
    ),
)


def generations() -> tuple[TpuGeneration, ...]:
    """Every TPU generation that GKE has machines of, oldest first."""
    return _GENERATIONS


@cache
def generations_by_spelling() -> Mapping[str, TpuGeneration]:
    """Every generation under its name and under each of its aliases."""
    return MappingProxyType({s: generation for generation in generations() for s in generation.spellings})
