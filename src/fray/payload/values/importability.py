"""Whether a worker finds a module, or code in one, under its name, so that it can go by name.

It doesn't: `__main__`, notebooks, modules made at run time or loaded from a file outside `sys.path`.

How code is pickled that has to go by value is in `pickling`.
"""

from __future__ import annotations

import functools
import importlib.machinery
import sys
import types
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

__all__ = ["goes_by_name", "is_importable"]


def is_importable(module: str | None) -> bool:
    """Whether a worker finds this module under its name; if not, cloudpickle sends it by value."""
    if module is None or module == "__main__":
        return False
    if module.partition(".")[0] in sys.stdlib_module_names:
        return True
    if module in cloudpickle.list_registry_pickle_by_value():
        return False
    if _found(module):
        return True
    if module in sys.modules:
        cloudpickle.register_pickle_by_value(sys.modules[module])
    return False


def goes_by_name(code: Any) -> bool:
    """Return whether a worker finds this function, class or module under its name."""
    if isinstance(code, types.ModuleType):
        return _is_found_module(code)
    module = getattr(code, "__module__", None)
    if not is_importable(module):
        return False
    found: Any = sys.modules.get(module or "")
    for name in getattr(code, "__qualname__", "").split("."):
        found = getattr(found, name, None)
    return found is code


def _is_found_module(module: types.ModuleType) -> bool:
    if type(module) is not types.ModuleType or module.__name__ == "__main__":
        return True  # such as lazy ones, which know how they are pickled; a worker has its own main script
    name = module.__name__
    # Some are called otherwise than what they are found under: `_collections_abc`, for example.
    if not is_importable(name):
        return False
    return sys.modules.get(name) is module or any(each is module for each in tuple(sys.modules.values()))


@functools.cache
def _found(name: str) -> bool:
    module = sys.modules.get(name)
    parent, _, _ = name.rpartition(".")
    if module is None or (parent and not _found(parent)):
        return False
    known: importlib.machinery.ModuleSpec | None = getattr(module, "__spec__", None)
    if known is None:
        # Extension modules make such parts of themselves, which are there when the whole is imported.
        return bool(parent)
    path = getattr(sys.modules[parent], "__path__", None) if parent else None
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path)
        if spec is not None:
            return _same_file(spec.origin, known.origin)
    return False


def _same_file(one: str | None, other: str | None) -> bool:
    return one == other or (
        one is not None and other is not None and Path(one).resolve() == Path(other).resolve()
    )
