"""What commands get from the process: its environment and its standard streams."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import BinaryIO

from fray.cli.streams import OutputStream

__all__ = ["environ", "notes", "output", "stdin"]


def environ() -> Mapping[str, str]:
    """Return the environment."""
    return os.environ  # noqa: TID251 - the entry of the process: read here and handed on


def stdin() -> BinaryIO:
    """Return standard input."""
    # Not sys.stdin, which is None where the caller closed it.
    return open(0, "rb", closefd=False)


def output() -> OutputStream:
    """Return standard output."""
    return OutputStream(1, environ=environ(), encoding=getattr(sys.stdout, "encoding", "utf-8"))


def notes() -> OutputStream:
    """Return standard error."""
    return OutputStream(2, environ=environ(), encoding=getattr(sys.stderr, "encoding", "utf-8"))
