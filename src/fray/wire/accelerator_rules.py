"""Rules on TPU and GPU fields, generated from the facts in `fray.accelerators`.

No fact stands here: names, sizes, topologies and counts are read from `generations()` and the GPU table
when this module is imported, and become literals of the CEL expressions. Expanding all topologies would
take 115 KB of CRD, so the regular 3-D ones are judged by arithmetic (`TorusRule`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final

from fray.accelerators import (
    TorusRule,
    TpuGeneration,
    generations,
    legal_gpu_counts,
    legal_gpu_types,
    lookup_tpu,
)
from fray.accelerators.tpu_generations import generations_by_spelling, topology_dimensions
from fray.wire.frayactor import FrayActorSpec
from fray.wire.frayjob import FrayJobSpec, Workers
from fray.wire.pod import Gpu, Tpu
from fray.wire.rule import Rule, cel_string, cel_strings

__all__ = [
    "GPU_COUNT",
    "GPU_TYPE",
    "MULTISLICE",
    "ONE_CALL_AT_A_TIME",
    "SINGLE_HOST",
    "TPU_CHIPS_PER_HOST",
    "TPU_NAMED_TOPOLOGY",
    "TPU_SIZE_TOPOLOGY",
    "TPU_TYPE",
]

_SHOWN: Final = 12
"""Names by size that a message lists before it turns to the last one."""


# --- the facts as literals of CEL -----------------------------------------------------------------------


def _torus_of(generation: TpuGeneration) -> TorusRule | None:
    rules = [m.topologies for m in generation.machines if isinstance(m.topologies, TorusRule)]
    return rules[0] if rules else None


_GENERATIONS: Final = generations()
_SPELLINGS: Final = tuple(spelling for generation in _GENERATIONS for spelling in generation.spellings)
_TORUS: Final = {g.name: torus for g in _GENERATIONS if (torus := _torus_of(g)) is not None}


def _irregular_topologies(generation: TpuGeneration) -> tuple[str, ...]:
    """The topologies that the arithmetic form of the torus rule doesn't cover."""
    if generation.name not in _TORUS:
        return generation.topologies
    return tuple(t for t in generation.topologies if any(d % 4 for d in topology_dimensions(t)))


def _alternatives(texts: Iterable[str]) -> str:
    found = tuple(texts)
    return found[0] if len(found) == 1 else f"({'|'.join(found)})"


def _names_pattern(rests: Iterable[tuple[TpuGeneration, Iterable[str]]]) -> str:
    """A pattern of all names that are a generation, a dash and one of its sizes or topologies."""
    return f"^{_alternatives(f'{_alternatives(g.spellings)}-{_alternatives(rest)}' for g, rest in rests)}$"


