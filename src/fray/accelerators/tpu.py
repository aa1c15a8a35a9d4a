"""From a TPU type's name to the slice it means: topology, chips, hosts, machine type, node label.

For a name that isn't legal: which legal ones may have been meant. The facts are in `tpu_generations`. Nothing
here knows of pods, selectors or manifests.
"""

from __future__ import annotations

import difflib
import math
import re
from bisect import bisect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain, zip_longest

from fray.accelerators.host_sizes import HostSize
from fray.accelerators.tpu_generations import (
    TpuGeneration,
    TpuMachine,
    generations,
    generations_by_spelling,
    topology_dimensions,
)
from fray.errors import AcceleratorShapeError, UnknownAcceleratorError

__all__ = [
    "TpuSlice",
    "legal_topologies",
    "legal_tpu_names",
    "lookup_tpu",
]

_MOST_NEAREST = 5
# Longer text can't be near any name, and comparing it would take time.
_LONGEST = 40


@dataclass(frozen=True)
class TpuSlice:
    """One TPU slice: chips wired to one torus or plane, spread over one or more hosts.

    Only `lookup_tpu` makes them; a slice that it returned is legal.

    Attributes:
        type: The canonical name (`v5p-16`, `v5litepod-16`, and `v5p-4x4x16` where `v5p-512` stands for
            another topology of as many chips).
        generation: The part of it before the dash.
        topology: Chips along each dimension, and the nodes' value of the topology label.
        chips_per_host: Chips of each host; its pod asks for all of them.
        machine_type: The Compute Engine machine type of each host.
        accelerator_label: The nodes' value of `cloud.google.com/gke-tpu-accelerator`.
    """

    type: str
    generation: str
    topology: str
    chips_per_host: int
    machine_type: str
    accelerator_label: str

    @property
    def chips(self) -> int:
        """Chips of the whole slice."""
        return math.prod(topology_dimensions(self.topology))

    @property
    def hosts(self) -> int:
        """Hosts of the slice, each of which runs one pod."""
        return self.chips // self.chips_per_host

    @property
    def multi_host(self) -> bool:
        """Whether the slice is one atomic node pool of several hosts."""
        return self.hosts > 1

    @property
    def cubes(self) -> int:
        """Cubes of 4x4x4 chips that GKE can form the slice of on demand; 0 where it can't.

        GKE's page on dynamic slices: tpu7x only; smaller slices lie within a cube, which is another feature.
        """
        whole = all(side % 4 == 0 for side in topology_dimensions(self.topology))
        return self.chips // 64 if self.generation == "tpu7x" and whole else 0

    @property
    def size(self) -> HostSize | None:
        """CPU and memory of one host; None where no source says so."""
        return self._machine.size

    @property
    def needs_accelerator_count(self) -> bool:
        """Whether two machine types carry this label and topology, so that pods must select the count.

        True for `v5litepod` and `v6e` with topology 2x4: one host of 8 chips, or two of 4.
        """
        return len(self._generation.machines_of(self.topology)) > 1

    @property
    def _generation(self) -> TpuGeneration:
        return generations_by_spelling()[self.generation]

    @property
    def _machine(self) -> TpuMachine:
        machines = self._generation.machines_of(self.topology)
        return next(machine for machine in machines if machine.chips == self.chips_per_host)


def lookup_tpu(type: str, *, topology: str | None = None, chips_per_host: int | None = None) -> TpuSlice:  # noqa: A002 - the field's name in a FrayJob
    """The slice that a TPU type means.

    Names are exact and in lower case, as the API server checks them too:

    - `<generation>-<size>`. The size counts TensorCores, two per chip, for v3, v4, v5p, tpu7 and tpu7x;
      it counts chips for v5litepod (also spelled v5e and v5lite), v6e, v4lite and v5litedevice.
    - `<generation>-<topology>`, which is never ambiguous: `v5p-4x4x8`.

    `v3-8` is the single-host v3 device, larger v3 types are slices of the v3 pod. `v4lite-4` is GKE's
    `tpu-v4-lite-device`, `v5litedevice-1`, `-4` and `-8` are the older `tpu-v5-lite-device` machines.

    Args:
        type: The name.
        topology: A legal topology of as many chips, where the size's default isn't wanted; a name with
            a topology allows only that one.
        chips_per_host: Chips of each host, where a topology comes on two machine types: `v6e-8` and
            `v5litepod-8` are one host of 8 chips by default, and two hosts of 4 with `chips_per_host=4`.

    Raises:
        UnknownAcceleratorError: No machine has such a name; the error holds the nearest that exist.
        AcceleratorShapeError: The type doesn't come in that topology or with that many chips per host.
    """
    generation, topologies = _parse_name(type)
    if topology is None:
        topology = topologies[0]
    elif topology not in topologies:
        raise AcceleratorShapeError(type, "topology", topology, topologies)
    machines = generation.machines_of(topology)
    machine = next((m for m in machines if chips_per_host in (None, m.chips)), None)
    if machine is None:
        legal = tuple(str(m.chips) for m in machines)
        raise AcceleratorShapeError(type, "chipsPerHost", str(chips_per_host), legal)
    return TpuSlice(
        type=generation.canonical_name(topology),
        generation=generation.name,
        topology=topology,
        chips_per_host=machine.chips,
        machine_type=machine.machine_type,
        accelerator_label=machine.accelerator_label,
    )


