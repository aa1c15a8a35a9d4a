"""The archive of a workspace: the same files give the same bytes, at any time and in any directory.

A gzipped tar of files and links, sorted, with fixed times and owners; only another zlib packs it in other
bytes. Where it goes is for others to say.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fray.cluster.workspace.files import MOST_FILES, WorkspaceFile, find_files
from fray.errors import WorkspaceLinkError, WorkspaceTooLargeError, WorkspaceUnreadableError

__all__ = ["Archive", "Archiver", "WorkspaceLimits", "build_archive"]

MTIME: Final = 1_577_836_800
"""2020-01-01: zip files, and so wheels that are built of a workspace, know no times before 1980."""
SHOWN: Final = 5


@dataclass(frozen=True)
class WorkspaceLimits:
    """Largest archives, in bytes: in Secrets, and behind a staging URL (0 where there is none)."""

    secrets: int = 8 << 20
    """Eight Secrets of a MiB; etcd holds them until the job is deleted."""
    staging: int = 0

    @property
    def archive(self) -> int:
        """The largest archive."""
        return max(self.secrets, self.staging)

    @property
    def files(self) -> int:
        """The largest sum of files: seldom does an archive take less than a sixteenth of it."""
        return 16 * self.archive


@dataclass(frozen=True)
class Archive:
    """A workspace as bytes."""

    data: bytes = field(repr=False)
    sha256: str

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self.data)


class Archiver:
    """Makes archives, and remembers the last one: a program that launches many jobs reads its code once.

    May be used from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: tuple[Path, tuple[WorkspaceFile, ...], Archive] | None = None

    def archive(self, root: Path, limits: WorkspaceLimits) -> Archive | None:
        """Return the archive of a workspace's directory; None where there is nothing to archive.

        The root of the file system is nobody's code: it counts as empty.

        Raises:
            WorkspaceError: it is too large, can't be read, or a link leads out of it.
        """
        if root.resolve() == Path(root.anchor):
            return None
        files = find_files(root)
        _check_files(root, files, limits)
        with self._lock:
            known = self._last
        if known is not None and known[:2] == (root, files):
            made = known[2]
        else:
            made = build_archive(root, files)
            with self._lock:
                self._last = (root, files, made)
        if made.size > limits.archive:
            way = "a staging URL" if limits.staging >= limits.secrets else "Secrets"
            raise _too_large(root, files, made.size, limits.archive, f"{way}, packed")
        return made if files else None


def build_archive(root: Path, files: Sequence[WorkspaceFile]) -> Archive:
    """Return the archive of files below `root`, which are in order.

    Raises:
        WorkspaceLinkError: a link leads out of the workspace.
        WorkspaceUnreadableError: a file can't be read.
    """
    packed = io.BytesIO()
    with (
        # With its own name and time left out, and no other differences between versions of Python.
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=packed, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for file in files:
            member = tarfile.TarInfo(file.path)
            member.mtime = MTIME
            if file.is_link:
                member.type, member.mode = tarfile.SYMTYPE, 0o777
                member.linkname = _read_link(root, file.path)
                tar.addfile(member)
                continue
            try:
                content = (root / file.path).read_bytes()
            except OSError as error:
                raise WorkspaceUnreadableError(str(root / file.path), error.strerror or str(error)) from error
            member.mode = 0o755 if file.is_executable else 0o644
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    data = packed.getvalue()
    return Archive(data, hashlib.sha256(data).hexdigest())


def _read_link(root: Path, path: str) -> str:
    """Return where a link leads, relative to its folder. Raises `WorkspaceLinkError`."""
    try:
        target = os.readlink(root / path)  # noqa: PTH115 - as it is written, with its dots
        home, folder = root.resolve(), (root / path).parent.resolve()
    except OSError as error:
        raise WorkspaceUnreadableError(str(root / path), str(error)) from error
    place = Path(os.path.realpath(folder / target))  # also of links in a circle, which `resolve` refuses
    if not place.is_relative_to(home) or not folder.is_relative_to(home):
        raise WorkspaceLinkError(str(root), path, target)
    # An absolute one names this machine's folders.
    return os.path.relpath(place, folder) if target.startswith("/") else target


def _check_files(root: Path, files: Sequence[WorkspaceFile], limits: WorkspaceLimits) -> None:
    size = sum(file.size for file in files)
    if len(files) > MOST_FILES:
        raise _too_large(
            root, files, size, limits.files, f"a workspace, and it has over {MOST_FILES:,} files"
        )
    if size > limits.files:
        raise _too_large(root, files, size, limits.files, "the files of a workspace")


def _too_large(
    root: Path, files: Sequence[WorkspaceFile], size: int, limit: int, way: str
) -> WorkspaceTooLargeError:
    largest = sorted(files, key=lambda file: file.size, reverse=True)[:SHOWN]
    return WorkspaceTooLargeError(
        str(root), size, limit, tuple((file.path, file.size) for file in largest), way
    )
