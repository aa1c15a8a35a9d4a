"""What jobs of the earlier APIs run where they were given a callable: it needs contexts, and no cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fray.job import JobContext, get_job_context
from fray.payload.outcome import RankValue

__all__ = ["call_with_context", "return_from_each_rank"]


def call_with_context(entrypoint: Callable[[JobContext], Any]) -> None:
    """Call an entrypoint of the first API with the context of its process. What it returns was never kept."""
    entrypoint(get_job_context())


def return_from_each_rank(function: Callable[..., Any], *, with_context: bool) -> RankValue:
    """Call a function of a gang call, with the context of its process if it takes one."""
    return RankValue(function(get_job_context()) if with_context else function())
