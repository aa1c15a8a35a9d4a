"""The place where an earlier API had gang calls; they live in `fray.legacy.gang_calls`."""

from __future__ import annotations

from fray.legacy.gang_calls import run_on_pod

__all__ = ["run_on_pod"]
