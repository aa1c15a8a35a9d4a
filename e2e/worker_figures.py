"""`python -m e2e.worker_figures`: engines fray, ray and dask on three worker pods each, by turns.

Each engine has the cluster to itself while it is measured, since others take processor time even when they
are idle: in its rank 0, by `programs/engine_figures.py`. Each round begins with another engine. Prints a
Markdown table of medians, with the medians of the rounds' ratios. Brings up the cluster and installs the
chart when they are not there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.images import ENGINES_IMAGE, TEST_IMAGES
from e2e.installation import build_kubectl, build_release, load_images, open_cluster, print_measured, say
from e2e.job_namespace import JobNamespace, build_job, open_job_namespace, until_told
from fray.vocabulary import CONTAINER

__all__ = [
    "ENGINES",
    "FIGURES",
    "Figure",
    "Round",
    "build_figures",
    "build_markdown",
    "choose_sizes",
    "main",
    "order_engines",
]

PROGRAM = Path(__file__).parent / "programs" / "engine_figures.py"
ENGINES = ("fray", "ray", "dask")
TITLES = {"fray": "Fray", "ray": "Ray", "dask": "Dask"}
WORKERS = 3
WORKER = {"cpu": "50m", "memory": "1536Mi"}
RANK_0 = {"cpu": "100m", "memory": "2Gi"}
START_SECONDS = 600.0
ROUND_SECONDS = 600.0
SETTLE_SECONDS = 5.0
"""From the moment all workers are ready until they are measured: some engines start processes ahead."""

Round = Mapping[str, Mapping[str, float]]
"""Figures by name, by engine."""


@dataclass(frozen=True)
class Figure:
    """A row of the table; `least` is how many times better than Ray it is to be, None without a goal."""

    name: str
    title: str
    least: float | None
    rate: bool = False
    """Whether more is better."""
    decimals: int = 2


FIGURES = (
    Figure("tasks_per_second", "no-op tasks/s", 4, rate=True, decimals=0),
    Figure("round_trip_ms", "task round trip p50, ms", 2),
    Figure("calls_per_second", "actor calls/s across pods", 4, rate=True, decimals=0),
    Figure("calls_ms", "actor round trip p50 across pods, ms", 2),
    Figure(
        "named_calls_per_second", "calls/s of a FrayActor, of a detached actor", None, rate=True, decimals=0
    ),
    Figure("named_calls_ms", "its round trip p50, ms", None),
    Figure("transfer_seconds", "100 MB from worker to worker, s", 1, decimals=3),
    Figure("broadcast_seconds", "100 MB from rank 0 to 3 workers, s", 1, decimals=3),
)
"""Those of every run; it has shuffles besides."""


def build_figures(sizes: Sequence[int]) -> tuple[Figure, ...]:
    """Return all rows of a run with shuffles of these sizes: so many tasks on each side."""
    shuffles = (Figure(f"shuffle_{size}_seconds", f"shuffle {size} x {size}, s", 2) for size in sizes)
    return (*FIGURES, *shuffles)


def choose_sizes(engine: str, sizes: Sequence[int]) -> Sequence[int]:
    """Return the shuffles that an engine does: Dask the first alone, since larger ones take it minutes."""
    # It has a task for each part: the 2,500 of 50 x 50 take 4 s, so the 250,000 of 500 x 500 some 7 minutes.
    return sizes[:1] if engine == "dask" else sizes


def order_engines(engines: Sequence[str], number: int) -> list[str]:
    """Return the engines in the order of a round, counted from 0: each is the first in turn."""
    first = number % len(engines)
    return [*engines[first:], *engines[:first]]


def build_markdown(
    rounds: Sequence[Round], engines: Sequence[str], figures: Sequence[Figure] = FIGURES
) -> str:
    """Return the table: a row a figure, a column an engine, and how many times better Fray is."""
    peers = [engine for engine in engines if engine != "fray"] if "fray" in engines else []
    compared = [f"better than {TITLES[peer]} by" for peer in peers]
    heads = ["", *(TITLES[engine] for engine in engines), *compared, "goal, by Ray"]
    rows = [heads, ["---", *["--:"] * (len(heads) - 2), "---"]]
    for figure in figures:
        values = [_gather(rounds, engine, figure.name) for engine in engines]
        if not any(values):
            continue
        shown = [f"{statistics.median(each):,.{figure.decimals}f}" if each else "-" for each in values]
        ratios = {peer: _compare(rounds, peer, figure) for peer in peers}
        factors = ["-" if ratio is None else f"{ratio:.2f} x" for ratio in ratios.values()]
        rows.append([figure.title, *shown, *factors, _judge(figure, ratios.get("ray"))])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _gather(rounds: Iterable[Round], engine: str, name: str) -> list[float]:
    return [each[engine][name] for each in rounds if name in each.get(engine, {})]


def _compare(rounds: Iterable[Round], peer: str, figure: Figure) -> float | None:
    """Return the median of the rounds' ratios; above 1 Fray is better."""
    pairs = [
        (each["fray"][figure.name], each[peer][figure.name])
        for each in rounds
        if figure.name in each.get("fray", {}) and figure.name in each.get(peer, {})
    ]
    ratios = [own / other if figure.rate else other / own for own, other in pairs]
    return statistics.median(ratios) if ratios else None


