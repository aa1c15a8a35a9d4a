"""Counts the words of Python's standard library with tasks, generators and an actor, in any context.

    python examples/wordcount/wordcount.py --context pool --workers 2

A map task for each shard of files streams counts, a reduce task for each partition of words adds them up. The
program itself sees refs only: counts go from the map tasks to the reduce tasks without passing through it.
"""

from __future__ import annotations

import argparse
import keyword
import os
import sysconfig
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from counting import Partition, Tally, deal, find_sources, map_shard, merge, reduce_partition
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fray.job import JobContext, create_job_ctx

REFRESH_SECONDS = 0.1
SHARDS = 32
PARTITIONS = 4


def count(ctx: JobContext, paths: Sequence[Path], *, top: int, show: Callable[[int], None]) -> Partition:
    """Count the words of the files; `show` is told now and then how many files are done."""
    tally = ctx.create_actor(Tally, num_cpus=0)
    ignored = ctx.put(frozenset(keyword.kwlist))
    streams = [ctx.run(map_shard, shard, ignored, PARTITIONS, tally) for shard in deal(paths, SHARDS)]
    partitions = shuffle(ctx, streams, lambda: show(ctx.get(tally.read.remote())))
    # All streams have ended, but the actor may still have calls of theirs before it.
    show(len(paths))
    reduced = [ctx.run(reduce_partition, top, *refs) for refs in partitions]
    return merge(ctx.get(reduced), top)


def shuffle(ctx: JobContext, streams: Sequence[Any], refresh: Callable[[], None]) -> list[list[Any]]:
    """Take the streams' items as they come, and sort them by partition, unread.

    A stream yields one item per partition in turn, so an item's place in it tells the partition.
    """
    partitions: list[list[Any]] = [[] for _ in range(PARTITIONS)]
    taken = dict.fromkeys(streams, 0)
    due = time.monotonic()
    while taken:
        ready, _ = ctx.wait(list(taken), num_returns=1, timeout=REFRESH_SECONDS)
        for stream in ready:
            try:
                item = next(stream)
            except StopIteration:
                del taken[stream]
            else:
                partitions[taken[stream] % PARTITIONS].append(item)
                taken[stream] += 1
        if time.monotonic() >= due:
            refresh()
            due = time.monotonic() + REFRESH_SECONDS
    return partitions


def main(arguments: Sequence[str] | None = None) -> None:
    """Count, with a progress bar, and print the most frequent words."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--context", default="auto", help="auto, sync, threadpool or pool (%(default)s)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="default: %(default)s")
    parser.add_argument("--root", type=Path, default=Path(sysconfig.get_paths()["stdlib"]))
    parser.add_argument("--top", type=int, default=10, help="how many words to print (%(default)s)")
    options = parser.parse_args(arguments)
    paths = find_sources(options.root)
    console = Console()
    columns = (
        TextColumn("counting"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("files"),
        TimeElapsedColumn(),
    )
    began = time.perf_counter()
    with create_job_ctx(options.context, max_workers=options.workers) as ctx, Progress(*columns) as progress:
        bar = progress.add_task("", total=len(paths))
        found = count(ctx, paths, top=options.top, show=lambda done: progress.update(bar, completed=done))
    seconds = time.perf_counter() - began
    console.print(build_table(found))
    console.print(
        f"{found.words:,} words, {found.distinct:,} different, in {len(paths):,} files: {seconds:.1f} s"
    )


def build_table(found: Partition) -> Table:
    """The most frequent words, with a bar for each."""
    table = Table("word", "count", "", box=None)
    table.columns[1].justify = "right"
    largest = max((number for _, number in found.top), default=1)
    for word, number in found.top:
        table.add_row(word, f"{number:,}", "━" * max(1, round(number / largest * 40)))
    return table


if __name__ == "__main__":
    main()
