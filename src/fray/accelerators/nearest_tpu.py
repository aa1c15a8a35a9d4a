"""Which legal TPU names somebody may have meant who wrote one that doesn't exist.

Advice for error messages only: it never decides what a name means.
"""

from __future__ import annotations

import difflib
import math
import re
from bisect import bisect
from collections.abc import Iterable, Mapping
from itertools import chain, zip_longest

from fray.accelerators.tpu_generations import (
    TpuGeneration,
    generations,
    generations_by_spelling,
    topology_dimensions,
)

__all__ = ["nearest_tpu_generations", "nearest_tpu_names"]

_MOST = 5
# Longer text can't be near any name, and comparing it would take time.
_LONGEST = 40


def nearest_tpu_names(name: str) -> tuple[str, ...]:
    """One to five legal names, the likeliest first, for a name that isn't legal.

    They keep the alias that was used (`v5e-10`: `v5e-8`, `v5e-16`). A wrong size gets its neighbours, a
    topology its sorted form or those with about as many chips, a node label or machine type the
    smallest names that it carries, and an unknown generation those that are spelled alike.
    """
    text = _simplify(name)
    if carried := _names_carried_by(text):
        return carried[:_MOST]
    by_spelling = generations_by_spelling()
    spelling, rest = _split(text, by_spelling)
    alike = [spelling] if spelling in by_spelling else _one_spelling_each(_alike(spelling), by_spelling)
    columns = [[f"{s}-{found}" for found in _nearest_rest(by_spelling[s], rest)] for s in alike]
    found = tuple(name for name in chain.from_iterable(zip_longest(*columns)) if name)
    return found[:_MOST] or tuple(generation.size_names[0] for generation in generations()[-_MOST:])


def nearest_tpu_generations(name: str) -> tuple[str, ...]:
    """One to five spellings of TPU generations, the likeliest first, for one that doesn't exist."""
    return tuple(_alike(_simplify(name))) or tuple(g.name for g in generations()[-_MOST:])


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
    if close := difflib.get_close_matches(spelling, spellings, n=_MOST):
        return close
    number = re.search(r"[0-9]+", spelling)
    return [s for s in spellings if number and number[0] in s][:_MOST]


def _nearest_rest(generation: TpuGeneration, rest: str) -> list[str]:
    """Sizes or topologies of one generation, likeliest first, near to what follows the dash."""
    if re.fullmatch(r"[0-9]+", rest):
        return _nearest_sizes(generation.sizes, int(rest))
    if re.fullmatch(r"[0-9]+(x[0-9]+)+", rest):
        return _nearest_topologies(generation.topologies, topology_dimensions(rest))
    return [str(size) for size in generation.sizes[:_MOST]]


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
