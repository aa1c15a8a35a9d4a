"""How node pools and operations on them read: cells of tables, prices, and a display while GKE works."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from fray.cli.columns import format_age
from fray.cli.streams import OutputStream
from fray.errors import InvalidRequestError
from fray.job.progress import Progress
from fray.nodepools.existing import Pool
from fray.nodepools.following import PoolFate
from fray.nodepools.requests import PoolRequest
from fray.nodepools.usage import PoolUse

__all__ = [
    "PoolDisplay",
    "count_nodes",
    "describe_pool",
    "describe_request",
    "read_prices",
    "tell_bought",
    "tell_idle",
    "tell_users",
]


def describe_pool(pool: Pool, state: str, prices: Mapping[str, float]) -> list[str]:
    """Return the cells of a pool that is there, as `plan` shows it."""
    nodes = str(pool.nodes) if pool.most_nodes == pool.nodes else f"up to {pool.most_nodes}"
    topology = pool.topology or pool.policy or "-"
    return _row(pool, state, (nodes, topology, pool.most_nodes), prices)


def describe_request(pool: PoolRequest, state: str, prices: Mapping[str, float]) -> list[str]:
    """Return the cells of a pool to make."""
    nodes = str(pool.nodes) if pool.max_nodes is None else f"up to {pool.max_nodes}"
    topology = pool.policy.topology if pool.policy is not None else pool.topology or "-"
    return _row(pool, state, (nodes, topology, pool.most_nodes), prices)


def _row(
    pool: Pool | PoolRequest, state: str, size: tuple[str, str, int], prices: Mapping[str, float]
) -> list[str]:
    nodes, topology, most = size
    zones = ", ".join(pool.zones) or "the cluster's"
    row = [
        pool.name,
        state,
        pool.machine_type,
        nodes,
        topology,
        tell_bought(pool),
        zones,
        str(most * pool.chips),
    ]
    if not prices:
        return row
    kind = "/spot" if pool.spot else "/flex-start" if pool.flex_start else ""
    price = prices.get(f"{pool.machine_type}{kind}")
    return [*row, "?" if price is None else f"{price * most:.2f}"]


def tell_bought(pool: Pool | PoolRequest) -> str:
    """Return how the nodes are bought."""
    if pool.reservation is not None:
        return f"reservation {pool.reservation.rpartition('/')[2]}"
    return "spot" if pool.spot else "flex-start" if pool.flex_start else "on demand"


def count_nodes(pool: Pool, use: PoolUse | None) -> str:
    """Return how many nodes there are, of how many at most."""
    there = "?" if use is None else str(use.nodes)
    return f"{there}/{pool.most_nodes}"


def tell_users(use: PoolUse | None) -> str:
    """Return which jobs use a pool, or may need it."""
    if use is None:
        return "?"
    users = sorted(use.jobs)
    if use.others:
        users.append(f"{use.others} other pods")
    if use.kept_for is not None:
        users.append(f"({use.kept_for} may need it)")
    return ", ".join(users) or "-"


def tell_idle(use: PoolUse | None, now: datetime) -> str:
    """Return for how long nobody has used a pool."""
    if use is None:
        return "?"
    if not use.is_idle:
        return "-"
    return "yes" if use.idle_since is None else format_age((now - use.idle_since).total_seconds())


def read_prices(path: str | None) -> dict[str, float]:
    """Return the prices in a file, by machine type and how it is bought; raises `InvalidRequestError`."""
    if path is None:
        return {}
    remedy = "Write one machine type a line, such as `ct5p-hightpu-4t: 16.8` or `ct5p-hightpu-4t/spot: 6.7`."
    try:
        read = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidRequestError("--prices", f"can't be read: {error}", remedy) from error
    numbers = isinstance(read, dict) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in read.values()
    )
    if not numbers:
        raise InvalidRequestError("--prices", f"{path} holds no prices", remedy)
    prices: dict[Any, float] = read
    return {str(key): float(value) for key, value in prices.items()}


class PoolDisplay:
    """How operations stand: a bar on a terminal, else a line for each change."""

    def __init__(self, notes: OutputStream, clock: Callable[[], float]) -> None:
        self._notes, self._clock = notes, clock
        self._began = clock()
        self._printed: dict[str, str] = {}
        self._painter: Any = None

    def __enter__(self) -> PoolDisplay:
        if self._notes.is_terminal:
            from rich.console import Console  # noqa: PLC0415 - slow to import, and only needed on terminals

            from fray.job.progress_bar import BarPainter  # noqa: PLC0415 - needs rich

            self._painter = BarPainter(Console(file=self._notes))  # type: ignore[arg-type]
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def show(self, fates: Sequence[PoolFate]) -> None:
        """Show how the operations stand now."""
        for fate in fates:
            if self._printed.get(fate.pool) != fate.state:
                self._printed[fate.pool] = fate.state
                if self._painter is None or fate.is_done:
                    self._clear()
                    self._notes.write(f"{fate.pool}: {fate.state}\n")
        if self._painter is not None:
            done = sum(fate.is_done for fate in fates)
            failed = sum(fate.error is not None and fate.is_done for fate in fates)
            elapsed = self._clock() - self._began
            self._painter.paint(
                Progress("node pools", done, len(fates), failed, len(fates) - done, elapsed, None)
            )

    def _clear(self) -> None:
        if self._painter is not None:
            self._painter.clear()
