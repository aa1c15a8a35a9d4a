"""The first API's name for the functions around the current context; they live in `fray.job`."""

from __future__ import annotations

from fray.job import clear_job_context, get_job_context, set_job_context

__all__ = ["clear_job_context", "get_job_context", "set_job_context"]