def _judge(figure: Figure, ratio: float | None) -> str:
    if figure.least is None or ratio is None:
        return ""
    return f"{'met' if ratio >= figure.least else 'not met'}: {figure.least:g} x"


def measure(space: JobNamespace, engine: str, number: int, sizes: Sequence[int]) -> dict[str, float]:
    """Return the figures of an engine, of whose job nothing runs before and after."""
    job = f"{engine}-{number}"
    workers = {"replicas": WORKERS, "engine": engine, "resources": WORKER}
    command = ["sh", "-c", until_told()]
    space.submit(
        build_job(job, command, resources=RANK_0, environment={"image": ENGINES_IMAGE}, workers=workers)
    )
    space.await_workers(
        job, "all are ready", lambda told: told.get("ready") == WORKERS, seconds=START_SECONDS
    )
    time.sleep(SETTLE_SECONDS)
    (rank_0,) = space.pods(job)
    shuffles = map(str, choose_sizes(engine, sizes))
    program = ("python3", "-c", PROGRAM.read_text(encoding="utf-8"), engine, *shuffles)
    words = (rank_0["metadata"]["name"], f"--container={CONTAINER}", "--", *program)
    told = space.kubectl("exec", *words, seconds=ROUND_SECONDS)
    space.tell(job)
    space.await_end(job)
    found: dict[str, float] = json.loads(told.splitlines()[-1])
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code. Faults of the cluster are printed, without a traceback."""
    parser = argparse.ArgumentParser(
        prog="python -m e2e.worker_figures", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=2, help="(default: %(default)s)")
    parser.add_argument(
        "--shuffle",
        default="50",
        type=_read_sizes,
        help="tasks on each side; several as 50,500, of which Dask does the first (default: %(default)s)",
    )
    parser.add_argument(
        "--engines", default=",".join(ENGINES), type=_read_engines, help="(default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    figures = build_figures(options.shuffle)
    return print_measured(lambda folder: build_markdown(_run(options, folder), options.engines, figures))


def _read_sizes(text: str) -> list[int]:
    try:
        sizes = [int(each) for each in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise argparse.ArgumentTypeError("sizes are positive numbers, such as 50,500")
    return sizes


def _read_engines(text: str) -> list[str]:
    engines = text.split(",")
    if not set(engines) <= set(ENGINES):
        raise argparse.ArgumentTypeError(f"legal are {', '.join(ENGINES)}")
    return engines


def _run(options: argparse.Namespace, folder: Path) -> list[Round]:
    layout = open_cluster(say)
    kubectl = build_kubectl(folder)
    release = build_release(kubectl, load_images(layout, say, TEST_IMAGES), folder)
    release.install()
    rounds = list[Round]()
    with open_job_namespace(kubectl, release) as space:
        begun = time.monotonic()
        for number in range(options.rounds):
            figures = {}
            for engine in order_engines(options.engines, number):
                figures[engine] = measure(space, engine, number, options.shuffle)
                say(f"{time.monotonic() - begun:.0f} s: {engine} {json.dumps(figures[engine])}")
            rounds.append(figures)
    return rounds


if __name__ == "__main__":
    sys.exit(main())
