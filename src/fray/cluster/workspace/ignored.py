"""What isn't code: leftovers of tools, and what .gitignore files name, for where git can't be asked.

Pure: patterns in, a judgement out. The rules of patterns are git's (gitignore(5)).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self

__all__ = ["IgnoreRules", "is_leftover"]

LEFTOVERS: Final = frozenset(
    {
        ".DS_Store",
        ".coverage",
        ".git",
        ".hg",
        ".hypothesis",
        ".ipynb_checkpoints",
        ".jj",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".ruff_cache",
        ".svn",
        ".tox",
        ".venv",
        "__pycache__",
        "node_modules",
    }
)
CLASSES: Final = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "lower": "a-z",
    "upper": "A-Z",
    "space": r"\s",
}
"""Of characters, by their POSIX names; git knows a few more, which nobody uses."""
ENDINGS: Final = (".pyc", ".pyo", ".egg-info", ".swp")


def is_leftover(name: str) -> bool:
    """Return whether a file or folder of this name is what tools leave behind, in any folder."""
    return name in LEFTOVERS or name.endswith(ENDINGS)


@dataclass(frozen=True)
class IgnoreRules:
    """The patterns of one .gitignore, in its order; they count for what lies below its folder."""

    patterns: tuple[tuple[str, bool, bool], ...]
    """Regular expressions of paths, whether only for folders, and whether they take back."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the rules of a .gitignore; a line that means nothing is left out, as git does."""
        return cls(tuple(filter(None, map(_parse_line, _as_bytes(text).split("\n")))))

    def judge(self, path: str, *, folder: bool) -> bool | None:
        """Return whether a path is ignored; None where no pattern is about it. The last one counts.

        `path` is relative to the folder of the .gitignore, with slashes.
        """
        raw = _as_bytes(path)
        for expression, only_folders, takes_back in reversed(self.patterns):
            if (folder or not only_folders) and _compile(expression).fullmatch(raw):
                return not takes_back
        return None


def _as_bytes(text: str) -> str:
    """Return a character for each byte of a text's UTF-8: git's `?` is one byte."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def _parse_line(line: str) -> tuple[str, bool, bool] | None:
    text = re.sub(r"(?<!\\) +$", "", line.removesuffix("\r"))
    if not text or text.startswith("#"):
        return None
    takes_back = text.startswith("!")
    text = text.removeprefix("!")
    only_folders = text.endswith("/")
    text = text.removesuffix("/")
    if not text:
        return None
    anchored = "/" in text
    expression = _translate(text.removeprefix("/"))
    try:
        _compile(expression)
    except re.error:
        return None
    return (expression if anchored else f"(?:.*/)?{expression}"), only_folders, takes_back


@lru_cache(maxsize=4096)
def _compile(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.DOTALL)


def _translate(pattern: str) -> str:
    """Return the regular expression of a pattern without leading or trailing slash."""
    parts: list[str] = []
    segments = pattern.split("/")
    for index, segment in enumerate(segments):
        last = index == len(segments) - 1
        if segment == "**":
            parts.append(".+" if last else "(?:.*/)?")
        else:
            parts.append("".join(_translate_segment(segment)) + ("" if last else "/"))
    return "".join(parts)


def _translate_segment(segment: str) -> Iterable[str]:
    rest = segment
    while rest:
        character, rest = rest[0], rest[1:]
        if character == "\\" and rest:
            yield re.escape(rest[0])
            rest = rest[1:]
        elif character == "*":
            rest = rest.lstrip("*")
            yield "[^/]*"
        elif character == "?":
            yield "[^/]"
        elif character == "[" and (
            found := re.match(r"([!^]?)(\]?(?:\[:[a-z]+:\]|\\.|[^\]\\])*)\]", rest, re.DOTALL)
        ):
            body = re.sub(r"\[:([a-z]+):\]|\\.|[\[&~|]", _translate_class, found[2])
            body = f"\\{body}" if body.startswith(("]", "^")) else body
            yield f"(?!/)[{'^' if found[1] else ''}{body}]"
            rest = rest[found.end() :]
        else:
            yield re.escape(character)


def _translate_class(found: re.Match[str]) -> str:
    """Return the part of a class of characters that regular expressions would read otherwise."""
    if found[1] is not None:
        return CLASSES.get(found[1], found[0])
    return found[0] if found[0].startswith("\\") else f"\\{found[0]}"
