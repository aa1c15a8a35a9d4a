"""Print the part of `requirements.lock` that some packages need: what an image installs.

Runs on a bare python3 with the standard library alone, since it runs while images are built. Which package
needs which is read from the lock's own `via` notes; `pip check` afterwards proves that nothing is missing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

__all__ = ["EXTRAS", "LockedPackage", "parse_lock", "select_packages"]

ENTRY = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(\[[^\]]*\])?==")
VIA = re.compile(r"^ +# (?:via\b ?| +)(\S*)")
EXTRAS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "distributed": "fray[dask]",
        "google-auth": "fray[gke]",
        "google-cloud-container": "fray[gke]",
        "requests": "fray[gke]",
        "ray": "fray[ray]",
    }
)
"""What only an extra of Fray needs: the lock says `via fray` of these, too. A test compares the project."""


@dataclass(frozen=True)
class LockedPackage:
    """One pinned version: its `requirement` with marker and hashes, and the packages that need it."""

    name: str
    requirement: str
    needed_by: frozenset[str]


def parse_lock(text: str) -> list[LockedPackage]:
    """All entries of a lock; one package has several where Python versions need different ones."""
    blocks: list[list[str]] = []
    for line in text.splitlines():
        if ENTRY.match(line):
            blocks.append([line])
        elif line.startswith(" ") and blocks:
            blocks[-1].append(line)
    return [_parse_entry(block) for block in blocks]


def _parse_entry(lines: list[str]) -> LockedPackage:
    match = ENTRY.match(lines[0])
    assert match is not None
    notes = [found[1] for found in map(VIA.match, lines) if found is not None and found[1]]
    requirement = [line for line in lines if not line.lstrip().startswith("#")]
    name = _normalise(match[1])
    needed_by = {_normalise(note.partition("[")[0]) for note in notes}
    if name in EXTRAS and "fray" in needed_by:
        needed_by = needed_by - {"fray"} | {EXTRAS[name]}
    return LockedPackage(name, "\n".join(requirement), frozenset(needed_by))


def _normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def select_packages(packages: Iterable[LockedPackage], roots: Collection[str]) -> list[LockedPackage]:
    """The packages that `roots` need, and the roots themselves where they are locked.

    Raises `KeyError` with the name of a root that the lock doesn't know.
    """
    packages = list(packages)
    chosen = {_normalise(root) for root in roots}
    known = {package.name for package in packages}.union(*(package.needed_by for package in packages))
    for root in sorted(chosen - known):
        raise KeyError(root)
    while True:
        more = {p.name for p in packages if p.needed_by & chosen} - chosen
        if not more:
            return [package for package in packages if package.name in chosen]
        chosen |= more


def main() -> None:
    """Print the requirements of the packages named on the command line."""
    lock = Path(__file__).with_name("requirements.lock")
    if not lock.exists():
        lock = Path(__file__).parents[1] / "requirements.lock"
    try:
        selected = select_packages(parse_lock(lock.read_text(encoding="utf-8")), sys.argv[1:])
    except KeyError as error:
        sys.exit(f"locked_packages: {lock.name} has no {error.args[0]}: run `make lock`")
    print("\n".join(package.requirement for package in selected))


if __name__ == "__main__":
    main()
