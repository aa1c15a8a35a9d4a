"""`python -m benchmarks.pool`: measure Fray's in-job pool beside Ray, Dask and ProcessPoolExecutor.

Prints a table and writes JSON. A full run of three rounds takes about 50 minutes on two processors; `--quick`
takes five and shows only that everything runs: its sizes are too small for figures.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from benchmarks.pool.figures import GOALS, AnswersDifferError, check_answers, compute_medians, is_met
from benchmarks.pool.machine import describe_machine
from benchmarks.pool.peer import ENGINES
from benchmarks.pool.rounds import EARLIER, PeerFailedError, Record, plan_runs, run_peer
from benchmarks.pool.table import build_markdown, build_table

__all__ = ["main"]

DEFAULT_ENGINES = ("fray", "ray", "dask", "processes")
DEFAULT_JSON = Path("pool-benchmark.json")


@dataclass
class Outcome:
    """What a run of the benchmark has found so far."""

    began: datetime
    records: list[Record] = field(default_factory=list)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def measure(options: argparse.Namespace, outcome: Outcome, console: Console) -> None:
    """Run all rounds; a peer that fails doesn't stop the others.

    The JSON is written after each peer, so that a run that is broken off was not for nothing.
    """
    for number in range(options.rounds):
        for run in plan_runs(options.engines, number, quick=options.quick, earlier=options.earlier):
            what = ", ".join(run.measurements)
            console.print(f"round {number + 1}: {run.engine}, {run.workers} workers: {what}", style="dim")
            try:
                records, outcome.versions[run.engine] = run_peer(run, number, options.timeout)
            except PeerFailedError as error:
                outcome.failures.append(str(error))
                console.print(str(error), style="red", markup=False)
            else:
                outcome.records += records
            write_json(options, outcome)


def write_json(options: argparse.Namespace, outcome: Outcome) -> None:
    """Write everything that is known, in place of what the file held."""
    medians = compute_medians(outcome.records)
    report = {
        "date": outcome.began.isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "benchmarks.pool", *sys.argv[1:]]),
        "rounds": options.rounds,
        "quick": options.quick,
        "machine": describe_machine(),
        "load_average_at_end": os.getloadavg()[0],
        "versions": outcome.versions,
        "medians": medians,
        "goals": [{**asdict(goal), "met": is_met(goal, medians)} for goal in GOALS],
        "failures": outcome.failures,
        "records": [asdict(record) for record in outcome.records],
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=2) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code is 1 if a peer failed or answers differ. Goals don't decide it.

    Ctrl-C and SIGTERM end the peer that runs, and show what there is.
    """
    options = _parse(arguments)
    console = Console(stderr=True, soft_wrap=True)
    outcome = Outcome(datetime.now(UTC))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        measure(options, outcome, console)
    except KeyboardInterrupt:
        outcome.failures.append("broken off")
    medians = compute_medians(outcome.records)
    shown = (*options.engines, *((EARLIER,) if options.earlier is not None else ()))
    if options.markdown is not None:
        options.markdown.write_text(build_markdown(medians, shown))
    Console(width=None if sys.stdout.isatty() else 150).print(build_table(medians, shown))
    try:
        check_answers(outcome.records)
    except AnswersDifferError as error:
        outcome.failures.append(str(error))
        console.print(str(error), style="red", markup=False)
    return 1 if outcome.failures else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pool", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="of each engine (default: %(default)s)")
    parser.add_argument(
        "--engines", type=_engine_names, default=DEFAULT_ENGINES, help=f"some of {','.join(ENGINES)}"
    )
    parser.add_argument(
        "--earlier", type=Path, metavar="CHECKOUT", help="of Fray, after `make setup` there: measured beside"
    )
    parser.add_argument("--quick", action="store_true", help="little of everything, to see that it runs")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one process (%(default)s)")
    parser.add_argument("--json", type=Path, default=DEFAULT_JSON, help="where to write (%(default)s)")
    parser.add_argument("--markdown", type=Path, help="also write the table as Markdown")
    return parser.parse_args(arguments)


def _engine_names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in ENGINES]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known: {', '.join(ENGINES)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
