"""`fray top` and `fray dashboard`: what shows a job's pool, alike for all backends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fray.cli.columns import format_columns, format_duration
from fray.cli.listing import print_lines
from fray.cli.story import Line, Tone
from fray.cli.streams import OutputStream
from fray.cluster.base import Cluster
from fray.errors import HostNotRunningError, PoolNotShownError
from fray.plan.texts import clean_text, flatten, format_count
from fray.types import JobId

if TYPE_CHECKING:
    from fray.runtime.pool.machine.snapshot import FunctionStats, HostStats
    from fray.runtime.pool.messages.specs import Shape
    from fray.runtime.pool.view import PoolView

__all__ = ["describe_pool", "show_dashboard", "show_pool", "watch_pool"]

REFRESH_SECONDS = 2.0
MOST_ROWS = 20
"""Of a table."""
MOST_WAITS = 3
MOST_SHAPES = 3
HOST_COLUMNS = ("HOST", "SLOTS", "FREE", "WORKERS", "MEMORY", "SPILLED", "COPIES")
FUNCTION_COLUMNS = ("FUNCTION", "DONE", "FAILED", "MEAN", "LONGEST", "IN ALL")
NAME_WIDTH = 60
WAIT_WIDTH = 200


def show_pool(job_id: JobId, *, as_json: bool, cluster: Cluster, output: OutputStream) -> None:
    """Print what the pool of a job has and does now; as JSON all that its head shows."""
    view = cluster.read_pool(job_id)
    if as_json:
        output.write(view.to_json())
    else:
        print_lines(describe_pool(view, width=output.width), output)


def watch_pool(
    job_id: JobId,
    *,
    cluster: Cluster,
    output: OutputStream,
    notes: OutputStream,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Show the pool of a job on a terminal, anew every 2 seconds, until its rank 0 has ended."""
    from rich.console import Console  # noqa: PLC0415 - slow to import, and only needed on terminals
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    view = cluster.read_pool(job_id)
    console = Console(file=output, no_color=not output.has_color, highlight=False)  # type: ignore[arg-type]
    ended = ""
    with Live(console=console, auto_refresh=False) as live:
        while not ended:
            lines = describe_pool(view, width=output.width)
            text = Text("\n", no_wrap=True).join(Text(line.text, style=line.tone.value) for line in lines)
            live.update(text, refresh=True)
            sleep(REFRESH_SECONDS)
            try:
                view = cluster.read_pool(job_id)
            except (HostNotRunningError, PoolNotShownError) as error:
                ended = error.message
    notes.write(f"{ended}\n")


def show_dashboard(
    job_id: JobId,
    *,
    cluster: Cluster,
    output: OutputStream,
    notes: OutputStream,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Print where the dashboard of a job is, and keep it there until Ctrl-C; say why connections fail."""
    dashboard = cluster.open_dashboard(job_id)
    try:
        output.write(f"{dashboard.url}\n")
        if dashboard.hint:
            notes.write(f"{dashboard.hint}\n")
        known: Exception | None = None
        while True:
            sleep(REFRESH_SECONDS)
            problem = dashboard.find_problem()
            if problem is not None and problem is not known:
                notes.write(f"{problem}\n")
            known = problem
    finally:
        dashboard.close()


def describe_pool(view: PoolView, *, width: int | None = None) -> list[Line]:
    """Return how a pool stands, in lines; tables have the hosts and the functions that matter most."""
    hosts = sorted(view.hosts, key=lambda host: (not host.workers + host.starting, host.name))
    lines = [Line(f"{_name(view.job or 'pool')}  for {format_duration(view.seconds)}", Tone.HEADING)]
    lines += map(Line, format_columns(_summarize(view), width=width))
    lines += _build_table(HOST_COLUMNS, [_host_row(host) for host in hosts], "host", width)
    lines += _build_table(FUNCTION_COLUMNS, list(map(_function_row, view.functions)), "function", width)
    if view.waits:
        lines.append(Line(""))
    for wait in view.waits[:MOST_WAITS]:
        lines.append(Line(flatten(clean_text(wait), most=width or WAIT_WIDTH), Tone.BUSY))
    return lines


def _summarize(view: PoolView) -> list[tuple[str, str]]:
    tasks, hosts = view.tasks, view.hosts
    slots = [(_cpus(host.offered), _cpus(host.free)) for host in hosts if host.workers]
    workers = sum(host.workers for host in hosts)
    starting = sum(host.starting for host in hosts)
    memory, spilled = (_size(sum(getattr(host, what) for host in hosts)) for what in ("memory", "spilled"))
    actors = [f"{count:,} {state}" for state, count in view.actors.items() if count]

    def count(*names: str) -> str:
        return ", ".join(f"{view.counters.get(name, 0):,} {name}" for name in names)

    return [
        ("tasks", f"{tasks['running']:,} running, {tasks['blocked']:,} blocked"),
        ("queue", f"{tasks['ready'] + tasks['sent']:,} ready, {tasks['waiting']:,} waiting for arguments"),
        *([("demand", _demand(view))] if view.demand else []),
        ("ended", count("done", "failed", "cancelled")),
        ("again", count("retried", "rebuilt", "preempted")),
        ("rate", f"{view.rates['submitted']:,.1f}/s submitted, {view.rates['ended']:,.1f}/s ended"),
        ("workers", f"{workers:,} in {format_count(len(slots), 'host')}, {starting:,} starting"),
        ("slots", f"{sum(offered for offered, _ in slots):g}, {sum(free for _, free in slots):g} free"),
        ("objects", f"{view.objects:,}: {memory} in memory, {spilled} spilled"),
        ("actors", ", ".join(actors) or "none"),
    ]


def _demand(view: PoolView) -> str:
    """Return what waits for room: how many tasks and actors of which shape."""
    shown = [
        f"{count:,} x {_name(', '.join(f'{name}: {amount:g}' for name, amount in shape) or 'nothing')}"
        for shape, count in view.demand[:MOST_SHAPES]
    ]
    return "; ".join([*shown, *(["..."] if len(view.demand) > MOST_SHAPES else [])])


def _build_table(
    heading: tuple[str, ...], rows: Sequence[tuple[str, ...]], what: str, width: int | None
) -> list[Line]:
    if not rows:
        return []
    first, *body = format_columns([heading, *rows[:MOST_ROWS]], width=width)
    lines = [Line(""), Line(first, Tone.HEADING), *map(Line, body)]
    if len(rows) > MOST_ROWS:
        lines.append(Line(f"and {format_count(len(rows) - MOST_ROWS, what)} more", Tone.QUIET))
    return lines


def _host_row(host: HostStats) -> tuple[str, ...]:
    workers = f"{host.workers}" + (f"+{host.starting}" if host.starting else "")
    sizes = (_size(host.memory), _size(host.spilled), _size(host.copies))
    return (_name(host.name), f"{_cpus(host.offered):g}", f"{_cpus(host.free):g}", workers, *sizes)


def _cpus(amounts: Shape) -> float:
    """Return the CPUs of some resources; those that are free may be below 0 for a moment."""
    return max(dict(amounts).get("CPU", 0.0), 0.0)


def _function_row(function: FunctionStats) -> tuple[str, ...]:
    mean = function.seconds / max(function.done + function.failed, 1)
    times = tuple(map(_time, (mean, function.longest, function.seconds)))
    return (_name(function.name), f"{function.done:,}", f"{function.failed:,}", *times)


def _name(text: str) -> str:
    """Return a name that a program chose, fit for a terminal."""
    return flatten(clean_text(text), most=NAME_WIDTH)


def _time(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else format_duration(seconds)


def _size(size: int) -> str:
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
