"""The place where an earlier API had the data of requests; it lives in `fray.types`."""

from __future__ import annotations

from fray.types import *  # noqa: F403 - its `__all__` is the list
from fray.types import __all__  # noqa: F401
