"""Pages of the reference site for the public names of Python: one page per package that users import.

Which names are public is what `__all__` says; texts and signatures are read from the source by mkdocstrings.
"""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

__all__ = ["PACKAGES", "public_names", "render_python_pages"]

PACKAGES = ("fray.errors", "fray.job", "fray.queue", "fray.client", "fray.testing", "fray")
"""What an earlier page documents is a link on later pages."""


def render_python_pages() -> dict[str, str]:
    """Return the Markdown of each page by the name of its package."""
    documented: dict[str, str] = {}
    return {package: _page(package, documented) for package in PACKAGES}


def public_names(package: str) -> list[str]:
    """Return the public names of a package, sorted."""
    return sorted(import_module(package).__all__)


def _page(package: str, documented: dict[str, str]) -> str:
    own_text = f"::: {package}\n    options:\n      members: false\n      show_root_heading: false"
    parts = [f"# {package}", own_text]
    links = []
    for name in public_names(package):
        if name == "__version__":
            parts.append("## `__version__`\n\nThe version of Fray that is installed, as text.")
            continue
        path = _find_definition(package, name)
        if path in documented:
            links.append(f"- [`{name}`][{path}] in `{documented[path]}`")
            continue
        documented[path] = package
        parts.append(f"::: {path}\n    options:\n      heading: {name}\n      toc_label: {name}")
    if links:
        parts.append("\n".join(["## Names of other pages", "", *links]))
    return "\n\n".join(parts) + "\n"


def _find_definition(package: str, name: str) -> str:
    """Return the full path of what a public name stands for, where the source defines it."""
    value = getattr(import_module(package), name)
    if isinstance(value, ModuleType):  # of an earlier API: it takes the name's place once it is imported
        value = getattr(value, name)
    home = getattr(value, "__module__", None) or ""
    if home.partition(".")[0] == "fray" and hasattr(value, "__qualname__"):
        return f"{home}.{value.__qualname__}"
    loaded = {module: vars(found) for module, found in sys.modules.items() if module.startswith("fray.")}
    for module, names in sorted(loaded.items()):  # an alias of a type knows no module
        if names.get(name) is value and _defines(Path(names["__file__"]), name):
            return f"{module}.{name}"
    raise LookupError(f"no module of Fray defines {package}.{name}")


def _defines(source: Path, name: str) -> bool:
    """Return whether a module assigns to a name, rather than importing it."""
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == name:
            return True
    return False
