"""Figures of engines side by side: who begins a round, and the table of medians, ratios and goals."""

from __future__ import annotations

from e2e.worker_figures import build_figures, build_markdown, choose_sizes, order_engines


def test_each_engine_begins_a_round_in_turn() -> None:
    engines = ["fray", "ray", "dask"]
    firsts = [order_engines(engines, number)[0] for number in range(4)]
    assert firsts == ["fray", "ray", "dask", "fray"]
    assert all(set(order_engines(engines, number)) == set(engines) for number in range(3))


def test_a_row_has_medians_and_the_median_of_the_ratios_of_rounds() -> None:
    rounds = [
        {"fray": {"tasks_per_second": own}, "ray": {"tasks_per_second": other}}
        for own, other in ((1000.0, 100.0), (4000.0, 2000.0), (2100.0, 700.0))
    ]
    (row,) = build_markdown(rounds, ["fray", "ray"]).splitlines()[2:]
    assert row == "| no-op tasks/s | 2,100 | 700 | 3.00 x | not met: 4 x |"


def test_of_a_time_less_is_better_and_goals_are_against_ray() -> None:
    rounds = [{"fray": {"transfer_seconds": 0.1}, "ray": {"transfer_seconds": 0.15}, "dask": {}}]
    heads, _, row = build_markdown(rounds, ["fray", "ray", "dask"]).splitlines()
    assert heads == "|  | Fray | Ray | Dask | better than Ray by | better than Dask by | goal, by Ray |"
    assert row == "| 100 MB from worker to worker, s | 0.100 | 0.150 | - | 1.50 x | - | met: 1 x |"


def test_each_size_of_a_shuffle_has_a_row_and_dask_does_the_first_alone() -> None:
    done = {
        engine: {f"shuffle_{size}_seconds": size / speed for size in choose_sizes(engine, [50, 500])}
        for engine, speed in (("fray", 100), ("ray", 25), ("dask", 10))
    }
    rows = build_markdown([done], ["fray", "ray", "dask"], build_figures([50, 500])).splitlines()[2:]
    assert rows == [
        "| shuffle 50 x 50, s | 0.50 | 2.00 | 5.00 | 4.00 x | 10.00 x | met: 2 x |",
        "| shuffle 500 x 500, s | 5.00 | 20.00 | - | 4.00 x | - | met: 2 x |",
    ]
