"""An earlier API's client of Iris clusters, which aren't served: its names tell what to write instead."""

from __future__ import annotations

from typing import Any

from fray.offered_names import find_offered


def __getattr__(name: str) -> Any:
    return find_offered(__name__, name, ())
