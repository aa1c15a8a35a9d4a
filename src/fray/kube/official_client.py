"""How the official client reads kubeconfigs and accounts of pods, without importing all the rest of it.

The package `kubernetes` imports a synchronous client too, with requests, OAuth and Google's log-in, and
`kubernetes.aio` its dynamic client with urllib3. What reads kubeconfigs there imports a client with aiohttp.
All of it takes longer than all the rest of a command such as `fray list`. So it is executed when somebody
asks for what isn't there yet.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import threading
from typing import Any

__all__ = ["config"]

_lock = threading.RLock()
_stand_ins: set[tuple[str, str]] = set()
"""Modules and classes of theirs that can be imported without executing the module."""


def _put_off(name: str, *classes: str) -> None:
    """Let a module be executed when it is used; has no effect where it has been, or where there is none.

    The import of one of its `classes` is no use yet, as long as it is in `_stand_ins`: creating an object is.
    """
    parent = sys.modules.get(name.rpartition(".")[0])
    spec = importlib.machinery.PathFinder.find_spec(name, None if parent is None else parent.__path__)
    if name in sys.modules or spec is None or spec.loader is None:
        return
    loader = spec.loader
    module = importlib.util.module_from_spec(spec)
    _stand_ins.update((name, each) for each in classes)

    def execute(attribute: str) -> Any:
        with _lock:
            # Only once, and not while it is executed, by this thread.
            if module.__dict__.pop("__getattr__", None) is not None:
                loader.exec_module(module)
        return getattr(module, attribute)

    def find(attribute: str) -> Any:
        if attribute == "__path__":  # each import asks whether it is a package
            raise AttributeError(attribute)
        part = f"{name}.{attribute}"
        if part in sys.modules:  # on its way
            return sys.modules[part]
        if (name, attribute) in _stand_ins:
            create = {"__new__": lambda _, *values, **named: execute(attribute)(*values, **named)}
            return type(attribute, (), create)
        return execute(attribute)

    module.__dict__["__getattr__"] = find
    sys.modules[name] = module


_put_off("kubernetes")
_put_off("kubernetes.aio")
_put_off("kubernetes.aio.client", "ApiClient", "Configuration")
_put_off("kubernetes.aio.config")
_put_off("kubernetes.aio.config.openid", "OpenIDRequestor")

import kubernetes.aio.config as config  # noqa: E402, PLR0402, TID251 - `from` would execute the package

config.load_kube_config  # noqa: B018 - executes it, with the stand-ins
_stand_ins.clear()
