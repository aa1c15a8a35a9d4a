"""Draws the timeline of a real run of examples/wordcount in a pool: the picture in docs/pool.md.

    .venv/bin/python tools/timeline_picture.py docs/pictures/pool-timeline.svg

Needs the packages of the `example` group. `--trace FILE` keeps the trace too, or draws one that is there.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parent.parent
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
"""Paul Tol's "bright" scheme, which those with colour blindness can tell apart."""
SHORTEST = 0.004
"""Shorter runs are drawn that long, as a share of the whole: else nobody would see them."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the example, unless a trace is there, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("picture", type=Path)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        trace = options.trace or Path(folder, "trace.json")
        if not trace.exists():
            run_example(trace, options.workers)
        draw(json.loads(trace.read_text(encoding="utf-8")), options.picture)


def run_example(trace: Path, workers: int) -> None:
    """Count words in a pool and save what ran when."""
    sys.path.insert(0, str(ROOT / "examples" / "wordcount"))
    from counting import find_sources  # noqa: PLC0415 - found by the line above
    from wordcount import count  # noqa: PLC0415

    from fray.job import create_job_ctx  # noqa: PLC0415

    paths = find_sources(Path(sysconfig.get_paths()["stdlib"]))
    with create_job_ctx("pool", max_workers=workers) as ctx:
        count(ctx, paths, top=10, show=lambda _: None)
        ctx.save_timeline(trace)


def draw(trace: dict[str, Any], picture: Path) -> None:
    """Draw a trace: one row for each thread of each worker, one colour for each name."""
    events = trace["traceEvents"]
    titles = {
        (event["pid"], event["tid"]): re.sub(r" on [^:]+", "", event["args"]["name"])
        for event in events
        if event["name"] == "thread_name"
    }
    rows = {row: place for place, row in enumerate(sorted(titles))}
    runs = [event for event in events if event["ph"] == "X"]
    names = sorted({event["name"] for event in runs}, key=lambda name: (name.partition(".")[0], name))
    end = max((event["ts"] + event["dur"] for event in runs), default=1)
    # Text as text, and the same file for the same trace.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "fray", "font.size": 9})
    figure, axes = plt.subplots(figsize=(9, 0.9 + 0.45 * len(rows)), layout="constrained")
    for name, colour in zip(names, COLOURS * len(names), strict=False):
        chosen = [event for event in runs if event["name"] == name]
        label = f"{name} ({len(chosen)} {chosen[0]['cat']}s)"
        for row, place in rows.items():
            bars = [
                (event["ts"] / 1e6, max(event["dur"], end * SHORTEST) / 1e6)
                for event in chosen
                if (event["pid"], event["tid"]) == row
            ]
            axes.broken_barh(
                bars, (place - 0.35, 0.7), facecolors=colour, edgecolors="white", linewidth=0.4, label=label
            )
            label = None
    axes.set_yticks(list(rows.values()), [titles[row] for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper left", ncols=4, frameon=False)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main()
