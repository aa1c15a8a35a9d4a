"""Read `versions.toml`: which upstream parts exist, at which version, and the programs each one gives.

No second copy of a version may exist anywhere; all code that needs one asks here.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from e2e.cluster.errors import UnknownProgramError

__all__ = ["MODULES", "Part", "Program", "image_named", "load_parts", "part_named", "program_named"]

_HERE = Path(__file__).parent
MODULES = _HERE / "modules"
"""One folder per part, with the go.mod and go.sum that pin its whole dependency tree."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """One executable: its file name and the Go main package it is built from."""

    name: str
    package: str


@dataclass(frozen=True, kw_only=True)
class Part:
    """One upstream module at its pinned version."""

    name: str
    module: str
    version: str
    cold_build: str
    """How long the first build was seen to take on two cores, as text for people."""
    programs: tuple[Program, ...]
    staging_version: str | None = None
    """Version of the modules that upstream replaces by `./staging/...` folders, None when it has none."""
    link_variables: Mapping[str, str] = field(default_factory=dict)
    leave_out: tuple[str, ...] = ()
    """Source files that it is built without: they only bring in what nobody here needs."""
    recipe: int = 1
    """Raised when the same sources have to be built in another way, so that what is cached isn't taken."""
    on_demand: bool = False
    """Built where something names it, not with all others."""

    @property
    def folder(self) -> Path:
        """Where its go.mod, go.sum and tools.go are committed."""
        return MODULES / self.name


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((_HERE / "versions.toml").read_text(encoding="utf-8"))


def load_parts(environ: Mapping[str, str] = os.environ) -> Mapping[str, Part]:
    """All pinned parts by name, in file order; one that replaces another has the other's name here.

    Those of a skew are there only where FRAY_SKEW names it, words with commas between them.
    """
    return _parts_of(environ.get("FRAY_SKEW", ""))


@cache
def _parts_of(skews: str) -> Mapping[str, Part]:
    entries: dict[str, dict[str, Any]] = _table()["parts"]
    known = {entry["skew"] for entry in entries.values() if "skew" in entry}
    asked = set(filter(None, skews.split(",")))
    if unknown := asked - known:
        raise UnknownProgramError(min(unknown), tuple(sorted(known)))
    return {
        entry.get("replaces", name): Part(
            name=name,
            module=entry["module"],
            version=entry["version"],
            cold_build=entry["cold_build"],
            programs=tuple(Program(name=key, package=package) for key, package in entry["programs"].items()),
            staging_version=entry.get("staging_version"),
            link_variables=entry.get("link_variables", {}),
            leave_out=tuple(entry.get("leave_out", ())),
            recipe=entry.get("recipe", 1),
            on_demand=entry.get("on_demand", False),
        )
        for name, entry in entries.items()
        if "skew" not in entry or entry["skew"] in asked
    }


def part_named(name: str) -> Part:
    """The part called `name`. Raises UnknownProgramError."""
    parts = load_parts()
    if name not in parts:
        raise UnknownProgramError(name, tuple(parts))
    return parts[name]


def program_named(name: str) -> tuple[Part, Program]:
    """The program called `name` and its part; `kube-` may be left out. Raises UnknownProgramError."""
    # Later ones count: those of a skew are below what they replace.
    known = {program.name: (part, program) for part in load_parts().values() for program in part.programs}
    for candidate in (name, f"kube-{name}"):
        if candidate in known:
            return known[candidate]
    raise UnknownProgramError(name, tuple(known))


def image_named(name: str) -> str:
    """The reference of the pulled image called `name`. Raises UnknownProgramError."""
    images: dict[str, str] = _table()["images"]
    if name not in images:
        raise UnknownProgramError(name, tuple(images))
    return images[name]
