"""What a campaign shows: the job of each lane, what was done, and how all of it ended."""

from __future__ import annotations

import io
from collections import Counter

from rich.console import Console, RenderableType

from e2e.chaos.display import Row, Snapshot, build_line, build_summary, build_view
from e2e.chaos.plan import Blow, Kind

NOW = Snapshot(
    seed=7,
    stage="raging",
    seconds=12.3,
    rows=(Row("tpu", "tpu-3-stopped", "Running", 2, 4.0),),
    strikes={"evict_pod": 3, "api_storm": 1},
    api_faults=17,
    jobs=9,
    last_strike="evict_pod tpu-3-stopped-a2",
)


def render(shown: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(shown)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_line_tells_how_far_it_is() -> None:
    assert build_line(NOW) == (
        "  12.3 s  raging: 9 jobs, 4 strikes, 17 API faults; last: evict_pod tpu-3-stopped-a2"
    )


def test_the_table_has_the_seed_every_lane_and_every_fault() -> None:
    told = render(build_view(NOW))
    assert "seed 7, 12 s: raging, 9 jobs" in told
    assert [line.split("│")[1:6] for line in told.splitlines() if "tpu-3-stopped " in line] != []
    assert all(blow.value.replace("_", " ").split()[0] in told for blow in Blow)
    (counts,) = (line.split() for line in told.splitlines() if "17" in line and "3" in line)
    assert [word for word in counts if word.isdigit()] == [
        "0",
        "0",
        "3",
        "0",
        "0",
        "0",
        "0",
        "0",
        "0",
        "0",
        "1",
        "17",
    ]


def test_the_summary_counts_faults_and_ends() -> None:
    ends = {Kind.FAILS: Counter({"Failed": 2}), Kind.DELETED: Counter({"Running, gone": 1})}
    told = render(build_summary({"evict_pod": 3}, {"late": 5}, ends)).splitlines()
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in told if "│" in line]
    assert ["evict_pod", "3"] in rows
    assert ["late", "5"] in rows
    assert ["fails", "2", "0"] in rows
    assert ["deleted", "0", "1"] in rows
    assert ["succeeds", "0", "0"] in rows
