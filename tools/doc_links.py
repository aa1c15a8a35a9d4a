"""The pages that readers have, their links, and the anchors of their headings as GitHub makes them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

__all__ = ["ROOT", "find_anchors", "find_links", "list_pages"]

ROOT = Path(__file__).parents[1]
PAGES = ("*.md", "docs/**/*.md", "operator/*.md", "charts/*/*.md", "examples/*/*.md", "e2e/*/*.md")
FENCE = re.compile(r"^ *(```|~~~).*?^ *\1 *$", flags=re.DOTALL | re.MULTILINE)
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ +(.*?) *$", flags=re.MULTILINE)


def list_pages() -> list[Path]:
    """Return all Markdown files that are meant for readers, sorted."""
    return sorted(path for pattern in PAGES for path in ROOT.glob(pattern))


def find_links(text: str) -> list[str]:
    """Return the targets of a page's links and pictures, in order, without those to other sites."""
    found = LINK.findall(CODE.sub("", FENCE.sub("", text)))
    return [link for link in found if "://" not in link and not link.startswith("mailto:")]


def find_anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = HEADING.findall(FENCE.sub("", text))
    slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    return {
        f"{slug}-{number}" if number else slug
        for slug, count in Counter(slugs).items()
        for number in range(count)
    }
