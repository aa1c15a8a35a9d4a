"""Manifests that must be taken or refused, by Python and by the API server alike.

`good/`: one FrayJob a file, `good-actors/`: one FrayActor a file. `bad/` and `bad-actors/`: one a YAML
document, with a comment above it for each refusal:

    # KIND PATH: MESSAGE

KIND says how the API server's answer relates to Python's, which is the one written down:
`rule` (same path and message), `schema` (same path, other words), `unknown` (a field that doesn't exist:
the API server answers 400 with the path), `map` (a map where none belongs: the API server calls the first
key in it an unknown field). A message that ends in ` ...` is the beginning of the whole one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

import yaml

__all__ = [
    "BadManifest",
    "GoodManifest",
    "Refusal",
    "bad_actors",
    "bad_manifests",
    "good_actors",
    "good_manifests",
]

_FOLDER = Path(__file__).parent
_REFUSAL = re.compile(r"# (?P<kind>rule|schema|unknown|map) (?P<path>[^\s:]+): (?P<message>.+)")


Kind = Literal["rule", "schema", "unknown", "map"]


@dataclass(frozen=True)
class Refusal:
    """One field that must be refused."""

    kind: Kind
    path: str
    message: str

    def is_said_by(self, message: str) -> bool:
        """Whether a judge's message is the expected one."""
        if self.message.endswith(" ..."):
            return message.startswith(self.message.removesuffix(" ..."))
        return message == self.message


@dataclass(frozen=True)
class BadManifest:
    """A manifest, what is wrong with it, and a name for the test."""

    name: str
    manifest: dict[str, Any]
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True)
class GoodManifest:
    """A legal manifest and a name for the test."""

    name: str
    manifest: dict[str, Any]


def bad_manifests() -> tuple[BadManifest, ...]:
    """All cases of `bad/`, by file and place."""
    return _read_bad("bad")


def bad_actors() -> tuple[BadManifest, ...]:
    """All cases of `bad-actors/`."""
    return _read_bad("bad-actors")


def good_manifests() -> tuple[GoodManifest, ...]:
    """All files of `good/`, by name."""
    return _read_good("good")


def good_actors() -> tuple[GoodManifest, ...]:
    """All files of `good-actors/`, by name."""
    return _read_good("good-actors")


@cache
def _read_bad(folder: str) -> tuple[BadManifest, ...]:
    return tuple(
        _parse_case(f"{path.stem}-{number}", text)
        for path in sorted((_FOLDER / folder).glob("*.yaml"))
        for number, text in enumerate(path.read_text(encoding="utf-8").split("\n---\n")[1:], start=1)
    )


@cache
def _read_good(folder: str) -> tuple[GoodManifest, ...]:
    return tuple(
        GoodManifest(path.stem, yaml.safe_load(path.read_text(encoding="utf-8")))
        for path in sorted((_FOLDER / folder).glob("*.yaml"))
    )


def _parse_case(place: str, text: str) -> BadManifest:
    comments = [line for line in text.splitlines() if line.startswith("#")]
    matches = [_REFUSAL.fullmatch(comment) for comment in comments]
    refusals = tuple(
        Refusal(cast("Kind", m["kind"]), m["path"], m["message"]) for m in matches if m is not None
    )
    if not refusals or len(refusals) != len(comments):
        raise ValueError(f"{place}: each comment must read `# KIND PATH: MESSAGE`")
    manifest = yaml.safe_load(text)
    return BadManifest(f"{place}-{manifest['metadata'].get('name', 'unnamed')[:30]}", manifest, refusals)
