"""The figures: their names, what is better, their goals, and their medians. Pure: no engine, no printing."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from benchmarks.pool.rounds import Record

__all__ = [
    "FIGURES",
    "GOALS",
    "AnswersDifferError",
    "Figure",
    "Goal",
    "Medians",
    "check_answers",
    "compute_medians",
    "is_met",
]

Medians = Mapping[str, Mapping[str, float]]
"""Engine -> figure -> median over the rounds."""


@dataclass(frozen=True)
class Figure:
    """How a figure is shown, and whether more of it is better."""

    name: str
    title: str
    better: Literal["higher", "lower", ""]
    decimals: int = 0


FIGURES = (
    Figure("tasks_per_second", "no-op tasks/s, all submitted, all fetched", "higher"),
    Figure("submits_per_second", "submits/s onto a long queue", "higher"),
    Figure("round_trip_p50_ms", "task round trip p50, ms", "lower", 2),
    Figure("round_trip_p99_ms", "task round trip p99, ms", "lower", 2),
    Figure("actor_calls_per_second", "actor calls/s, pipelined", "higher"),
    Figure("actor_calls_with_options_per_second", "the same, each with options of its own", "higher"),
    Figure("actor_round_trip_p50_ms", "actor round trip p50, ms", "lower", 2),
    Figure("actor_round_trip_p99_ms", "actor round trip p99, ms", "lower", 2),
    Figure("actors_seconds_per_1000", "create and call 1,000 actors, s", "lower", 1),
    Figure("idle_actors_mb_per_1000", "1,000 idle actors, MB of all processes", "lower"),
    Figure("mapped_items_per_second", "map of tiny items, items/s", "higher"),
    Figure("generator_items_per_second", "small items of one generator/s", "higher"),
    Figure("shuffled_parts_per_second", "shuffle 100 x 100, parts/s", "higher"),
    Figure("headed_shuffle_seconds", "shuffle 500 x 500 of 500,000 items, s", "lower", 1),
    Figure("refs_to_task_seconds", "100,000 refs to one task, s", "lower", 2),
    Figure("wait_one_ms", "wait for one of 100,000, ms", "lower", 3),
    Figure("broadcast_seconds", "100 MB to 4 hosts of one machine, s", "lower", 2),
    Figure("ended_bytes_per_task", "bytes left by each of 1,000,000 tasks", "lower", 1),
    Figure("put_gb_per_second", "put 100 MB, GB/s", "higher", 2),
    Figure("get_ms", "get 100 MB, ms", "lower", 1),
    Figure("get_copied_share", "copied by that get (0: zero-copy)", "lower", 2),
    Figure("get_read_only", "what was got is read-only (1: yes)", ""),
    Figure("readers_seconds", "50 tasks read one 100 MB array, s", "lower", 2),
    Figure("queued_bytes_per_task", "bytes per queued task, caller and head", "lower"),
    Figure("queued_tasks", "tasks queued for that", ""),
    Figure("import_seconds", "import, s", "lower", 2),
    Figure("first_result_seconds", "first result after start, s", "lower", 2),
    Figure("pi_seconds", "estimate of pi, 2 workers, s", "lower", 2),
    Figure("pi_speedup", "the same: 1 worker / 2 workers", "higher", 2),
    Figure("words_seconds", "word count of the standard library, 2 workers, s", "lower", 2),
    Figure("words_speedup", "the same: 1 worker / 2 workers", "higher", 2),
    Figure("reference_ms", "plain loop without an engine, ms (noise)", "", 0),
)


@dataclass(frozen=True)
class Goal:
    """What Fray's figure shall be: a number, or a multiple of what `peer` reached in the same run."""

    figure: str
    relation: Literal["at least", "at most"]
    amount: float
    peer: str | None = None

    def __str__(self) -> str:
        """As the table shows it."""
        sign = "≥" if self.relation == "at least" else "≤"
        if self.peer is None:
            return f"{sign} {self.amount:,g}"
        return f"{sign} {self.amount:g} x {self.peer}" if self.amount != 1 else f"{sign} {self.peer}"


GOALS = (
    Goal("tasks_per_second", "at least", 5, "ray"),
    Goal("tasks_per_second", "at least", 1, "processes"),
    Goal("round_trip_p50_ms", "at most", 0.3),
    Goal("actor_calls_per_second", "at least", 3, "ray"),
    Goal("actor_round_trip_p50_ms", "at most", 0.25),
    Goal("actors_seconds_per_1000", "at most", 5),
    Goal("mapped_items_per_second", "at least", 0.33, "processes"),
    Goal("generator_items_per_second", "at least", 80_000),
    Goal("headed_shuffle_seconds", "at most", 8),
    Goal("refs_to_task_seconds", "at most", 5),
    Goal("ended_bytes_per_task", "at most", 10),
    Goal("put_gb_per_second", "at least", 1, "ray"),
    Goal("get_copied_share", "at most", 0.05),
    Goal("get_read_only", "at least", 1),
    Goal("readers_seconds", "at most", 1, "ray"),
    Goal("queued_bytes_per_task", "at most", 1024),
    Goal("first_result_seconds", "at most", 1),
    Goal("pi_speedup", "at least", 1.8),
    Goal("words_speedup", "at least", 1.8),
)
SPEEDUPS = {"pi_speedup": "pi_seconds", "words_speedup": "words_seconds"}
ANSWERS = ("pi_answer", "words_answer")


@dataclass
class AnswersDifferError(Exception):
    """Engines computed different things from the same input."""

    figure: str
    answers: Mapping[str, float]

    def __str__(self) -> str:
        """Who said what."""
        return f"{self.figure} differs: " + ", ".join(
            f"{who}: {what:.0f}" for who, what in self.answers.items()
        )


def check_answers(records: Iterable[Record]) -> None:
    """Make sure that real work had the same outcome everywhere.

    Raises:
        AnswersDifferError: it hadn't.
    """
    answers: dict[str, dict[str, float]] = defaultdict(dict)
    for record in records:
        for name in ANSWERS:
            value = record.figures.get(name)
            if value is not None:
                answers[name][f"{record.engine}, round {record.round}, {record.workers} workers"] = value
    for name, given in answers.items():
        if len(set(given.values())) > 1:
            raise AnswersDifferError(name, given)


def compute_medians(records: Iterable[Record]) -> Medians:
    """Medians over the rounds; speed-ups are those within a round, between one worker and two."""
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    alone: dict[tuple[str, int, str], float] = {}
    both: dict[tuple[str, int, str], float] = {}
    for record in records:
        for name, value in record.figures.items():
            if value is None:
                continue
            if name in SPEEDUPS.values():
                times = alone if record.workers == 1 else both
                times[record.engine, record.round, name] = value
            if record.workers > 1 or name == "reference_ms":
                values[record.engine][name].append(value)
    for speedup, seconds in SPEEDUPS.items():
        for engine, number, name in alone.keys() & both.keys():
            if name == seconds:
                ratio = alone[engine, number, name] / both[engine, number, name]
                values[engine][speedup].append(ratio)
    return {
        engine: {name: statistics.median(numbers) for name, numbers in figures.items()}
        for engine, figures in values.items()
    }


def is_met(goal: Goal, medians: Medians) -> bool | None:
    """Whether Fray reached the goal; None if this run can't tell."""
    value = medians.get("fray", {}).get(goal.figure)
    unit = 1.0 if goal.peer is None else medians.get(goal.peer, {}).get(goal.figure)
    if value is None or unit is None:
        return None
    limit = goal.amount * unit
    return value >= limit if goal.relation == "at least" else value <= limit
