"""Modules that only this machine has, for as long as a callable is pickled for another: they go by value.

The scripts and packages of a working directory, of PYTHONPATH and of editable installs are local; what lies
in the standard library or among installed packages goes by name, and has to be in the image. Which functions
and classes go by value to every reader is for `values.importability` to say.
"""

from __future__ import annotations

import contextlib
import sys
import sysconfig
import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import cloudpickle  # type: ignore[import-untyped]

__all__ = ["is_local", "local_modules_by_value"]

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_STANDARD_LIBRARY = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib"))
_RUNTIME = frozenset({"fray", "cloudpickle"})
"""Packages that are beside every callable that runs."""

_lock = threading.Lock()


def is_local(module: ModuleType) -> bool:
    """Whether a module is Python code that isn't installed: another machine has it only if it is sent."""
    name = module.__name__
    top = name.partition(".")[0]
    if name == "__main__" or top in _RUNTIME or top in sys.stdlib_module_names:
        return False
    place = getattr(module, "__file__", None)
    if not isinstance(place, str) or not place.endswith(".py"):
        return False  # built in, made at run time, or an extension, whose code can't be sent
    return not _is_installed(place)


@lru_cache(maxsize=1 << 14)  # of hundreds of modules at every launch; where one was read from doesn't change
def _is_installed(place: str) -> bool:
    path = Path(place).resolve()
    if not _INSTALLED.isdisjoint(path.parts):
        return True
    return any(path.is_relative_to(library) for library in _STANDARD_LIBRARY)


@contextlib.contextmanager
def local_modules_by_value() -> Iterator[None]:
    """Let cloudpickle send what is in local modules by value, and leave it afterwards as it was.

    One thread at a time; what others pickle at that time may go by value too, which reads as well.
    """
    with _lock:
        before = cloudpickle.list_registry_pickle_by_value()
        present: dict[str, object] = dict(sys.modules)  # whatever programs have put there
        modules = [
            module
            for name, module in present.items()
            if isinstance(module, ModuleType)
            and name == module.__name__
            and name not in before
            and is_local(module)
        ]
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)
