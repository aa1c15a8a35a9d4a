"""`fray exec` and `fray shell`: this process's streams and terminal as those of a command elsewhere."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from fray.cli.host_command import SHELL, ThisTerminal, open_shell, run_in_host
from fray.cli.streams import OutputStream
from fray.cluster.base import Cluster
from fray.cluster.command_streams import CommandStreams
from fray.errors import InvalidRequestError, JobNotFoundError

Play = Callable[[CommandStreams], int]


class Hosts:
    """A cluster whose hosts play one command."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self.asked: list[tuple[str, Sequence[str], int]] = []

    def run_command(self, job_id: str, command: Sequence[str], *, rank: int, streams: CommandStreams) -> int:
        self.asked.append((job_id, tuple(command), rank))
        return self._play(streams)


def as_cluster(hosts: Hosts) -> Cluster:
    return cast("Cluster", hosts)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[int]]:
    """Descriptors of standard input, output and error."""
    paths = [tmp_path / name for name in ("stdin", "stdout", "stderr")]
    paths[0].write_bytes(b"input \xff\n")
    opened = [os.open(path, os.O_RDWR | os.O_CREAT) for path in paths]
    yield opened
    for descriptor in opened:
        os.close(descriptor)


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """The two ends of a terminal of 80 x 24: that of its user, and that of a program."""
    ours, theirs = pty.openpty()
    resize(theirs, 80, 24)
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def resize(descriptor: int, columns: int, lines: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def streams_of(stdin: int, output: int, notes: int) -> ThisTerminal:
    return ThisTerminal(stdin, OutputStream(output, environ={}), OutputStream(notes, environ={}))


def test_bytes_go_through_as_they_are_and_the_code_comes_back(files: list[int], tmp_path: Path) -> None:
    def play(streams: CommandStreams) -> int:
        assert not streams.is_terminal
        read = [streams.read(), streams.read()]
        streams.write(read[0] + b"\x00")
        streams.write_error(b"\xfe")
        return len(read[1]) + 5

    hosts = Hosts(play)
    assert run_in_host("train", ["cat", "-"], 3, cluster=as_cluster(hosts), streams=streams_of(*files)) == 5
    assert hosts.asked == [("train", ("cat", "-"), 3)]
    assert (tmp_path / "stdout").read_bytes() == b"input \xff\n\x00"
    assert (tmp_path / "stderr").read_bytes() == b"\xfe"


def test_a_shell_has_a_raw_terminal_that_is_as_before_afterwards(
    terminal: tuple[int, int], files: list[int]
) -> None:
    ours, theirs = terminal
    before, handler = termios.tcgetattr(theirs), signal.getsignal(signal.SIGWINCH)
    sizes: list[tuple[int, int]] = []

    def play(streams: CommandStreams) -> int:
        assert streams.is_terminal
        os.write(ours, b"\x03")  # Ctrl-C is a key
        assert streams.read() == b"\x03"
        streams.watch_size(lambda columns, lines: sizes.append((columns, lines)))
        resize(theirs, 120, 40)
        os.kill(os.getpid(), signal.SIGWINCH)
        return 7

    hosts = Hosts(play)
    code = open_shell("train", 0, cluster=as_cluster(hosts), streams=streams_of(theirs, *files[1:]))
    assert code == 7
    assert hosts.asked == [("train", SHELL, 0)]
    assert sizes == [(80, 24), (120, 40)]
    assert termios.tcgetattr(theirs) == before
    assert signal.getsignal(signal.SIGWINCH) is handler


def test_an_error_leaves_the_terminal_as_it_was(terminal: tuple[int, int], files: list[int]) -> None:
    _, theirs = terminal
    before = termios.tcgetattr(theirs)

    def play(_: CommandStreams) -> int:
        raise JobNotFoundError("train", "namespace ml")

    with pytest.raises(JobNotFoundError):
        open_shell("train", 0, cluster=as_cluster(Hosts(play)), streams=streams_of(theirs, *files[1:]))
    assert termios.tcgetattr(theirs) == before


def test_a_shell_needs_a_terminal(files: list[int]) -> None:
    def never(_: CommandStreams) -> int:
        raise AssertionError

    with pytest.raises(InvalidRequestError, match="fray exec train --"):
        open_shell("train", 0, cluster=as_cluster(Hosts(never)), streams=streams_of(*files))


def test_a_shell_is_given_what_was_typed_before_it_was_there(
    terminal: tuple[int, int], files: list[int]
) -> None:
    ours, theirs = terminal
    os.write(ours, b"exit 3\n")
    hosts = Hosts(lambda streams: int(streams.read().split()[1]))
    os.set_blocking(theirs, False)  # to wait for what was thrown away would be a hang
    assert open_shell("train", 0, cluster=as_cluster(hosts), streams=streams_of(theirs, *files[1:])) == 3
