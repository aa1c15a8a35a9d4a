"""What a campaign looks like while it runs, and what came of it, as tables. Pure: `__main__` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Group
from rich.table import Table

from e2e.chaos.plan import Blow, Kind

__all__ = ["Row", "Snapshot", "build_line", "build_summary", "build_view"]


@dataclass(frozen=True)
class Row:
    """The job of a lane."""

    lane: str
    job: str
    phase: str
    attempt: int
    seconds: float


@dataclass(frozen=True)
class Snapshot:
    """A campaign at one moment."""

    seed: int
    stage: str
    seconds: float
    rows: tuple[Row, ...]
    strikes: Mapping[str, int]
    api_faults: int
    jobs: int
    last_strike: str


def build_line(now: Snapshot) -> str:
    """Return it in one line, for where nothing can be drawn."""
    strikes = sum(now.strikes.values())
    return (
        f"{now.seconds:6.1f} s  {now.stage}: {now.jobs} jobs, {strikes} strikes, "
        f"{now.api_faults} API faults; last: {now.last_strike}"
    )


def build_view(now: Snapshot) -> Group:
    """Return it as tables: the job of each lane, and what was done so far."""
    lanes = Table(title=f"seed {now.seed}, {now.seconds:.0f} s: {now.stage}, {now.jobs} jobs", expand=True)
    for column in ("lane", "job", "phase", "attempt", "s"):
        lanes.add_column(column, justify="right" if column in ("attempt", "s") else "left")
    for row in now.rows:
        lanes.add_row(row.lane, row.job, row.phase, str(row.attempt), f"{row.seconds:.0f}")
    return Group(lanes, _build_strikes(now.strikes, now.api_faults), f"last: {now.last_strike}")


def _build_strikes(strikes: Mapping[str, int], api_faults: int) -> Table:
    table = Table(expand=True)
    for blow in Blow:
        table.add_column(blow.value.replace("_", " "), justify="right")
    table.add_column("api faults", justify="right")
    table.add_row(*(str(strikes.get(blow.value, 0)) for blow in Blow), str(api_faults))
    return table


def build_summary(
    strikes: Mapping[str, int], api_faults: Mapping[str, int], ends: Mapping[Kind, Counter[str]]
) -> Group:
    """Return the counts per fault, and how the jobs of each kind ended."""
    faults = Table("fault", "times", title="what was done")
    for what, count in [*sorted(strikes.items()), *sorted(api_faults.items())]:
        faults.add_row(what, str(count))
    phases = sorted({phase for counts in ends.values() for phase in counts})
    jobs = Table("jobs", *phases, title="how jobs ended")
    for kind in Kind:
        counts = ends.get(kind, Counter())
        jobs.add_row(kind.value, *(str(counts[phase]) for phase in phases))
    return Group(faults, jobs)
