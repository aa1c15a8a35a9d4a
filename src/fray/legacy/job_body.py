"""What a job of `ClusterContext` runs where it was given a callable: it needs contexts, and no cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fray.job import JobContext, get_job_context

__all__ = ["call_with_context"]


def call_with_context(entrypoint: Callable[[JobContext], Any]) -> None:
    """Call an entrypoint of the first API with the context of its process. What it returns was never kept."""
    entrypoint(get_job_context())
