"""Checkpoints that survive a process dying at any moment. NumPy only: no JAX.

A checkpoint gets its name in one step, after all its bytes are on the disk, so nobody sees half of one
under that name. The name ends in a digest of the bytes: should the disk damage one nevertheless,
`load_newest` notices and takes the one before. Only one process may write to a folder: rank 0.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Checkpoint", "clear", "load_newest", "save"]

KEPT = 2
"""Checkpoints that stay: the newest, and the one before in case the newest can't be read."""

Arrays = Mapping[str, npt.NDArray[Any]]

_NAME = re.compile(r"epoch-[0-9]{6,}-[0-9a-f]{16}\.npz")
_UNFINISHED = "unfinished.tmp"
_LOSSES = "losses"


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after `epoch` (from 1) epochs: its named arrays and each epoch's loss.

    No array may be called `losses`.
    """

    epoch: int
    losses: tuple[float, ...]
    arrays: Arrays


def save(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write `checkpoint` into `folder` (made if missing), whole or not at all, and drop those it supersedes.

    Raises:
        OSError: the disk is full or the folder can't be written; earlier checkpoints stay.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    np.savez(content, **checkpoint.arrays, **{_LOSSES: np.array(checkpoint.losses)})
    path = folder / f"epoch-{checkpoint.epoch:06}-{_digest(content.getvalue())}.npz"
    unfinished = folder / _UNFINISHED
    try:
        with unfinished.open("wb") as file:
            file.write(content.getvalue())
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    _sync_names(folder)  # the new name must be on the disk before older checkpoints go
    existing = _newest_first(folder)
    older = [other for other in existing if _epoch(other) < checkpoint.epoch]
    for other in existing:
        # What is as new or newer was passed over when this run began: it is damaged or of another model.
        if other != path and other not in older[: KEPT - 1]:
            other.unlink(missing_ok=True)
    return path


def load_newest(folder: Path, *, like: Arrays, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint in `folder` that is whole; None if there is none.

    `like` holds arrays of the wanted names, shapes and types. A checkpoint that is damaged, or doesn't
    hold exactly such arrays, is told to `warn` and skipped.

    Raises:
        OSError: the folder or a file in it can't be read at all (permissions, input/output errors).
    """
    for path in _newest_first(folder):
        content = path.read_bytes()
        if not path.name.endswith(f"-{_digest(content)}.npz"):
            warn(f"skipping checkpoint {path}: it is damaged")
            continue
        # Pickle stays off: a checkpoint is data and never runs code.
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        losses = tuple(arrays.pop(_LOSSES).tolist())
        if _kinds(arrays) == _kinds(like):
            return Checkpoint(epoch=_epoch(path), losses=losses, arrays=arrays)
        warn(f"skipping checkpoint {path}: it is of another model")
    return None


def clear(folder: Path) -> None:
    """Remove every checkpoint in `folder`, and what a killed writer left; anything else stays."""
    for path in [*_newest_first(folder), folder / _UNFINISHED]:
        path.unlink(missing_ok=True)


def _newest_first(folder: Path) -> list[Path]:
    try:
        paths = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    except FileNotFoundError:
        return []
    return sorted(paths, key=_epoch, reverse=True)


def _epoch(path: Path) -> int:
    return int(path.name.split("-")[1])


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _kinds(arrays: Arrays) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    return {name: (array.shape, array.dtype) for name, array in arrays.items()}


def _sync_names(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
