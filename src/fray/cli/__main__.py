"""The entry of the command `fray`: runs it and turns every ending into an exit code."""

from __future__ import annotations

import gc
import os
import sys

from fray.cli.streams import OutputStream, open_missing_descriptors
from fray.errors import FrayError, JobError, RequestError, WaitTimeoutError
from fray.vocabulary import EXIT_BROKEN_PIPE, EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_TIMEOUT, EXIT_USAGE

__all__ = ["derive_error_exit_code", "main"]

COLLECTED_OBJECTS = 200_000
"""New objects between two collections of garbage. Those that modules make stay, and are fewer in a short
command: with Python's own 700 a tenth of it went by in looking at them again and again."""


def main() -> None:
    """Run the command line of this process and end the process."""
    open_missing_descriptors()
    gc.set_threshold(COLLECTED_OBJECTS)
    code = _run()
    # Not sys.exit: a thread may still be blocked in a write that nobody will ever read.
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except BrokenPipeError:
            code = code or EXIT_BROKEN_PIPE
        except OSError:
            code = code or EXIT_FAILURE
    os._exit(code)


def _run() -> int:
    try:
        # Takes most of the time of a short command, and may be interrupted as the rest of it.
        from fray.cli.app import app  # noqa: PLC0415

        # The name by which shells ask for completions, however the command was started.
        app(prog_name="fray")
    except SystemExit as end:
        # Typer catches it and ends with 1.
        if isinstance(end.__context__, BrokenPipeError):
            return EXIT_BROKEN_PIPE
        return end.code if isinstance(end.code, int) else EXIT_FAILURE
    except FrayError as error:
        return _tell(error)
    except BrokenPipeError:
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


def _tell(error: FrayError) -> int:
    notes = OutputStream(2, environ={}, encoding=getattr(sys.stderr, "encoding", "utf-8"))
    try:
        notes.write(f"error: {error}\n")
    except BrokenPipeError:
        return EXIT_BROKEN_PIPE
    except OSError:
        return EXIT_FAILURE
    return derive_error_exit_code(error)


def derive_error_exit_code(error: FrayError) -> int:
    """Return the exit code for an error that ended the command: 2 where the request must be changed.

    124 where jobs were not waited for to their end.
    """
    if isinstance(error, JobError):
        return error.exit_code
    if isinstance(error, WaitTimeoutError):
        return EXIT_TIMEOUT
    return EXIT_USAGE if isinstance(error, RequestError) else EXIT_FAILURE


if __name__ == "__main__":
    main()
