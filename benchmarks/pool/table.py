"""Shows the medians: a table for terminals, the same as Markdown for the docs. No measuring, no judging."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table

from benchmarks.pool.figures import FIGURES, GOALS, Figure, Medians, is_met

__all__ = ["build_markdown", "build_table"]

TITLES = {
    "fray": "Fray",
    "fray-threads": "Fray threads",
    "ray": "Ray",
    "dask": "Dask",
    "processes": "ProcessPool",
    "earlier": "Fray earlier",
}
MARKS = {True: "✓", False: "✗", None: "?"}
COLOURS = {"✓": "green", "✗": "red", "?": "dim"}


def build_table(medians: Medians, engines: Sequence[str]) -> Table:
    """A row a figure, a column an engine, then Fray against the best peer and the goals."""
    table = Table(title="In-job pool: medians", title_justify="left")
    table.add_column("")
    for engine in engines:
        table.add_column(TITLES[engine], justify="right", style="bold" if engine == "fray" else "")
    table.add_column("Fray / best peer", justify="right")
    table.add_column("goal")
    for row in _build_rows(medians, engines):
        *cells, goals = row
        table.add_row(*cells, _colour(goals))
    return table


def build_markdown(medians: Medians, engines: Sequence[str]) -> str:
    """The same rows as a Markdown table."""
    heads = ["", *(TITLES[engine] for engine in engines), "Fray / best peer", "goal"]
    rule = ["---", *["--:"] * (len(heads) - 2), "---"]
    rows = [heads, rule, *_build_rows(medians, engines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _build_rows(medians: Medians, engines: Sequence[str]) -> Iterable[list[str]]:
    for figure in FIGURES:
        values = [medians.get(engine, {}).get(figure.name) for engine in engines]
        if any(value is not None for value in values):
            shown = ["-" if value is None else f"{value:,.{figure.decimals}f}" for value in values]
            yield [figure.title, *shown, _compare(figure, medians), _show_goals(figure, medians)]


def _compare(figure: Figure, medians: Medians) -> str:
    """Fray's figure as a multiple of the best peer's."""
    own = medians.get("fray", {}).get(figure.name)
    peers = [
        figures[figure.name]
        for name, figures in medians.items()
        if name not in {"fray", "fray-threads"} and figure.name in figures
    ]
    if own is None or not peers or not figure.better:
        return ""
    best = max(peers) if figure.better == "higher" else min(peers)
    return f"{own / best:.2f} x" if best > 0 else ""


def _show_goals(figure: Figure, medians: Medians) -> str:
    goals = [goal for goal in GOALS if goal.figure == figure.name]
    return ", ".join(f"{MARKS[is_met(goal, medians)]} {goal}" for goal in goals)


def _colour(goals: str) -> str:
    for mark, colour in COLOURS.items():
        goals = goals.replace(mark, f"[{colour}]{mark}[/]")
    return goals
