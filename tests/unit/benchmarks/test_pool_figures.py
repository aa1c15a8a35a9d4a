"""The benchmark of the pool: medians, goals and tables are computed from records as they say."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.pool.figures import (
    FIGURES,
    GOALS,
    AnswersDifferError,
    Goal,
    check_answers,
    compute_medians,
    is_met,
)
from benchmarks.pool.rounds import Record, plan_runs
from benchmarks.pool.table import build_markdown


def record(engine: str, number: int = 0, *, workers: int = 2, **figures: float | None) -> Record:
    return Record(number, engine, workers, "any", 0.0, figures)


def test_a_median_is_over_the_rounds_of_one_engine() -> None:
    records = [record("ray", number, get_ms=value) for number, value in enumerate([1.0, 90.0, 2.0])]
    assert compute_medians([*records, record("dask", get_ms=7.0)]) == {
        "ray": {"get_ms": 2.0},
        "dask": {"get_ms": 7.0},
    }


def test_what_an_engine_has_not_is_no_figure() -> None:
    medians = compute_medians([record("processes", get_ms=None, tasks_per_second=5.0)])
    assert medians == {"processes": {"tasks_per_second": 5.0}}


def test_a_speed_up_compares_runs_of_the_same_round() -> None:
    records = [
        record("fray", 0, pi_seconds=2.0),
        record("fray", 0, workers=1, pi_seconds=3.0),
        record("fray", 1, workers=1, pi_seconds=100.0),
        record("fray", 1, pi_seconds=50.0),
        record("fray", 2, pi_seconds=10.0),
        record("fray", 2, workers=1, pi_seconds=19.0),
        record("fray", 3, pi_seconds=1.0),
    ]
    medians = compute_medians(records)["fray"]
    assert medians["pi_speedup"] == pytest.approx(1.9)
    assert medians["pi_seconds"] == 6.0


def test_a_goal_without_a_figure_is_undecided() -> None:
    goal = Goal("tasks_per_second", "at least", 5, "ray")
    assert is_met(goal, {"ray": {"tasks_per_second": 10.0}}) is None
    assert is_met(goal, {"fray": {"tasks_per_second": 10.0}}) is None


@pytest.mark.parametrize(
    ("goal", "met", "missed"),
    [
        (Goal("x", "at least", 5, "ray"), [50.0, 51.0], [49.9]),
        (Goal("x", "at most", 1, "ray"), [9.0, 10.0], [10.1]),
        (Goal("x", "at least", 1.8), [1.8, 2.0], [1.79]),
        (Goal("x", "at most", 0.3), [0.1, 0.3], [0.31]),
    ],
)
def test_goals_are_met_up_to_and_at_their_limit(
    goal: Goal, met: Sequence[float], missed: Sequence[float]
) -> None:
    def judge(value: float) -> bool | None:
        return is_met(goal, {"fray": {"x": value}, "ray": {"x": 10.0}})

    assert [judge(value) for value in met] == [True] * len(met)
    assert [judge(value) for value in missed] == [False] * len(missed)


def test_every_goal_is_about_a_figure_that_is_shown() -> None:
    assert {goal.figure for goal in GOALS} <= {figure.name for figure in FIGURES}


def test_different_answers_are_an_error_that_names_them() -> None:
    same = [record("ray", pi_answer=3.0), record("dask", 1, workers=1, pi_answer=3.0)]
    check_answers(same)
    with pytest.raises(AnswersDifferError, match=r"pi_answer differs.*dask, round 2, 2 workers: 4"):
        check_answers([*same, record("dask", 2, pi_answer=4.0)])


def test_rounds_run_the_same_and_begin_with_each_engine_in_turn() -> None:
    engines = ("fray", "ray", "dask")
    rounds = [list(plan_runs(engines, number, quick=False)) for number in range(3)]
    assert [runs[0].engine for runs in rounds] == list(engines)
    assert set(rounds[0]) == set(rounds[1]) == set(rounds[2])
    for runs in rounds:
        together = [runs[start : start + 3] for start in range(0, len(runs), 3)]
        assert all(len({run.measurements for run in group}) == 1 for group in together)
        assert all({run.engine for run in group} == set(engines) for group in together)


def test_the_table_compares_fray_with_the_best_peer_and_marks_the_goals() -> None:
    medians = {
        "fray": {"tasks_per_second": 9_000.0, "round_trip_p50_ms": 0.2},
        "ray": {"tasks_per_second": 1_000.0, "round_trip_p50_ms": 2.0},
        "processes": {"tasks_per_second": 10_000.0, "round_trip_p50_ms": 0.4},
    }
    lines = build_markdown(medians, ("fray", "ray", "processes")).splitlines()
    assert lines[0] == "|  | Fray | Ray | ProcessPool | Fray / best peer | goal |"
    assert "| 9,000 | 1,000 | 10,000 | 0.90 x | ✓ ≥ 5 x ray, ✗ ≥ processes |" in lines[2]
    assert "| 0.20 | 2.00 | 0.40 | 0.50 x | ✓ ≤ 0.3 |" in lines[3]
    assert len(lines) == 4