def _cel_map(entries: Iterable[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{cel_string(key)}: {value}" for key, value in entries) + "}"


def _cel_by_spelling(texts: dict[str, str], *, of: str, otherwise: str) -> str:
    """A chain of conditions that picks the text of the generation by which `of` begins."""
    arms = "".join(
        f"{of}.startsWith({cel_string(spelling + '-')}) ? {cel_string(text)} : "
        for spelling, text in texts.items()
    )
    return f"({arms}{cel_string(otherwise)})"


_CORES_PER_CHIP: Final = _cel_map((s, str(g.cores_per_chip)) for g in _GENERATIONS for s in g.spellings)
_SIZE_NAMES_PATTERN: Final = _names_pattern((g, map(str, g.sizes)) for g in _GENERATIONS)
_IRREGULAR_PATTERN: Final = _names_pattern((g, _irregular_topologies(g)) for g in _GENERATIONS)
_SIZE_PATTERN: Final = f"^{_alternatives(_SPELLINGS)}-[1-9][0-9]{{0,5}}$"
_TOPOLOGY_PATTERN: Final = f"^{_alternatives(_SPELLINGS)}-[1-9][0-9]*(x[1-9][0-9]*)+$"

_SIDE: Final = "[1-9][0-9]{0,2}"
_TOPOLOGY_NAME_IS_LEGAL: Final = (
    # `n` is <generation>-<topology>.
    f"n.matches('{_IRREGULAR_PATTERN}') || (n.matches('^{_alternatives(_TORUS)}-{_SIDE}x{_SIDE}x{_SIDE}$')"
    " && [n.split('-')[1].split('x').map(side, int(side))].all(d,"
    " d[0] % 4 == 0 && d[1] % 4 == 0 && d[2] % 4 == 0 && d[0] <= d[1] && d[1] <= d[2]"
    f" && d[2] <= {_cel_map((name, str(t.max_dimension)) for name, t in _TORUS.items())}[n.split('-')[0]]"
    " && d[0] * d[1] * d[2] <= "
    f"{_cel_map((name, str(torus.max_chips)) for name, torus in _TORUS.items())}[n.split('-')[0]]))"
)


# --- what is legal, for people --------------------------------------------------------------------------


def _legal_names(spelling: str, generation: TpuGeneration) -> str:
    names = [f"{spelling}-{size}" for size in generation.sizes]
    if len(names) > _SHOWN + 2:
        names = [*names[:_SHOWN], "...", names[-1]]
    example = generation.topologies[min(1, len(generation.topologies) - 1)]
    return f"{', '.join(names)} ({generation.size_counts}), or a topology as in {spelling}-{example}"


def _legal_topologies(generation: TpuGeneration) -> str:
    irregular = ", ".join(_irregular_topologies(generation))
    torus = _torus_of(generation)
    if torus is None:
        return irregular
    return (
        f"{irregular} and AxBxC with multiples of 4, A <= B <= C <= {torus.max_dimension}, "
        f"of at most {torus.max_chips} chips"
    )


def _any_legal_name() -> str:
    counted: dict[str, list[str]] = {}
    for generation in _GENERATIONS:
        counted.setdefault(generation.size_counts, []).extend(generation.spellings)
    sizes = ", ".join(f"{'-N, '.join(found)}-N (N = {what})" for what, found in counted.items())
    return f"{sizes}, or a generation and a topology as in v5p-2x2x2"


_NAMES_TEXT: Final = {s: _legal_names(s, g) for g in _GENERATIONS for s in g.spellings}
_TOPOLOGIES_TEXT: Final = {s: _legal_topologies(g) for g in _GENERATIONS for s in g.spellings}
_ANY_NAME_TEXT: Final = _any_legal_name()


# --- TPU: the name --------------------------------------------------------------------------------------


def _is_tpu_type(name: str) -> bool:
    spelling, _, rest = name.partition("-")
    generation = generations_by_spelling().get(spelling)
    if generation is None:
        return False
    return bool(generation.machines_of(rest) or generation.topologies_of_size(rest))


def _legal_names_near(name: str) -> str:
    spelling, dash, _ = name.partition("-")
    return _NAMES_TEXT.get(spelling, _ANY_NAME_TEXT) if dash else _ANY_NAME_TEXT


TPU_TYPE: Final = Rule[str](
    cel=f"self.matches('{_SIZE_NAMES_PATTERN}') || [self].all(n, {_TOPOLOGY_NAME_IS_LEGAL})",
    holds=_is_tpu_type,
    message='unknown TPU type "%s"; legal: %s',
    arguments=lambda name: (name, _legal_names_near(name)),
    arguments_cel=("self", _cel_by_spelling(_NAMES_TEXT, of="self", otherwise=_ANY_NAME_TEXT)),
    fallback=f"unknown TPU type; legal: {_ANY_NAME_TEXT}",
)


# --- TPU: the topology ----------------------------------------------------------------------------------


def _keeps_named_topology(tpu: Tpu) -> bool:
    named = re.search(_TOPOLOGY_PATTERN, tpu.type)
    return tpu.topology is None or named is None or tpu.type.split("-")[1] == tpu.topology


TPU_NAMED_TOPOLOGY: Final = Rule[Tpu](
    cel=f"!has(self.topology) || !self.type.matches('{_TOPOLOGY_PATTERN}')"
    " || self.type.split('-')[1] == self.topology",
    holds=_keeps_named_topology,
    message="%s has no topology %s; legal: the one in its name",
    arguments=lambda tpu: (tpu.type, tpu.topology or ""),
    arguments_cel=("self.type", "self.topology"),
    fallback="another topology than the one in the type's name",
    field="topology",
)


def _size_has_topology(tpu: Tpu) -> bool:
    if tpu.topology is None or re.search(_SIZE_PATTERN, tpu.type) is None:
        return True
    spelling, size = tpu.type.split("-")
    generation = generations_by_spelling()[spelling]
    if not generation.machines_of(tpu.topology):
        return False
    return math.prod(topology_dimensions(tpu.topology)) * generation.cores_per_chip == int(size)


def _legal_topologies_of_size(tpu: Tpu) -> tuple[str | int, ...]:
    spelling, size = tpu.type.split("-")
    chips = int(size) // generations_by_spelling()[spelling].cores_per_chip
    return tpu.type, tpu.topology or "", chips, _TOPOLOGIES_TEXT[spelling]


TPU_SIZE_TOPOLOGY: Final = Rule[Tpu](
    cel=f"!has(self.topology) || !self.type.matches('{_SIZE_PATTERN}')"
    " || [self.type.split('-')[0] + '-' + self.topology].all(n,"
    f" ({_TOPOLOGY_NAME_IS_LEGAL}) && [self.topology.split('x').map(side, int(side))].all(d,"
    f" d[0] * d[1] * (d.size() == 3 ? d[2] : 1) * {_CORES_PER_CHIP}[self.type.split('-')[0]]"
    " == int(self.type.split('-')[1])))",
    holds=_size_has_topology,
    message="%s has no topology %s; legal: those of %d chips among %s",
    arguments=_legal_topologies_of_size,
    arguments_cel=(
        "self.type",
        "self.topology",
        f"int(self.type.split('-')[1]) / {_CORES_PER_CHIP}[self.type.split('-')[0]]",
        _cel_by_spelling(_TOPOLOGIES_TEXT, of="self.type", otherwise=""),
    ),
    fallback="a topology that the type doesn't have",
    field="topology",
)


# --- TPU: chips of one host -----------------------------------------------------------------------------

_USUAL_CHIPS: Final = (4,)


def _unusual_chips_per_host() -> dict[tuple[int, ...], str]:
    """Legal chipsPerHost, default first -> pattern of the types that have them, where it isn't 4 alone.

    Raises:
        ValueError: A size comes with different hosts in different topologies, which a rule on the name
            alone can't tell apart.
    """
    found: dict[tuple[int, ...], list[tuple[TpuGeneration, Iterable[str]]]] = {}
    for generation in _GENERATIONS:
        for size in map(str, generation.sizes):
            topologies = generation.topologies_of_size(size)
            legal = {generation.chips_per_host(topology) for topology in topologies}
            if len(legal) > 1:
                raise ValueError(f"{generation.name}-{size} has hosts of several kinds: {legal}")
            if legal != {_USUAL_CHIPS}:
                found.setdefault(legal.pop(), []).append((generation, (size, *topologies)))
    return {chips: _names_pattern(names) for chips, names in found.items()}


_UNUSUAL_CHIPS: Final = _unusual_chips_per_host()


def _legal_chips_per_host(name: str) -> tuple[int, ...]:
    return next((chips for chips, names in _UNUSUAL_CHIPS.items() if re.search(names, name)), _USUAL_CHIPS)


def _cel_per_chips(form: str) -> str:
    """A chain of conditions over the unusual types; `form` is formatted with their legal chips."""
    arms = "".join(
        f"self.type.matches('{names}') ? {form.format(', '.join(map(str, chips)))} : "
        for chips, names in _UNUSUAL_CHIPS.items()
    )
    return f"({arms}{form.format(', '.join(map(str, _USUAL_CHIPS)))})"


def _legal_chips(tpu: Tpu) -> tuple[str | int, ...]:
    return tpu.type, tpu.chips_per_host or 0, ", ".join(map(str, _legal_chips_per_host(tpu.type)))


TPU_CHIPS_PER_HOST: Final = Rule[Tpu](
    cel=f"!has(self.chipsPerHost) || self.chipsPerHost in {_cel_per_chips('[{}]')}",
    holds=lambda tpu: tpu.chips_per_host is None or tpu.chips_per_host in _legal_chips_per_host(tpu.type),
    message="%s has no chipsPerHost %d; legal: %s",
    arguments=_legal_chips,
    arguments_cel=("self.type", "self.chipsPerHost", _cel_per_chips("'{}'")),
    fallback="a chipsPerHost that the type doesn't have",
    field="chipsPerHost",
)


# --- TPU: several slices --------------------------------------------------------------------------------

_SINGLE_SLICE: Final = tuple(s for g in _GENERATIONS if not g.multislice for s in g.spellings)


def _may_have_replicas(spec: FrayJobSpec) -> bool:
    tpu = spec.resources.tpu
    return spec.replicas == 1 or tpu is None or tpu.type.partition("-")[0] not in _SINGLE_SLICE


MULTISLICE: Final = Rule[FrayJobSpec](
    cel="self.replicas == 1 || !has(self.resources) || !has(self.resources.tpu)"
    f" || !self.resources.tpu.type.matches('^{_alternatives(_SINGLE_SLICE)}(-|$)')",
    holds=_may_have_replicas,
    message=f"{', '.join(_SINGLE_SLICE)} slices can't work together: replicas must be 1",
    field="replicas",
)


# --- TPU: workers ---------------------------------------------------------------------------------------


def _single_host_names(*, choice: bool) -> str:
    """A pattern of the types that are one host; with a choice, only of those that chipsPerHost may divide."""

    def is_one(generation: TpuGeneration, rest: str) -> bool:
        name = f"{generation.name}-{rest}"
        return lookup_tpu(name).hosts == 1 and (not choice or len(_legal_chips_per_host(name)) > 1)

    found = [
        (g, [rest for rest in (*map(str, g.sizes), *g.topologies) if is_one(g, rest)]) for g in _GENERATIONS
    ]
    return _names_pattern((generation, rests) for generation, rests in found if rests)


_ONE_HOST: Final = _single_host_names(choice=False)
_ONE_HOST_OF_SEVERAL: Final = _single_host_names(choice=True)


def _is_one_host(asked: Workers | FrayActorSpec) -> bool:
    tpu = asked.resources.tpu
    if tpu is None:
        return True
    if re.search(_ONE_HOST, tpu.type) is None:
        return False
    divided = re.search(_ONE_HOST_OF_SEVERAL, tpu.type) is not None
    return not divided or tpu.chips_per_host in (None, _legal_chips_per_host(tpu.type)[0])


SINGLE_HOST: Final = Rule[Workers](
    cel="!has(self.resources) || !has(self.resources.tpu)"
    f" || (self.resources.tpu.type.matches('{_ONE_HOST}')"
    f" && (!self.resources.tpu.type.matches('{_ONE_HOST_OF_SEVERAL}')"
    " || !has(self.resources.tpu.chipsPerHost)"
    f" || self.resources.tpu.chipsPerHost == {max(max(chips) for chips in _UNUSUAL_CHIPS)}))",
    holds=_is_one_host,
    message="must be a slice of one host: for a slice of several, launch a job of its own from the code",
    field="resources.tpu",
)

ONE_CALL_AT_A_TIME: Final = Rule[FrayActorSpec](
    cel=f"!has(self.maxConcurrency) || self.maxConcurrency == 1 || {SINGLE_HOST.cel}",
    holds=lambda spec: spec.max_concurrency in (None, 1) or _is_one_host(spec),
    message="must be 1 where a member is a TPU slice of several hosts: all of them run each call together",
    field="maxConcurrency",
)


# --- GPU ------------------------------------------------------------------------------------------------

_GPU_TYPES: Final = legal_gpu_types()
_GPU_COUNTS_TEXT: Final = {t: ", ".join(map(str, legal_gpu_counts(t))) for t in _GPU_TYPES}

GPU_TYPE: Final = Rule[str](
    cel=f"self in {cel_strings(_GPU_TYPES)}",
    holds=lambda name: name in _GPU_TYPES,
    message=f'unknown GPU type "%s"; legal: {", ".join(_GPU_TYPES)}',
    arguments=lambda name: (name,),
    arguments_cel=("self",),
    fallback=f"unknown GPU type; legal: {', '.join(_GPU_TYPES)}",
)


def _has_gpu_count(gpu: Gpu) -> bool:
    return gpu.type not in _GPU_TYPES or gpu.count in legal_gpu_counts(gpu.type)


_GPU_COUNTS_CEL: Final = _cel_map((t, f"[{text}]") for t, text in _GPU_COUNTS_TEXT.items())

GPU_COUNT: Final = Rule[Gpu](
    cel=f"!(self.type in {_GPU_COUNTS_CEL}) || self.count in {_GPU_COUNTS_CEL}[self.type]",
    holds=_has_gpu_count,
    message="%s has no count %d; legal: %s",
    arguments=lambda gpu: (gpu.type, gpu.count, _GPU_COUNTS_TEXT[gpu.type]),
    arguments_cel=(
        "self.type",
        "self.count",
        _cel_map((t, cel_string(text)) for t, text in _GPU_COUNTS_TEXT.items()) + "[self.type]",
    ),
    fallback="a count of GPUs that no host of this type has",
    field="count",
)
