"""The measurements: each drives one engine and returns figures by name. No engine, no printing.

Every one checks the results it gets: an engine that answers fast and wrong has no figures.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pool.engines.base import Engine
from benchmarks.pool.process_memory import await_settled_memory, read_memory, read_tree_memory
from benchmarks.pool.sizes import Sizes
from benchmarks.pool.workloads import (
    VALUES_PER_PAGE,
    Tally,
    count_arguments,
    count_hits,
    count_words,
    do_nothing,
    double,
    find_sources,
    give_headed_parts,
    give_numbers,
    give_parts,
    merge_counts,
    split_evenly,
    sum_parts,
    touch_pages,
    wait_for_file,
)

__all__ = ["MEASUREMENTS", "Figures", "WrongResultError", "count_all", "measure_reference"]

Figures = Mapping[str, float | None]
"""Name of a figure (those of `figures.FIGURES`) -> its value; none where the engine has no such thing."""

REFERENCE_SAMPLES = 500_000
MERGED_AT_ONCE = 16
WARM_UP_TASKS = 200
PART_VALUES = 100
HEADED_VALUES = 4
HEADED_PARTS = 500
"""What the figure is scaled up to."""
ENDED_AT_ONCE = 5_000


class WrongResultError(Exception):
    """An engine returned something else than the task did."""


def _expect(got: object, wanted: object) -> None:
    if got != wanted:
        raise WrongResultError(f"got {got!r:.200}, wanted {wanted!r:.200}")


def _seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _percentiles(name: str, seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {f"{name}_p50_ms": cuts[49] * 1000, f"{name}_p99_ms": cuts[98] * 1000}


def measure_reference() -> Figures:
    """A plain loop without any engine: shows how much of the machine others had at that moment."""
    return {"reference_ms": _seconds(lambda: count_hits(0, REFERENCE_SAMPLES)) * 1000}


def measure_tasks(engine: Engine, sizes: Sizes) -> Figures:
    """Tasks that do nothing: all submitted, then all results fetched."""
    numbers = [(number,) for number in range(sizes.tasks)]
    engine.get(engine.submit_each(do_nothing, numbers[:WARM_UP_TASKS]))
    results: list[Any] = []
    seconds = _seconds(lambda: results.extend(engine.get(engine.submit_each(do_nothing, numbers))))
    _expect(results, [None] * sizes.tasks)
    return {"tasks_per_second": sizes.tasks / seconds}


def measure_round_trips(engine: Engine, sizes: Sizes) -> Figures:
    """One task at a time, from the call to its result."""
    seconds = [
        _seconds(lambda: engine.get(engine.submit_each(do_nothing, [(-1,)])))
        for _ in range(sizes.round_trips)
    ]
    return _percentiles("round_trip", seconds)


def measure_actor_calls(engine: Engine, sizes: Sizes) -> Figures:
    """Calls to one actor: first all at once, then one at a time."""
    if not engine.has_actors:
        return {
            "actor_calls_per_second": None,
            "actor_calls_with_options_per_second": None,
            "actor_round_trip_p50_ms": None,
            "actor_round_trip_p99_ms": None,
        }
    increment = engine.create_actor(Tally)
    _expect(engine.get([increment()]), [1])
    counts: list[int] = []
    piped = _seconds(lambda: counts.extend(engine.get([increment() for _ in range(sizes.actor_calls)])))
    _expect(counts if engine.keeps_call_order else sorted(counts), list(range(2, sizes.actor_calls + 2)))
    single = [_seconds(lambda: engine.get([increment()])) for _ in range(sizes.round_trips)]
    with_options = engine.create_actor(Tally, options=True)
    _expect(engine.get([with_options()]), [1])
    chosen = _seconds(lambda: engine.get([with_options() for _ in range(sizes.actor_calls)]))
    return {
        "actor_calls_per_second": sizes.actor_calls / piped,
        "actor_calls_with_options_per_second": sizes.actor_calls / chosen,
        **_percentiles("actor_round_trip", single),
    }


def measure_objects(engine: Engine, sizes: Sizes) -> Figures:
    """Store one large array several times, and read it back in this process."""
    if not engine.has_objects:
        return dict.fromkeys(("put_gb_per_second", "get_ms", "get_copied_share", "get_read_only"))
    array = _build_array(sizes)
    seconds, ref = [], engine.put(array)
    for _ in range(sizes.puts):
        del ref
        started = time.perf_counter()
        ref = engine.put(array)
        seconds.append(time.perf_counter() - started)
    before = read_memory("RssAnon")
    started = time.perf_counter()
    (read,) = engine.get([ref])
    got = time.perf_counter() - started
    total = float(read[::VALUES_PER_PAGE].sum())
    copied = read_memory("RssAnon") - before
    _expect(total, float(array[::VALUES_PER_PAGE].sum()))
    return {
        "put_gb_per_second": array.nbytes / statistics.median(seconds) / 1e9,
        "get_ms": got * 1000,
        "get_copied_share": copied / array.nbytes,
        "get_read_only": float(not read.flags.writeable),
    }


def _build_array(sizes: Sizes) -> Any:
    import numpy as np  # noqa: PLC0415 - only these measurements need it, and it isn't their subject

    return np.arange(sizes.array_values, dtype=np.float64)


def measure_readers(engine: Engine, sizes: Sizes) -> Figures:
    """Tasks that all read one large array; storing it is part of the time.

    As many read a small one first: engines differ in whether their workers have imported NumPy before.
    """
    array = _build_array(sizes)
    wanted = float(array[::VALUES_PER_PAGE].sum())
    results: list[tuple[float, bool]] = []

    def read_everywhere() -> None:
        ref = engine.put(array)
        results.extend(engine.get(engine.submit_each(touch_pages, [(ref,)] * sizes.readers)))

    small = engine.put(array[:VALUES_PER_PAGE])
    engine.get(engine.submit_each(touch_pages, [(small,)] * sizes.readers))

    seconds = _seconds(read_everywhere)
    _expect([total for total, _ in results], [wanted] * sizes.readers)
    return {"readers_seconds": seconds}


def measure_queue(engine: Engine, sizes: Sizes) -> Figures:
    """Tasks that wait because every worker is busy: what each costs the process that submitted it.

    The refs that the caller holds are part of it. Nothing is drained: the caller ends the process.
    """
    with tempfile.TemporaryDirectory() as folder:
        never = str(Path(folder) / "never")
        blockers = engine.submit_each(wait_for_file, [(never,)] * sizes.blockers)
        before = await_settled_memory()
        started = time.perf_counter()
        refs = engine.submit_each(do_nothing, ((number,) for number in range(sizes.queued)))
        submitted = time.perf_counter() - started
        grown = await_settled_memory() - before
        _expect(len(refs) + len(blockers), sizes.queued + sizes.blockers)
        return {
            "queued_bytes_per_task": grown / sizes.queued,
            "queued_tasks": sizes.queued,
            "submits_per_second": sizes.queued / submitted,
        }


def measure_actors(engine: Engine, sizes: Sizes) -> Figures:
    """Create many actors and call each once."""
    if not engine.has_actors:
        return dict.fromkeys(("actors_seconds_per_1000", "idle_actors_mb_per_1000", "actors"))
    counts: list[int] = []
    actors: list[Any] = []
    before = read_tree_memory()

    def create_and_call() -> None:
        actors.extend(engine.create_actor(Tally) for _ in range(sizes.actors))
        counts.extend(engine.get([increment() for increment in actors]))

    seconds = _seconds(create_and_call)
    _expect(counts, [1] * sizes.actors)
    grown = read_tree_memory() - before
    return {
        "actors_seconds_per_1000": seconds / sizes.actors * 1000,
        "idle_actors_mb_per_1000": grown / 1e6 / sizes.actors * 1000,
        "actors": sizes.actors,
    }


def measure_tiny_items(engine: Engine, sizes: Sizes) -> Figures:
    """A function of less than a microsecond, of each item, by what packs many into one task."""
    if not engine.has_map:
        return {"mapped_items_per_second": None}
    list(engine.map(double, range(WARM_UP_TASKS)))
    results: list[int] = []
    seconds = _seconds(lambda: results.extend(engine.map(double, range(sizes.items))))
    _expect(results, [2 * number for number in range(sizes.items)])
    return {"mapped_items_per_second": sizes.items / seconds}


def measure_generators(engine: Engine, sizes: Sizes) -> Figures:
    """Small items of one generator task, each read as it comes."""
    if not engine.has_generators:
        return {"generator_items_per_second": None}
    engine.get([*engine.submit_generators(give_numbers, [(WARM_UP_TASKS,)])[0]])
    got: list[int] = []

    def read_all() -> None:
        for ref in engine.submit_generators(give_numbers, [(sizes.items,)])[0]:
            got.extend(engine.get([ref]))

    seconds = _seconds(read_all)
    _expect(got, list(range(sizes.items)))
    return {"generator_items_per_second": sizes.items / seconds}


def measure_shuffle(engine: Engine, sizes: Sizes) -> Figures:
    """Map tasks that yield a part for each reduce task, which get the parts of all."""
    if not engine.has_generators:
        return {"shuffled_parts_per_second": None}
    count = sizes.shuffle_parts
    sums: list[int] = []

    def shuffle() -> None:
        maps = engine.submit_generators(give_parts, [(count, PART_VALUES)] * count)
        parts = [list(refs) for refs in maps]
        sums.extend(engine.get(engine.submit_each(sum_parts, list(zip(*parts, strict=True)))))

    seconds = _seconds(shuffle)
    _expect(sums, [part * PART_VALUES * count for part in range(count)])
    return {"shuffled_parts_per_second": count**2 / seconds}


def measure_headed_shuffle(engine: Engine, sizes: Sizes) -> Figures:
    """A shuffle whose parts have headers, which the caller reads as they come from any of the map tasks."""
    if not engine.has_generators:
        return {"headed_shuffle_seconds": None}
    count = sizes.headed_parts
    sums: list[int] = []

    def shuffle() -> None:
        maps = engine.submit_generators(give_headed_parts, [(count, HEADED_VALUES)] * count)
        parts: list[list[Any]] = [[] for _ in range(count)]
        while maps:
            ready = engine.wait_one(maps)[0]
            header = next(ready, None)
            if header is None:
                maps.remove(ready)
            else:
                parts[engine.get([header])[0]].append(next(ready))
        sums.extend(engine.get(engine.submit_each(sum_parts, [tuple(refs) for refs in parts])))

    seconds = _seconds(shuffle)
    _expect(sums, [part * HEADED_VALUES * count for part in range(count)])
    return {"headed_shuffle_seconds": seconds * (HEADED_PARTS / count) ** 2}


def measure_many_refs(engine: Engine, sizes: Sizes) -> Figures:
    """All refs as arguments of one task; then waits for one of them after the other, all ready."""
    if not engine.has_objects:
        return dict.fromkeys(("refs_to_task_seconds", "wait_one_ms"))
    refs = [engine.put(number) for number in range(sizes.refs)]
    counts: list[int] = []
    passed = _seconds(lambda: counts.extend(engine.get(engine.submit_each(count_arguments, [tuple(refs)]))))
    _expect(counts, [sizes.refs])
    rest: list[Any] = [refs]

    def wait_for_some() -> None:
        for _ in range(sizes.waits):
            rest[0] = engine.wait_one(rest[0])[1]

    waited = _seconds(wait_for_some)
    _expect(len(rest[0]), sizes.refs - sizes.waits)
    return {"refs_to_task_seconds": passed, "wait_one_ms": waited / sizes.waits * 1000}


def measure_ended_tasks(engine: Engine, sizes: Sizes) -> Figures:
    """Tasks that do nothing, whose results are dropped: what is left of each in this process."""

    def run(count: int) -> None:
        for _ in range(count // ENDED_AT_ONCE):
            engine.get(engine.submit_each(do_nothing, [(number,) for number in range(ENDED_AT_ONCE)]))

    run(max(ENDED_AT_ONCE, sizes.ended_tasks // 10))
    before = await_settled_memory()
    run(sizes.ended_tasks)
    return {"ended_bytes_per_task": (await_settled_memory() - before) / sizes.ended_tasks}


def measure_broadcast(engine: Engine, sizes: Sizes) -> Figures:
    """One large array that a task of each of several hosts reads, all at once."""
    if not engine.has_hosts:
        return {"broadcast_seconds": None}
    engine.add_hosts(sizes.hosts)
    array = _build_array(sizes)
    small = engine.put(array[:VALUES_PER_PAGE])
    engine.get([engine.submit_on(host, touch_pages, small) for host in range(sizes.hosts)])
    results: list[tuple[float, bool]] = []

    def read_everywhere() -> None:
        ref = engine.put(array)
        results.extend(engine.get([engine.submit_on(host, touch_pages, ref) for host in range(sizes.hosts)]))

    seconds = _seconds(read_everywhere)
    _expect([total for total, _ in results], [float(array[::VALUES_PER_PAGE].sum())] * sizes.hosts)
    return {"broadcast_seconds": seconds}


def measure_work(engine: Engine, sizes: Sizes) -> Figures:
    """Real work: words of the standard library's sources, and an estimate of pi."""
    seeds = [(seed, sizes.pi_samples) for seed in range(sizes.work_parts)]
    chunks = split_evenly(find_sources(), sizes.work_parts)
    count_all(engine, [chunk[:1] for chunk in chunks])
    hits: list[int] = []
    words: list[Counter[str]] = []
    pi_seconds = _seconds(lambda: hits.extend(engine.get(engine.submit_each(count_hits, seeds))))
    words_seconds = _seconds(lambda: words.append(count_all(engine, chunks * sizes.word_passes)))
    return {
        "pi_seconds": pi_seconds,
        "words_seconds": words_seconds,
        "pi_answer": sum(hits),
        "words_answer": words[0].total(),
    }


def count_all(engine: Engine, chunks: Sequence[Sequence[str]]) -> Counter[str]:
    """Count in one task a chunk, and merge in tasks: the engine's own process sees the last count only."""
    refs = engine.submit_each(count_words, [(chunk,) for chunk in chunks])
    while len(refs) > 1:
        batches = [tuple(refs[at : at + MERGED_AT_ONCE]) for at in range(0, len(refs), MERGED_AT_ONCE)]
        refs = engine.submit_each(merge_counts, batches)
    words: Counter[str] = engine.get(refs)[0]
    return words


MEASUREMENTS: Mapping[str, Callable[[Engine, Sizes], Figures]] = {
    "tasks": measure_tasks,
    "round_trips": measure_round_trips,
    "actor_calls": measure_actor_calls,
    "objects": measure_objects,
    "readers": measure_readers,
    "queue": measure_queue,
    "actors": measure_actors,
    "tiny_items": measure_tiny_items,
    "generators": measure_generators,
    "shuffle": measure_shuffle,
    "headed_shuffle": measure_headed_shuffle,
    "many_refs": measure_many_refs,
    "ended_tasks": measure_ended_tasks,
    "broadcast": measure_broadcast,
    "work": measure_work,
}
