"""Which files a workspace is: what git tracks or would, else all but leftovers and what .gitignore names.

Reads names only, and what they are of. What becomes of the files is `archive`.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from fray.cluster.workspace.ignored import IgnoreRules, is_leftover
from fray.errors import WorkspaceUnreadableError

__all__ = ["MOST_FILES", "WorkspaceFile", "find_files"]

MOST_FILES: Final = 50_000
"""Of a workspace: who has more has given a directory that isn't one, such as a home directory."""
GIT_SECONDS: Final = 120.0


@dataclass(frozen=True)
class WorkspaceFile:
    """A file or a symbolic link: its path in the workspace, with slashes, and what tells it from another."""

    path: str
    size: int
    is_link: bool
    is_executable: bool
    version: tuple[int, int, int]
    """Its times of change, and its number in the file system."""


def find_files(root: Path) -> tuple[WorkspaceFile, ...]:
    """Return the files and links of a workspace, sorted by path; no folders, sockets or devices.

    At most `MOST_FILES` and one more, by which the caller sees that there are too many.

    Raises:
        WorkspaceUnreadableError: a folder can't be read.
    """
    by_git = _find_by_git(root, depth=0)
    known = by_git.items() if by_git is not None else _look_at_all(root, _walk(root))
    files = (_describe(path, stats) for path, stats in known)
    found = islice((file for file in files if file is not None), MOST_FILES + 1)
    return tuple(sorted(found, key=lambda file: file.path))


def _describe(path: str, known: os.stat_result) -> WorkspaceFile | None:
    is_link = stat.S_ISLNK(known.st_mode)
    if not is_link and not stat.S_ISREG(known.st_mode):
        return None
    version = (known.st_mtime_ns, known.st_ctime_ns, known.st_ino)
    return WorkspaceFile(path, known.st_size, is_link, bool(known.st_mode & stat.S_IXUSR), version)


def _look_at_all(root: Path, paths: Iterable[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Give the paths that are there: git tracks some that were deleted, and others may write here too."""
    for path in paths:
        place = os.path.join(root, path)  # noqa: PTH118 - of thousands of files, at every launch
        try:
            yield path, os.lstat(place)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise WorkspaceUnreadableError(place, error.strerror or str(error)) from error


def _find_by_git(root: Path, *, depth: int) -> dict[str, os.stat_result] | None:
    """Return what git tracks in a folder, and what is new and not ignored; None where git doesn't know it.

    Git tells submodules and other repositories by the names of their folders: these are asked for theirs.
    """
    listed = _git(root, "ls-files", "-t", "--cached", "--others", "--exclude-standard", "-z")
    if listed is None:
        return None
    tagged = [(each[0], each[2:]) for each in listed]
    if all(tag == NEW for tag, _ in tagged) and _git(root, "check-ignore", "--quiet", ".") is not None:
        return None  # an ignored folder of a repository: git would say that it is empty
    paths = {path for tag, path in tagged if tag != NEW or not _is_left_over(path)}
    found: dict[str, os.stat_result] = {}
    for path, known in _look_at_all(root, sorted(paths)):
        if stat.S_ISDIR(known.st_mode):
            folder = path.rstrip("/")
            below = _find_below(root / folder, depth=depth + 1)
            found.update((f"{folder}/{each}", stats) for each, stats in below.items())
        else:
            found[path] = known
    return found


def _is_left_over(path: str) -> bool:
    return any(map(is_leftover, path.rstrip("/").split("/")))


def _find_below(folder: Path, *, depth: int) -> dict[str, os.stat_result]:
    """Return the files of a repository within one; a submodule that wasn't fetched has none."""
    if not (folder / ".git").exists() or depth > MOST_NESTED:
        return {}
    found = _find_by_git(folder, depth=depth)
    return found if found is not None else dict(_look_at_all(folder, _walk(folder)))


NEW: Final = "?"
"""Tag of `git ls-files -t` for what isn't tracked."""
MOST_NESTED: Final = 20


def _git(folder: Path, *arguments: str) -> list[str] | None:
    """Return the names that git prints, None where it fails: it isn't there, or it is no repository."""
    # Of a hook of git's, these name another repository.
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # noqa: TID251
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(
            command, env=own, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=GIT_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def _walk(root: Path) -> Iterator[str]:
    """Give the paths of a folder, without leftovers and what .gitignore files in it name."""
    yield from _walk_folder(root, "", ())


def _walk_folder(root: Path, folder: str, outer: Sequence[tuple[str, IgnoreRules]]) -> Iterator[str]:
    try:
        with os.scandir(root / folder) as entries:
            known = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        if folder and isinstance(error, FileNotFoundError):
            return  # others write here too
        raise WorkspaceUnreadableError(str(root / folder), error.strerror or str(error)) from error
    names = {entry.name for entry in known}
    if "pyvenv.cfg" in names and folder:
        return  # a virtual environment
    rules = [*outer]
    if ".gitignore" in names:
        rules.append((folder, _read_rules(root / folder / ".gitignore")))
    for entry in known:
        path = f"{folder}/{entry.name}" if folder else entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_leftover(entry.name) or _is_ignored(path, rules, folder=is_folder):
            continue
        if is_folder:
            yield from _walk_folder(root, path, rules)
        else:
            yield path


def _read_rules(path: Path) -> IgnoreRules:
    try:
        return IgnoreRules.parse(path.read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        return IgnoreRules.parse(
            ""
        )  # a folder of that name, or one that can't be read: git ignores it as well


def _is_ignored(path: str, rules: Sequence[tuple[str, IgnoreRules]], *, folder: bool) -> bool:
    for base, each in reversed(rules):
        judged = each.judge(path[len(base) + 1 :] if base else path, folder=folder)
        if judged is not None:
            return judged
    return False
