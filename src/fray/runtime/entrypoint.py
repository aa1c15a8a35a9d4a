"""Runs the pickled callable of a job: the command of pods whose entrypoint is a callable.

The payload is a mounted Secret whose keys `payload-000`, `payload-001`, ... are the parts of one
cloudpickle, in order. Nothing is unpickled before its digest is right, since unpickling runs code.
Standard library only (the payload itself may need cloudpickle). What the callable returns is not
reported from here.
"""

from __future__ import annotations

import argparse
import hashlib
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fray.errors import RequestError

__all__ = ["PayloadError", "load_callable", "main"]


@dataclass(eq=False)
class PayloadError(RequestError):
    """A payload that must not or can't be unpickled here."""

    problem: str
    advice: str

    @property
    def message(self) -> str:
        """What is wrong with the payload."""
        return self.problem

    @property
    def next_step(self) -> str:
        """What to change."""
        return self.advice


def load_callable(directory: Path, *, sha256: str, python: str) -> Callable[[], Any]:
    """Return the callable stored in `directory`.

    `sha256` is the digest of all parts together; `python` the minor version that pickled them, such as
    `3.11`.

    Raises `PayloadError` for another Python, a wrong digest, or a module that the image lacks.
    """
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if here != python:
        raise PayloadError(
            f"the callable was pickled by Python {python}, but this image has Python {here}",
            f"Use an image with Python {python}, or launch the job from Python {here}.",
        )
    parts = sorted(directory.glob("payload-*"))
    if not parts:
        raise PayloadError(
            f"{directory} holds no payload", "Check that the Secret of spec.entrypoint.callable exists."
        )
    payload = b"".join(part.read_bytes() for part in parts)
    found = hashlib.sha256(payload).hexdigest()
    if found != sha256:
        raise PayloadError(
            f"the payload's digest is {found}, not {sha256}: it was changed or cut",
            "Launch the job again; if this repeats, somebody else writes to its Secret.",
        )
    try:
        loaded = pickle.loads(payload)
    except ModuleNotFoundError as missing:
        raise PayloadError(
            f"the callable needs module {missing.name!r}, which this image lacks",
            "Add it to the image, or define what the callable uses in the launching script itself.",
        ) from missing
    if not callable(loaded):
        raise PayloadError(
            f"the payload is a {type(loaded).__name__}, not a callable", "Launch the job again."
        )
    function: Callable[[], Any] = loaded
    return function


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the callable; return the process's exit code: 0, or 2 when it could not be loaded.

    An exception of the callable itself passes through, so that the traceback is the user's.
    """
    parser = argparse.ArgumentParser(prog="fray.runtime.entrypoint", description="Run a job's callable.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--sha256", required=True)
    parser.add_argument("--python", required=True)
    options = parser.parse_args(arguments)
    try:
        function = load_callable(options.directory, sha256=options.sha256, python=options.python)
    except PayloadError as error:
        sys.stderr.write(f"fray: {error}\n")
        return 2
    function()
    return 0


if __name__ == "__main__":
    sys.exit(main())
