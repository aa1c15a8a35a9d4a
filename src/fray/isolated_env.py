"""An earlier API's environments for a process, of which jobs have their own now: its name tells how."""

from __future__ import annotations

from typing import Any

from fray.offered_names import find_offered


def __getattr__(name: str) -> Any:
    return find_offered(__name__, name, ())
