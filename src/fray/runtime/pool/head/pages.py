"""The pages that a head shows: Prometheus text and JSON, both of one pool's summary."""

from __future__ import annotations

import time
from collections.abc import Mapping

from fray.runtime.pool.head.metrics import CONTENT_TYPE, render_metrics
from fray.runtime.pool.head.metrics_server import Page
from fray.runtime.pool.state import PoolState
from fray.runtime.pool.transport.refusals import RefusalCounts
from fray.runtime.pool.view import PoolView, RateMeter
from fray.vocabulary import POOL_METRICS_PATH, POOL_VIEW_PATH

__all__ = ["PoolPages"]


class PoolPages:
    """Makes the pages of a pool, on the thread that drives it.

    Parameters: its `state`; what it has `refused`; the name of its `job`, if it has one.
    """

    def __init__(self, state: PoolState, refused: RefusalCounts, *, job: str) -> None:
        self._state = state
        self._refused = refused
        self._job = job
        self._began = time.monotonic()
        self._meter = RateMeter(self._began)
        self.pages: Mapping[str, Page] = {
            POOL_METRICS_PATH: Page(CONTENT_TYPE, self._render_metrics),
            POOL_VIEW_PATH: Page("application/json", self._render_view),
        }
        """What is at which path."""

    def note(self) -> None:
        """Take note of the counters, for rates; cheap, and to be called at least once a second."""
        self._meter.note(self._state.counters, time.monotonic())

    def _render_metrics(self) -> str:
        return render_metrics(self._state.stats(), self._refused.snapshot())

    def _render_view(self) -> str:
        stats, now = self._state.stats(), time.monotonic()
        rates = self._meter.rates(stats.counters, now)
        return PoolView.build(stats, job=self._job, seconds=now - self._began, rates=rates).to_json()
