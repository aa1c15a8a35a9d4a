"""What Fray uses of the official client, `kubernetes.aio`, without importing all the rest of it.

The package `kubernetes` imports a synchronous client too, with requests, OAuth and Google's log-in, and
`kubernetes.aio` its dynamic client with urllib3, which takes longer than all the rest of a command such as
`fray list`. So both are executed when somebody asks for what isn't there yet.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from typing import Any

__all__ = ["ApiClient", "Configuration", "config"]

_lock = threading.RLock()


def _put_off(name: str) -> None:
    """Let a package be executed when it is used; has no effect where it has been, or where there is none."""
    if name in sys.modules or (spec := importlib.util.find_spec(name)) is None or spec.loader is None:
        return
    loader = spec.loader
    package = importlib.util.module_from_spec(spec)

    def load(attribute: str) -> Any:
        part = f"{name}.{attribute}"
        if part in sys.modules:  # on its way
            return sys.modules[part]
        with _lock:
            # Only once, and not while it is executed, by this thread.
            if package.__dict__.pop("__getattr__", None) is not None:
                loader.exec_module(package)
        try:
            return package.__dict__[attribute]
        except KeyError:
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}") from None

    package.__dict__["__getattr__"] = load
    sys.modules[name] = package


for _package in ("kubernetes", "kubernetes.aio"):
    _put_off(_package)

import kubernetes.aio.config as config  # noqa: E402, PLR0402, TID251 - `from` would execute the package
from kubernetes.aio.client import ApiClient, Configuration  # noqa: E402, TID251
