"""What a store's directory doesn't allow: the processes of a host warn once together, until it is over."""

from __future__ import annotations

import contextlib
import errno
import logging
import os

from fray.errors import StoreDirectoryError

__all__ = ["NO_ROOM", "allow_warning", "forget_warnings", "share_warnings", "warn_once"]

NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))

_log = logging.getLogger(__name__)
_known: set[tuple[str, int]] = set()
"""Directories with the numbers of errors that this process has met there."""
_notes: dict[str, str] = {}
"""Directories -> how the files begin that say what a process has warned about."""


def share_warnings(folder: str, place: str) -> None:
    """Let a warning about a directory count for all processes that note theirs in the same place."""
    _notes[folder] = f"{place}/warned-"


def forget_warnings(folder: str) -> None:
    """Forget a directory that has no further use."""
    _notes.pop(folder, None)
    _known.difference_update([each for each in tuple(_known) if each[0] == folder])


def warn_once(folder: str, error: BaseException, consequence: str) -> None:
    """Warn what it means that something can't be done in a directory, unless that is known."""
    number = getattr(error, "errno", None) or 0
    if (folder, number) in _known:
        return
    _known.add((folder, number))
    if _is_first(folder, number):
        _log.warning("%s", StoreDirectoryError(folder, f"{consequence}: {error}"))


def allow_warning(path: str, *, written: bool = False) -> None:
    """Note that a file could be removed, or `written`: a failure in its directory is warned about anew.

    One that was removed says nothing of room: there may be none again at once.
    """
    if not _known:
        return
    folder = os.path.dirname(path)  # noqa: PTH120 - as below
    for each in [each for each in tuple(_known) if each[0] == folder and (written or each[1] not in NO_ROOM)]:
        _known.discard(each)
        if folder in _notes:
            with contextlib.suppress(OSError):
                os.unlink(f"{_notes[folder]}{each[1]}")  # noqa: PTH108 - beside the store's own


def _is_first(folder: str, number: int) -> bool:
    if folder not in _notes:
        return True
    try:
        os.close(
            os.open(f"{_notes[folder]}{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        )
    except (FileExistsError, FileNotFoundError):  # or the store is gone: who removed it has warned
        return False
    except OSError:  # there can't be a note: a warning too many is better than none
        return True
    return True
