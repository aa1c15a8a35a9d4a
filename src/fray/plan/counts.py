"""Numbers with their nouns, in texts for users."""

from __future__ import annotations

__all__ = ["format_count"]


def format_count(number: int, noun: str, plural: str | None = None) -> str:
    """Return `1 host` or `4 hosts`; `plural` is for nouns that form it otherwise."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
