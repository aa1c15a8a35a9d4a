"""Prometheus metrics of the operator; every label has a bounded set of values.

No label names a job, namespace or pod: their number is not ours to bound.
"""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from fray.kube.resources import Resource

__all__ = ["Metrics"]


class Metrics:
    """The metrics of one operator process, in a registry of their own."""

    def __init__(self) -> None:
        disable_created_metrics()  # a second series beside each counter that nobody asks for
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "fray_api_requests",
            "Requests to the API server, by method, resource and HTTP status (0: no answer)",
            ("method", "resource", "status"),
            registry=self.registry,
        )
        self.reconciles = Counter(
            "fray_reconciles",
            "Passes over an object, by its kind and the outcome",
            ("kind", "outcome"),
            registry=self.registry,
        )
        self.reconcile_seconds = Histogram(
            "fray_reconcile_seconds", "Duration of one pass over an object", ("kind",), registry=self.registry
        )
        self.unfinished = Gauge(
            "fray_unfinished_objects", "Objects that have not finished", ("kind",), registry=self.registry
        )
        self.finished = Counter(
            "fray_jobs_finished", "FrayJobs that finished, by phase", ("phase",), registry=self.registry
        )
        self.attempts = Counter(
            "fray_attempts_ended", "Attempts that ended, by verdict", ("verdict",), registry=self.registry
        )
        self.queued = Gauge(
            "fray_queued_objects", "Objects due for a pass or in one", ("kind",), registry=self.registry
        )
        self.leading = Gauge("fray_leading", "1 while this process is the leader", registry=self.registry)
        self.silent_seconds = Gauge(
            "fray_watch_silent_seconds",
            "Seconds since a watch was heard",
            ("resource",),
            registry=self.registry,
        )

    def count_request(self, method: str, resource: Resource, status: int) -> None:
        """Count one request; the status is cut to classes but for those that tell something by themselves."""
        code = str(status) if status in (0, 404, 409, 410, 429) else f"{status // 100}xx"
        self.requests.labels(method, str(resource), code).inc()

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
