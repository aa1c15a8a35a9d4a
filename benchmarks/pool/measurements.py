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
from benchmarks.pool.process_memory import await_settled_memory, read_memory
from benchmarks.pool.sizes import Sizes
from benchmarks.pool.workloads import (
    VALUES_PER_PAGE,
    Tally,
    count_hits,
    count_words,
    do_nothing,
    find_sources,
    merge_counts,
    split_evenly,
    touch_pages,
    wait_for_file,
)

__all__ = ["MEASUREMENTS", "Figures", "WrongResultError", "count_all", "measure_reference"]

Figures = Mapping[str, float | None]
"""Name of a figure (those of `figures.FIGURES`) -> its value; none where the engine has no such thing."""

REFERENCE_SAMPLES = 500_000
MERGED_AT_ONCE = 16
WARM_UP_TASKS = 200


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
            "actor_round_trip_p50_ms": None,
            "actor_round_trip_p99_ms": None,
        }
    increment = engine.create_actor(Tally)
    _expect(engine.get([increment()]), [1])
    counts: list[int] = []
    piped = _seconds(lambda: counts.extend(engine.get([increment() for _ in range(sizes.actor_calls)])))
    _expect(counts if engine.keeps_call_order else sorted(counts), list(range(2, sizes.actor_calls + 2)))
    single = [_seconds(lambda: engine.get([increment()])) for _ in range(sizes.round_trips)]
    return {
        "actor_calls_per_second": sizes.actor_calls / piped,
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
        return dict.fromkeys(("actors_seconds_per_1000", "actors"))
    counts: list[int] = []

    def create_and_call() -> None:
        actors = [engine.create_actor(Tally) for _ in range(sizes.actors)]
        counts.extend(engine.get([increment() for increment in actors]))

    seconds = _seconds(create_and_call)
    _expect(counts, [1] * sizes.actors)
    return {"actors_seconds_per_1000": seconds / sizes.actors * 1000, "actors": sizes.actors}


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
    "work": measure_work,
}
