"""`python -m e2e.chaos`: chaos on the test cluster, seed after seed, until the time is over or one fails.

Brings up the cluster and installs the chart when they are not there. A campaign is judged as a whole, so a
long time is made of many seeds; the one that fails is printed with what repeats it.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live

from e2e.chaos.campaign import Campaign, Outcome, run_campaign
from e2e.chaos.display import Snapshot, build_line, build_summary, build_view
from e2e.cluster.errors import ClusterError
from e2e.cluster.layout import Layout
from e2e.installation import build_kubectl, build_release, load_images, open_cluster
from e2e.job_namespace import remove_namespaces
from e2e.release import Release

__all__ = ["main"]

LINE_SECONDS = 10.0
CAMPAIGN_SECONDS = 120.0
EXIT_TERMINATED = 143


def main(arguments: Sequence[str] | None = None) -> int:
    """Run campaigns; returns the exit code. Faults of the cluster are printed, without a traceback."""
    parser = argparse.ArgumentParser(prog="python -m e2e.chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of harm in all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the first campaign; the next has the next")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two strikes, on average")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))  # as Ctrl-C: all is given back
    console = Console()
    try:
        with tempfile.TemporaryDirectory(prefix="fray-chaos-") as folder:
            return _run(options, Path(folder), console)
    except ClusterError as error:
        console.print(f"{type(error).__name__}: {error}", markup=False)
        return 1


def _run(options: argparse.Namespace, folder: Path, console: Console) -> int:
    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    layout = open_cluster(say)
    kubectl = build_kubectl(folder)
    release = build_release(kubectl, load_images(layout, say), folder)
    remove_namespaces(kubectl)
    left: float = options.seconds
    for seed in itertools.count(options.seed):
        campaign = Campaign(seed, min(left, CAMPAIGN_SECONDS), options.every)
        outcome = _run_one(campaign, release, layout, console)
        console.print(build_summary(outcome.strikes, outcome.api_faults, outcome.ends))
        say(f"{outcome.jobs} jobs, {dict(outcome.verdicts)}; {outcome.missed} strikes found nothing to hit")
        say(f"{outcome.actors} actors, whose callers met {dict(outcome.calls)}")
        if outcome.wrong:
            say("\n".join([f"seed {seed}: {len(outcome.wrong)} things are wrong", *outcome.wrong]))
            say(f"repeat it with: {campaign.command}")
            return 1
        say(f"seed {seed}: all as predicted")
        left -= campaign.seconds
        if left <= 0:
            return 0
    raise AssertionError("seeds never end")


def _run_one(campaign: Campaign, release: Release, layout: Layout, console: Console) -> Outcome:
    console.print(f"seed {campaign.seed}: {campaign.command}", highlight=False)
    if console.is_terminal:
        with Live(console=console, refresh_per_second=4) as live:
            return run_campaign(campaign, release, layout, show=lambda now: live.update(build_view(now)))
    return run_campaign(campaign, release, layout, show=_print_lines(console))


def _print_lines(console: Console) -> Callable[[Snapshot], None]:
    due = 0.0

    def show(now: Snapshot) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + LINE_SECONDS
            console.print(build_line(now), markup=False, highlight=False)

    return show


if __name__ == "__main__":
    sys.exit(main())
