"""Import paths of earlier APIs: `fray.v1.cluster` and `fray.v2.cluster` are `fray.cluster` itself.

Only one module is there under both names, so that its classes and its current cluster are the same.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Final

__all__ = ["offer_package"]

NEW: Final = "fray"


def offer_package(package: str) -> None:
    """Let the names and modules of `fray` be found in `package` as well; once is enough."""
    if not any(isinstance(each, _Finder) and each.package == package for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder(package))
    # https://peps.python.org/pep-0562/
    vars(sys.modules[package]).update(
        __getattr__=lambda name: getattr(import_module(NEW), name), __dir__=lambda: dir(import_module(NEW))
    )


class _Finder(MetaPathFinder):
    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module below the package is; None for others, and for what `fray` hasn't got."""
        del path, target
        if not fullname.startswith(f"{self.package}."):
            return None
        name = NEW + fullname.removeprefix(self.package)
        found = find_spec(name)
        if found is None:
            return None
        return ModuleSpec(fullname, _Loader(name), is_package=found.submodule_search_locations is not None)


class _Loader(Loader):
    def __init__(self, name: str) -> None:
        self.name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module under its own name, imported if need be."""
        del spec
        module = import_module(self.name)
        self.own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module as it is: the import system has just overwritten where it is from."""
        module.__spec__ = self.own
