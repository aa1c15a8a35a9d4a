"""Text for users: outside text made fit to be shown in a status and on a terminal, and numbers with nouns.

A program's last words may hold anything: colours, cursor movements, megabytes in one line. What a text
means is not looked at here.
"""

from __future__ import annotations

import re

__all__ = ["TEXT_LIMIT", "clean_text", "flatten", "format_count"]

TEXT_LIMIT = 4096
"""Characters that are kept. The kubelet itself cuts a termination message at as many bytes:
https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
"""
MOST_READ = 4 * TEXT_LIMIT
"""Characters that are looked at in a text that isn't printable as it is."""
SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
"""A command to a terminal: colours and cursor movements (CSI), titles and links (OSC) of ECMA-48."""
UNFIT = "\N{REPLACEMENT CHARACTER}"


def clean_text(text: str) -> str:
    """Return a text without what isn't printable: line ends and tabs stay, other white space is a space.

    Commands to a terminal are left out, and any other character becomes U+FFFD. At most `TEXT_LIMIT`
    characters are kept.
    """
    if not text.isprintable():
        # Before it is gone through: a writer of megabytes must not hold up others.
        shown = SEQUENCE.sub("", text[:MOST_READ]).replace("\r\n", "\n")
        text = "".join(map(_clean_character, shown))
    return text if len(text) <= TEXT_LIMIT else text[: TEXT_LIMIT - 3] + "..."


def flatten(text: str, *, most: int) -> str:
    """Return a text as one line of at most `most` characters, for a sentence to hold."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."


def _clean_character(character: str) -> str:
    if character.isprintable() or character in "\n\t":
        return character
    return " " if character.isspace() else UNFIT


def format_count(number: int, noun: str, plural: str | None = None) -> str:
    """Return `1 host` or `4 hosts`; `plural` is for nouns that form it otherwise."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