@cache
def legal_tpu_names() -> tuple[str, ...]:
    """The canonical names by size of all generations: oldest generation first, sizes ascending."""
    return tuple(name for generation in generations() for name in generation.size_names)


def legal_topologies(type: str) -> tuple[str, ...]:  # noqa: A002 - the field's name in a FrayJob
    """The topologies that a type allows, default first; exactly one if its name holds a topology.

    Raises:
        UnknownAcceleratorError: No machine has such a name; the error holds the nearest that exist.
    """
    return _parse_name(type)[1]


def _parse_name(name: str) -> tuple[TpuGeneration, tuple[str, ...]]:
    """The generation and the topologies, default first, that a name allows; there is at least one."""
    spelling, _, rest = name.partition("-")
    generation = generations_by_spelling().get(spelling)
    if generation is not None:
        if generation.machines_of(rest):
            return generation, (rest,)
        if topologies := generation.topologies_of_size(rest):
            return generation, topologies
    raise UnknownAcceleratorError("TPU", name, _nearest_tpu_names(name))


def _nearest_tpu_names(name: str) -> tuple[str, ...]:
    """One to five legal names, the likeliest first, for a name that isn't legal.

    They keep the alias that was used (`v5e-10`: `v5e-8`, `v5e-16`). A wrong size gets its neighbours, a
    topology its sorted form or those with about as many chips, a node label or machine type the
    smallest names that it carries, and an unknown generation those that are spelled alike.
    """
    text = _simplify(name)
    if carried := _names_carried_by(text):
        return carried[:_MOST_NEAREST]
    by_spelling = generations_by_spelling()
    spelling, rest = _split(text, by_spelling)
    alike = [spelling] if spelling in by_spelling else _one_spelling_each(_alike(spelling), by_spelling)
    columns = [[f"{s}-{found}" for found in _nearest_rest(by_spelling[s], rest)] for s in alike]
    found = tuple(name for name in chain.from_iterable(zip_longest(*columns)) if name)
    return found[:_MOST_NEAREST] or tuple(
        generation.size_names[0] for generation in generations()[-_MOST_NEAREST:]
    )


def _simplify(name: str) -> str:
    return name[:_LONGEST].strip().lower().replace("_", "-")


def _split(text: str, spellings: Iterable[str]) -> tuple[str, str]:
    """The generation and what follows it, also where the dash is missing (`v5p16`)."""
    if "-" not in text:
        begun = [spelling for spelling in spellings if text.startswith(spelling)]
        if begun:
            longest = max(begun, key=len)
            return longest, text.removeprefix(longest)
    spelling, _, rest = text.partition("-")
    return spelling, rest


def _alike(spelling: str) -> list[str]:
    """Spellings that look like one that doesn't exist, else those with the same number in it."""
    spellings = list(generations_by_spelling())
    if close := difflib.get_close_matches(spelling, spellings, n=_MOST_NEAREST):
        return close
    number = re.search(r"[0-9]+", spelling)
    return [s for s in spellings if number and number[0] in s][:_MOST_NEAREST]


def _nearest_rest(generation: TpuGeneration, rest: str) -> list[str]:
    """Sizes or topologies of one generation, likeliest first, near to what follows the dash."""
    if re.fullmatch(r"[0-9]+", rest):
        return _nearest_sizes(generation.sizes, int(rest))
    if re.fullmatch(r"[0-9]+(x[0-9]+)+", rest):
        return _nearest_topologies(generation.topologies, topology_dimensions(rest))
    return [str(size) for size in generation.sizes[:_MOST_NEAREST]]


def _nearest_sizes(sizes: tuple[int, ...], wanted: int) -> list[str]:
    """`wanted` itself if it is a size, else the sizes just below and just above it."""
    if wanted in sizes:
        return [str(wanted)]
    above = bisect(sizes, wanted)
    return [str(size) for size in sizes[max(0, above - 1) : above + 1]]


def _nearest_topologies(topologies: tuple[str, ...], wanted: tuple[int, ...]) -> list[str]:
    """The same dimensions in another order, else three with about as many chips."""
    for topology in topologies:
        if sorted(topology_dimensions(topology)) == sorted(wanted):
            return [topology]
    chips = max(1, math.prod(wanted))

    def distance(topology: str) -> float:
        return abs(math.log(math.prod(topology_dimensions(topology)) / chips))

    return sorted(topologies, key=distance)[:3]


def _names_carried_by(text: str) -> tuple[str, ...]:
    """The names of the slices that a node label or machine type carries; none if it is neither."""
    return tuple(
        generation.canonical_name(topology)
        for generation in generations()
        if any(text in (m.accelerator_label, m.machine_type) for m in generation.machines)
        for topology in generation.topologies
        if any(text in (m.accelerator_label, m.machine_type) for m in generation.machines_of(topology))
    )


def _one_spelling_each(spellings: list[str], by_spelling: Mapping[str, TpuGeneration]) -> list[str]:
    """The first spelling of each generation, in order."""
    first: dict[str, str] = {}
    for spelling in spellings:
        first.setdefault(by_spelling[spelling].name, spelling)
    return list(first.values())
