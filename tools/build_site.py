"""Build the reference site in `.site/html` (`make docs`): the pages of this repository, and Python's names.

The site has the repository's own paths, so that links work as they do on GitHub, also those to files outside
docs/. MkDocs is strict: a link or an anchor that leads nowhere fails the build. Its packages are in an
environment of their own, and nothing of the project needs them.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.bootstrap import ROOT, run
from tools.doc_links import find_links, list_pages
from tools.python_pages import render_python_pages
from tools.side_environment import prepare

__all__ = ["list_files"]

SITE = ROOT / ".site"
PAGES = SITE / "pages"
LOCK = ROOT / "docs" / "requirements.lock"


def list_files() -> Iterator[Path]:
    """Yield all pages, and all files that they link to."""
    for page in list_pages():
        yield page
        for link in find_links(page.read_text(encoding="utf-8")):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.is_file() and target.suffix != ".md":
                yield target


def stage_pages() -> None:
    """Write what the site is made of."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for path in set(list_files()):
        target = PAGES / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    (PAGES / "python").mkdir()
    for package, page in render_python_pages().items():
        (PAGES / "python" / f"{package}.md").write_text(page, encoding="utf-8")


def main() -> None:
    """Install, stage and build."""
    environment = SITE / "env"
    prepare(environment, LOCK, "MkDocs (about 100 MB)")
    stage_pages()
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # the theme's advertisement of its successor
    run(environment / "bin" / "mkdocs", "build", "--strict", "--clean", env=quiet)
    sys.stdout.write(f"{(SITE / 'html' / 'index.html').relative_to(ROOT)}: the site begins here\n")


if __name__ == "__main__":
    main()
