"""What was done in all lives of a test run: counted here, printed at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.faults.life import Outcome

__all__ = ["TALLY", "Tally", "describe_obsolete"]


@dataclass
class Tally:
    """Sums over lives."""

    lives: int = 0
    jobs: int = 0
    wrong: int = 0
    faults_met: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    obsolete: list[float] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count a life."""
        self.lives += 1
        self.jobs += outcome.jobs
        self.wrong += bool(outcome.wrong)
        self.faults_met += outcome.faults_met
        self.faults += outcome.faults
        self.kills += outcome.kills
        self.endings += outcome.endings
        self.obsolete += outcome.obsolete

    def describe(self) -> list[str]:
        """Return the sums, and the kinds of what was done."""
        counted = ("faults", self.faults), ("kills of the operator", self.kills)
        others = ("ends of its processes", self.endings)
        return [
            f"{self.lives} lives of {self.jobs} jobs, {self.wrong} wrong",
            f"{self.faults_met} faults beside those of the Lease",
            describe_obsolete(self.obsolete),
            *(f"{counts.total()} {title}: {_list(counts)}" for title, counts in (*counted, others)),
        ]


def describe_obsolete(obsolete: Sequence[float]) -> str:
    """Return how long JobSets went on that were made after their attempts' ends."""
    longest = f", the longest for {max(obsolete):.0f} s" if obsolete else ""
    return f"{len(obsolete)} JobSets were made after their attempt's end, and deleted{longest}"


def _list(counts: Counter[str]) -> str:
    return ", ".join(f"{what} {count}" for what, count in counts.most_common())


TALLY = Tally()
"""Of this process."""
