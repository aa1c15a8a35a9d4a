"""`fray exec` and `fray shell`: a command beside a job's program, with this terminal as its own."""

from __future__ import annotations

import os
import signal
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from fray.cli.streams import OutputStream
from fray.cluster.base import Cluster
from fray.errors import InvalidRequestError
from fray.types import JobId

__all__ = ["SHELL", "ThisTerminal", "open_shell", "run_in_host"]

SHELL = ("sh", "-c", "command -v bash > /dev/null && exec bash; exec sh")
PIECE = 1 << 16
"""Bytes of standard input that are sent at once, at most."""


class ThisTerminal:
    """The standard streams of this process, as those of a command in a host."""

    def __init__(self, stdin: int, output: OutputStream, notes: OutputStream) -> None:
        self.is_terminal = False
        self._stdin, self._output, self._notes = stdin, output, notes
        self._notify: Callable[[int, int], object] | None = None

    def read(self) -> bytes:
        """Return the next piece of standard input."""
        return os.read(self._stdin, PIECE)

    def write(self, data: bytes) -> None:
        """Write to standard output."""
        self._output.write_bytes(data)

    def write_error(self, data: bytes) -> None:
        """Write to standard error."""
        self._notes.write_bytes(data)

    def watch_size(self, notify: Callable[[int, int], object]) -> None:
        """Call `notify` with the size, now and whenever `resized` is called."""
        self._notify = notify
        self.resized()

    def resized(self) -> None:
        """Note that the terminal has another size."""
        if self._notify is not None:
            size = os.get_terminal_size(self._stdin)
            self._notify(size.columns, size.lines)

    @contextmanager
    def raw(self, name: str) -> Iterator[None]:
        """Be a terminal of a job: hand every key over as it is, Ctrl-C too. For the main thread.

        Raises:
            InvalidRequestError: Standard input is no terminal.
        """
        if not os.isatty(self._stdin):
            remedy = f"Without one: `fray exec {name} -- sh -c '...'`."
            raise InvalidRequestError("fray shell", "needs a terminal, and standard input is none", remedy)

        def resize(_: int, __: FrameType | None) -> None:
            self.resized()

        before = termios.tcgetattr(self._stdin)
        handler = signal.signal(signal.SIGWINCH, resize)
        self.is_terminal = True
        try:
            # What was typed ahead stays: TCSAFLUSH would throw it away.
            tty.setraw(self._stdin, termios.TCSADRAIN)
            yield
        finally:
            termios.tcsetattr(self._stdin, termios.TCSADRAIN, before)
            signal.signal(signal.SIGWINCH, handler)
            self.is_terminal = False


def run_in_host(
    name: str, command: Sequence[str], rank: int, *, cluster: Cluster, streams: ThisTerminal
) -> int:
    """Run a command in a host of a job, and return its exit code; see `Cluster.run_command`."""
    return cluster.run_command(JobId(name), command, rank=rank, streams=streams)


def open_shell(name: str, rank: int, *, cluster: Cluster, streams: ThisTerminal) -> int:
    """Open a shell on this terminal in a host of a job, and return its exit code.

    Raises:
        InvalidRequestError: Standard input is no terminal.
    """
    with streams.raw(name):
        return run_in_host(name, SHELL, rank, cluster=cluster, streams=streams)
