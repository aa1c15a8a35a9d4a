"""An earlier API's module of `current_client`, which is a function of `fray`; here it is both.

Importing a module sets it as an attribute of its package: `fray.current_client()` must go on to work.
"""

from __future__ import annotations

import sys
from types import ModuleType

from fray.client.client import Client, current_client, set_current_client

__all__ = ["current_client", "set_current_client"]


class _CallableModule(ModuleType):
    def __call__(self) -> Client:
        """Return the current client, as the function of this name does."""
        return current_client()


sys.modules[__name__].__class__ = _CallableModule
