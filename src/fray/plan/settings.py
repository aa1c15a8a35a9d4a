"""What an installation decides for all its jobs, and what a backend decides about time.

Frozen data that callers fill in: the operator from its own settings, the local backend and
`fray explain` from the defaults here. Nothing here reads the environment.
"""

from __future__ import annotations

from dataclasses import dataclass

from fray.backoff import Backoff

__all__ = ["PlanSettings", "RetryPolicy"]


@dataclass(frozen=True)
class PlanSettings:
    """Defaults for what a job leaves open."""

    image: str = "fray-runtime:0.1.0"
    """Image of jobs that name none; the chart sets it."""
    injector_image: str | None = "fray-operator:0.1.0"
    """Image of the init container that brings Fray's runtime: the operator's own, which the chart sets. None
    where nothing is brought, since processes find Fray where they are."""
    service_account: str = "fray-job"
    """ServiceAccount of jobs that name none; the chart makes it."""
    metadata_server: bool = True
    """Whether the machines have Google's metadata server (they do on GKE)."""
    kueue_elastic_jobs: bool = False
    """Whether Kueue lets a Job change its size: older versions evict it then."""


@dataclass(frozen=True)
class RetryPolicy:
    """How long to wait before the next attempt: `initial`, doubled for each in a row, at most `cap`.

    `avoid_seconds` is for how long the next attempts keep off a node that is broken; 0 for not at all.
    What ends without saying whose fault it was is judged `settle` after its first failure, in case evidence
    comes. Hosts that can't be ended are waited for until their node was silent for `unreachable`.
    """

    initial_seconds: float = 10.0
    cap_seconds: float = 360.0
    avoid_seconds: float = 3600.0
    settle_seconds: float = 0.0
    unreachable_seconds: float = 60.0

    def delay(self, retries: int) -> float:
        """Return the pause in seconds before the retry with this number, counted from 1."""
        return Backoff(self.initial_seconds, self.cap_seconds).pause(retries)
