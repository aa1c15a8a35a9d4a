"""Runs the callable of a job as if it were a script: the command of processes whose entrypoint is a callable.

    python -m fray.runtime.callable_runner PLACE --sha256 DIGEST --python 3.11

PLACE is the directory where the payload is mounted, or its staging URL. Standard library and cloudpickle
only. What a payload is stands in `fray.payload.callables`, how its end is reported in `outcome_report`.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import os
import signal
import sys
import traceback
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fray.errors import (
    FrayError,
    PayloadChangedError,
    PayloadCodeError,
    PayloadError,
    PayloadExitError,
    PayloadMissingError,
    PayloadPythonError,
    PayloadStorageError,
    PayloadUnreadableError,
)
from fray.payload.callables import Call, check_python, decode_callable
from fray.payload.chunks import join_parts
from fray.payload.staging import FsspecStorage
from fray.payload.values.classes import define_here
from fray.runtime.outcome_report import Reporter
from fray.runtime.termination_signal import exit_on_termination
from fray.vocabulary import (
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_PAYLOAD_CHANGED,
    EXIT_PAYLOAD_CODE,
    EXIT_PAYLOAD_MISSING,
    EXIT_PAYLOAD_PYTHON,
    EXIT_PAYLOAD_UNREADABLE,
    EXIT_SIGNAL_BASE,
    TERMINATION_LOG,
)

__all__ = ["become_main", "load_call", "main"]

EXIT_CODES: dict[type[FrayError], int] = {
    PayloadMissingError: EXIT_PAYLOAD_MISSING,
    PayloadStorageError: EXIT_PAYLOAD_MISSING,
    PayloadChangedError: EXIT_PAYLOAD_CHANGED,
    PayloadPythonError: EXIT_PAYLOAD_PYTHON,
    PayloadCodeError: EXIT_PAYLOAD_CODE,
    PayloadUnreadableError: EXIT_PAYLOAD_UNREADABLE,
    PayloadExitError: EXIT_PAYLOAD_UNREADABLE,
}
_WITH_TRACEBACK = (PayloadCodeError, PayloadExitError, PayloadUnreadableError)


@dataclass(frozen=True)
class _Options:
    place: str
    sha256: str
    python: str
    outcome: Path | None
    results: str | None
    termination_log: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the callable; return the process's exit code.

    0 when it returned, 1 when it raised, 130 when it was interrupted, 114 to 118 when it never ran.
    SystemExit passes through, as from any script.
    """
    options = _parse(arguments)
    sys.argv[1:] = []  # a callable that parses arguments must not find ours
    reporter = Reporter(options.outcome, options.termination_log, results=options.results)
    runner = os.getpid()
    with exit_on_termination() as termination:
        try:
            call = load_call(options.place, sha256=options.sha256, python=options.python)
        except (PayloadError, PayloadStorageError, SystemExit) as error:
            if os.getpid() != runner:
                raise error.__cause__ or error from None  # a fork of a module's own making
            termination.defer()
            if termination.received:
                # Whatever the modules under way made of it: the callable hasn't run, which 0 would say.
                exit_ = SystemExit(EXIT_SIGNAL_BASE + signal.SIGTERM)
                reporter.exited(exit_)
                raise exit_ from error
            return _refuse(error, reporter)
        become_main(call)
        try:
            value = call.function(*call.args, **call.kwargs)
            if inspect.iscoroutine(value):
                value = asyncio.run(value)
        except BaseException as error:
            if os.getpid() != runner:
                raise  # a fork of the callable's own making: its end isn't the job's
            termination.defer()
            # The frame above is ours.
            return _fail(
                error.with_traceback(error.__traceback__ and error.__traceback__.tb_next), call, reporter
            )
        if os.getpid() == runner:
            termination.defer()
            _flush()
            reporter.returned(value)
    return 0


def _parse(arguments: Sequence[str] | None) -> _Options:
    parser = argparse.ArgumentParser(prog="fray.runtime.callable_runner", description="Run a job's callable.")
    parser.add_argument("place", help="directory or fsspec URL of the payload")
    parser.add_argument("--sha256", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--outcome", type=Path, help="file for the outcome; else it goes to the API server")
    parser.add_argument("--results", help="fsspec URL for what a ConfigMap can't hold")
    parser.add_argument("--termination-log", type=Path, default=Path(TERMINATION_LOG))
    return _Options(**vars(parser.parse_args(arguments)))


def load_call(place: str, *, sha256: str, python: str) -> Call:
    """Return the call whose payload is at `place`. Raises `PayloadError` or `PayloadStorageError`."""
    check_python(python)
    staged = "://" in place
    data = FsspecStorage().read(place) if staged else join_parts(Path(place))
    return decode_callable(data, sha256=sha256)


def _refuse(error: PayloadError | PayloadStorageError | SystemExit, reporter: Reporter) -> int:
    if isinstance(error, SystemExit):  # of the package that reads the staging URL
        error = PayloadExitError(repr(error.code))
    if error.__cause__ is not None and isinstance(error, _WITH_TRACEBACK):
        # Where an import failed, or which object's own code did.
        traceback.print_exception(error.__cause__)
    sys.stderr.write(f"fray: {error}\n")
    _flush()
    reporter.never_ran(error)
    return EXIT_CODES[type(error)]


def become_main(call: Call) -> None:
    """Let `__main__` be the launching script, as far as it is here: pickle looks its classes up there.

    The classes that came with the call are this program's from here on.
    """
    main_module = types.ModuleType("__main__")
    vars(main_module).update(call.main)
    sys.modules["__main__"] = main_module
    define_here()


def _fail(error: BaseException, call: Call, reporter: Reporter) -> int:
    if isinstance(error, SystemExit):
        _flush()
        reporter.exited(error)
        raise error
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except Exception:  # noqa: BLE001 - the callable may have put its own there
        traceback.print_exc()
    _flush()
    reporter.raised(error, function=_name_of(call.function))
    return EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else EXIT_FAILURE


def _name_of(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _flush() -> None:
    """Show what was printed before the outcome travels."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # closed, or no stream at all; reported at the end
            continue


if __name__ == "__main__":
    sys.exit(main())
