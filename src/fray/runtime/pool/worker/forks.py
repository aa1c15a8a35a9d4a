"""Children that the code of tasks forks: they end where that code does; what follows is the worker's own."""

from __future__ import annotations

import os
import sys
import traceback
from types import TracebackType

from fray.runtime.pool.worker.standard_output import flush_output

__all__ = ["ForkGuard"]


class ForkGuard:
    """Ends a child that code within its block forks, at the end of the block: as Python ends after such code.

    It is for the process that makes it, and for any number of blocks at once.
    """

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process = os.getpid()

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        if os.getpid() != self._process:
            _end(error)


def _end(error: BaseException | None) -> None:
    code: object = 0
    if isinstance(error, SystemExit):
        code = error.code or 0
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    if not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    flush_output()
    os._exit(code & 0xFF)
