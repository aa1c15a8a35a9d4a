"""Without git, .gitignore files mean what git says they mean; git itself is the judge here."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from fray.cluster.workspace.ignored import IgnoreRules, is_leftover

PATHS = [
    *("a", "b.txt", "b", "build", "#x", "!y", "t ", "x]", "[z", "data.csv", "a b", "q?", "ä"),
    *("src/a", "src/b.txt", "src/build/out.o", "src/deep/er/a", "build/a", "build/keep/me", "docs/build"),
    *("x/y/z", "x/z", "x/y/y/z", "a-1", "a-9", "a^", "foo.d/bar", "foo"),
]
PATTERNS = [
    *(
        "a",
        "/a",
        "*.txt",
        "!b.txt",
        "build/",
        "/build",
        "build",
        "src/build",
        "**/build",
        "build/**",
        "x/**/z",
    ),
    *(
        "\\#x",
        "\\!y",
        "t\\ ",
        "t ",
        "# a",
        "",
        "/",
        "!",
        "a-[0-5]",
        "a-[!0-5]",
        "[",
        "[]x",
        "[]]",
        "x[]]",
        "\\[z",
    ),
    *(
        "*",
        "*/",
        "!src/",
        "!src",
        "src/*",
        "!src/a",
        "q\\?",
        "?",
        "a b",
        "[^b]",
        "a[\\^]",
        "foo.*",
        "***.csv",
    ),
    *(
        "docs/*",
        "**",
        "**/er/**",
        "x/y/**",
        "deep/er",
        "*/er",
        "ä",
        "x**z",
        "a\\",
        "data.[a-c]sv",
        "[[:alpha:]]",
    ),
]


def judge(path: str, rules: IgnoreRules) -> bool:
    """As a walk does: what lies in an ignored folder is ignored whatever is said of it."""
    parts = path.split("/")
    folders = ("/".join(parts[:end]) for end in range(1, len(parts)))
    return any(rules.judge(folder, folder=True) for folder in folders) or bool(
        rules.judge(path, folder=False)
    )


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for path in PATHS:
        if not any(other.startswith(f"{path}/") for other in PATHS):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).touch()
    return root


def shown(root: Path, text: str) -> set[str]:
    """What git would take of the repository's files."""
    (root / ".gitignore").write_text(text, encoding="utf-8")
    command = ["git", "-C", str(root), "ls-files", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, check=True, capture_output=True).stdout.decode()
    return set(listed.split("\0")) - {""}


@pytest.mark.parametrize("seed", range(60))
def test_files_are_ignored_as_git_ignores_them(repository: Path, seed: int) -> None:
    chance = random.Random(seed)
    lines = chance.sample(PATTERNS, k=chance.randint(1, 6))
    text = "".join(f"{line}\n" for line in lines)
    files = {str(path.relative_to(repository)) for path in repository.rglob("*") if path.is_file()}
    files = {path for path in files if not path.startswith(".git/")} | {".gitignore"}
    rules = IgnoreRules.parse(text)
    assert {path for path in files if not judge(path, rules)} == shown(repository, text), lines


@pytest.mark.parametrize("line", sorted(PATTERNS))
def test_each_pattern_alone_means_what_git_means(repository: Path, line: str) -> None:
    files = {str(path.relative_to(repository)) for path in repository.rglob("*") if path.is_file()}
    files = {path for path in files if not path.startswith(".git/")} | {".gitignore"}
    rules = IgnoreRules.parse(f"{line}\n")
    assert {path for path in files if not judge(path, rules)} == shown(repository, f"{line}\n")


def test_what_tools_leave_behind_is_known_by_its_name() -> None:
    assert all(map(is_leftover, ["__pycache__", ".git", "x.pyc", "fray.egg-info", ".venv", "node_modules"]))
    assert not any(map(is_leftover, ["git", "build", "data", ".gitignore", ".env", "x.py"]))
