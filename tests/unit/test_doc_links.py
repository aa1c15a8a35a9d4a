"""Links between pages: the file is there, and so is the heading that an anchor names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.doc_links import ROOT, find_anchors, find_links, list_pages

PAGES = list_pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    broken = []
    for link in find_links(page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_file() or (
            anchor and anchor not in find_anchors(target.read_text(encoding="utf-8"))
        ):
            broken.append(link)
    assert broken == []


def test_pages_of_all_parts_are_looked_at() -> None:
    names = {str(page.relative_to(ROOT)) for page in PAGES}
    assert {"README.md", "docs/cli.md", "docs/decisions/README.md", "charts/fray/README.md"} <= names


def test_links_are_found_outside_code_only() -> None:
    text = "[a](b.md#c) `[d](e)` ![f](g.svg)\n```\n[h](i)\n# No heading\n```\n[j](https://k) [l](#m)"
    assert find_links(text) == ["b.md#c", "g.svg", "#m"]


def test_anchors_are_those_of_github() -> None:
    text = "# When a job waits, fails\n## `spec.x`: it's 2 & 3\n## Same\n## Same\n```\n# code\n```\n"
    assert find_anchors(text) == {"when-a-job-waits-fails", "specx-its-2--3", "same", "same-1"}
