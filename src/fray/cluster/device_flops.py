"""The place where an earlier API had how fast accelerators are; see `fray.device_flops`."""

from __future__ import annotations

from fray.device_flops import *  # noqa: F403 - its `__all__` is the list
from fray.device_flops import __all__  # noqa: F401
