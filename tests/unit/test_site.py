"""The reference site has every page and every public name; `make docs` checks the links of what it builds."""

from __future__ import annotations

import importlib
import re

import pytest

from tools.build_site import list_files
from tools.doc_links import ROOT, find_links, list_pages
from tools.python_pages import PACKAGES, public_names, render_python_pages


@pytest.fixture(scope="module", name="pages")
def rendered() -> dict[str, str]:
    return render_python_pages()


def test_the_menu_has_every_page_and_no_other() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    files = {str(page.relative_to(ROOT)) for page in list_pages()}
    assert sorted(re.findall(r"\S+\.md", menu)) == sorted(
        files | {f"python/{package}.md" for package in PACKAGES}
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_each_public_name_is_on_its_page(package: str, pages: dict[str, str]) -> None:
    names = public_names(package)
    assert len(names) > 5
    assert {name for name in names if not re.search(rf"(heading: |`){name}\b", pages[package])} == set()


def test_a_name_is_documented_once_and_linked_elsewhere(pages: dict[str, str]) -> None:
    documented = re.findall(r"^::: (\S+)", "\n".join(pages.values()), re.MULTILINE)
    assert len(documented) == len(set(documented))
    assert "- [`JobContext`][fray.job.context.JobContext] in `fray.job`" in pages["fray"]


def test_files_that_pages_link_to_are_part_of_the_site() -> None:
    files = {*list_files()}
    crd, picture = ROOT / "crds" / "frayjobs.fray.dev.yaml", ROOT / "docs" / "pictures" / "pool-timeline.svg"
    assert {crd, picture} <= files
    links = [
        (page, (page.parent / link.partition("#")[0]).resolve())
        for page in list_pages()
        for link in find_links(page.read_text(encoding="utf-8"))
        if not link.startswith("#")
    ]
    assert len(links) > 100
    assert [(page.name, target) for page, target in links if target not in files] == []


def test_modules_of_earlier_apis_change_nothing(pages: dict[str, str]) -> None:
    importlib.import_module("fray.current_client")
    assert render_python_pages() == pages
