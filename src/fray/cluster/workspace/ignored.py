"""What isn't code: leftovers of tools, and what .gitignore files name, for where git can't be asked.

Pure: patterns in, a judgement out. The rules of patterns are git's (gitignore(5)), read by pathspec.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:  # imported where it is used: it is slow to import, and only needed without git
    import pathspec

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
    "space": " \t\r\f\v",
}
"""Of characters, by their POSIX names; git knows a few more, which nobody uses."""
ENDINGS: Final = (".pyc", ".pyo", ".egg-info", ".swp")


def is_leftover(name: str) -> bool:
    """Return whether a file or folder of this name is what tools leave behind, in any folder."""
    return name in LEFTOVERS or name.endswith(ENDINGS)


@dataclass(frozen=True)
class IgnoreRules:
    """The patterns of one .gitignore, in its order; they count for what lies below its folder."""

    spec: pathspec.GitIgnoreSpec

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the rules of a .gitignore; a line that means nothing is left out, as git does."""
        import pathspec  # noqa: PLC0415 - see the top
        from pathspec.patterns.gitignore import GitIgnorePatternError  # noqa: PLC0415

        spec = pathspec.GitIgnoreSpec([])
        for line in _as_bytes(text).split("\n"):
            pattern = re.sub(r"\[:([a-z]+):\]", _spell_out, line.removesuffix("\r"))
            with suppress(GitIgnorePatternError):
                spec += pathspec.GitIgnoreSpec.from_lines([pattern])
        return cls(spec)

    def judge(self, path: str, *, folder: bool) -> bool | None:
        """Return whether a path is ignored; None where no pattern is about it. The last one counts.

        `path` is relative to the folder of the .gitignore, with slashes.
        """
        return self.spec.check_file(_as_bytes(f"{path}/" if folder else path)).include


def _as_bytes(text: str) -> str:
    """Return a character for each byte of a text's UTF-8: git's `?` is one byte."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def _spell_out(name: re.Match[str]) -> str:
    """Return the characters of a class such as `[:alpha:]`, which pathspec doesn't know."""
    return CLASSES.get(name[1], name[0])
