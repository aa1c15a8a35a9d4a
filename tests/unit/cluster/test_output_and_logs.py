"""What hosts print is kept byte by byte, and comes back in the order in which it came."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fray.cluster.local.logs import AttemptLogReader, LogPiece, Place
from fray.cluster.local.output import AttemptOutput, host_log_name
from fray.errors import StateDirectoryError

CHUNKS = st.lists(st.tuples(st.integers(0, 2), st.binary(min_size=1, max_size=30)), max_size=40)


def write(folder: Path, chunks: list[tuple[int, bytes]], *, close: bool = True) -> None:
    output = AttemptOutput(folder)
    hosts = [output.open_host(0, host) for host in range(3)]
    for host, data in chunks:
        hosts[host].write(data)
    if close:
        for opened in hosts:
            opened.close()
        output.close()


def read(folder: Path, **options: object) -> list[tuple[Place, bytes]]:
    reader = AttemptLogReader(folder, **options)  # type: ignore[arg-type]
    try:
        return joined(list(reader.read()))
    finally:
        reader.close()


def joined(pieces: list[LogPiece]) -> list[tuple[Place, bytes]]:
    """Return pieces with those of the same run of lines put together."""
    result: list[tuple[Place, bytes]] = []
    within = False
    for piece in pieces:
        if within:
            result[-1] = (piece.place, result[-1][1] + piece.data)
        else:
            result.append((piece.place, piece.data))
        within = not piece.ends
    return result


def test_lines_of_several_hosts_come_back_in_order(tmp_path: Path) -> None:
    write(tmp_path, [(0, b"one\n"), (1, b"two\n"), (0, b"three\nfour\n")])
    assert read(tmp_path) == [((0, 0), b"one\n"), ((0, 1), b"two\n"), ((0, 0), b"three\nfour\n")]


def test_a_line_that_comes_in_parts_is_placed_where_it_ended(tmp_path: Path) -> None:
    write(tmp_path, [(0, b"slow "), (1, b"quick\n"), (0, b"line\nnext")])
    assert read(tmp_path) == [((0, 1), b"quick\n"), ((0, 0), b"slow line\n"), ((0, 0), b"next")]


@settings(max_examples=60)
@given(chunks=CHUNKS)
def test_whatever_is_written_comes_back_whole_for_each_host(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[tuple[int, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    write(folder, chunks)
    written: dict[int, bytes] = defaultdict(bytes)
    for host, data in chunks:
        written[host] += data
    written = defaultdict(bytes, {host: last_states(data) for host, data in written.items()})
    written = defaultdict(bytes, {host: data for host, data in written.items() if data})
    found: dict[int, bytes] = defaultdict(bytes)
    for (_, host), data in read(folder):
        found[host] += data
    assert found == written
    for host, data in written.items():
        assert (folder / host_log_name(0, host)).read_bytes() == data


def last_states(data: bytes) -> bytes:
    """Return output as a terminal shows it in the end, line by line."""
    return b"\n".join(line.rstrip(b"\r").rpartition(b"\r")[2] for line in data.split(b"\n"))


@settings(max_examples=200)
@given(chunks=st.lists(st.text("ab\r\n", min_size=1, max_size=6), max_size=12))
def test_of_a_progress_bar_the_last_state_is_kept(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    output = AttemptOutput(folder)
    host = output.open_host(0, 0)
    written = b""
    for chunk in chunks:
        host.write(chunk.encode())
        written += chunk.encode()
        assert (folder / host_log_name(0, 0)).read_bytes() == last_states(written)
    host.close()
    output.close()
    assert b"".join(data for _, data in read(folder)) == last_states("".join(chunks).encode())


@settings(max_examples=60)
@given(chunks=CHUNKS, lines=st.integers(0, 12))
def test_a_tail_is_the_end_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[tuple[int, bytes]], lines: int
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    write(folder, chunks)
    every = [line for _, data in read(folder) for line in data.splitlines(keepends=True) if line]
    every = [part + b"\n" for _, data in read(folder) for part in data.removesuffix(b"\n").split(b"\n")]
    reader = AttemptLogReader(folder)
    tail = joined(list(reader.skip_to_tail(lines)))
    assert list(reader.read()) == [], "what the tail showed isn't shown again"
    reader.close()
    shown = [part + b"\n" for _, data in tail for part in data.removesuffix(b"\n").split(b"\n")]
    assert shown == (every[-lines:] if lines else [])


def test_a_reader_gets_what_comes_after_its_last_look(tmp_path: Path) -> None:
    output = AttemptOutput(tmp_path)
    host = output.open_host(0, 0)
    reader = AttemptLogReader(tmp_path)
    assert list(reader.read()) == []
    host.write(b"one\ntw")
    assert [piece.data for piece in reader.read()] == [b"one\n"]
    host.write(b"o\n")
    assert [piece.data for piece in reader.read()] == [b"two\n"]
    host.close()
    output.close()
    reader.close()


def test_a_reader_that_came_before_the_first_output_waits_for_it(tmp_path: Path) -> None:
    reader = AttemptLogReader(tmp_path / "attempt-1")
    assert list(reader.read()) == []
    write(tmp_path / "attempt-1", [(0, b"one\n")])
    assert [piece.data for piece in reader.read()] == [b"one\n"]
    reader.close()


def test_only_the_wanted_hosts_are_read(tmp_path: Path) -> None:
    write(tmp_path, [(0, b"a\n"), (1, b"b\n"), (0, b"c\n"), (2, b"d\n")])
    assert read(tmp_path, wanted=lambda place: place[1] == 1) == [((0, 1), b"b\n")]


def test_a_very_long_line_is_read_in_pieces_that_say_so(tmp_path: Path) -> None:
    line = b"x" * 700_000 + b"\n"
    write(tmp_path, [(0, line[:300_000]), (0, line[300_000:])])
    reader = AttemptLogReader(tmp_path)
    pieces = list(reader.read())
    reader.close()
    assert len(pieces) > 1
    assert [piece.ends for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert b"".join(piece.data for piece in pieces) == line


def test_what_a_killed_runner_left_without_order_is_the_rest(tmp_path: Path) -> None:
    write(tmp_path, [(0, b"one\nhalf"), (1, b"other half")], close=False)
    reader = AttemptLogReader(tmp_path)
    assert [piece.data for piece in reader.read()] == [b"one\n"]
    assert [(piece.place, piece.data) for piece in reader.read_rest()] == [
        ((0, 0), b"half"),
        ((0, 1), b"other half"),
    ]
    reader.close()


def test_the_tail_of_a_host_is_its_last_lines_as_text(tmp_path: Path) -> None:
    output = AttemptOutput(tmp_path)
    host = output.open_host(0, 0)
    host.write(b"".join(b"line %d\n" % number for number in range(5000)) + b"\n\xff last")
    assert host.tail(3) == ("line 4998", "line 4999", "\ufffd last")
    host.close()
    output.close()


def test_the_tail_of_a_host_has_the_last_state_of_its_progress_bar(tmp_path: Path) -> None:
    output = AttemptOutput(tmp_path)
    host = output.open_host(0, 0)
    host.write(b"loading\r\n" + b"".join(b"\r%d%%" % percent for percent in range(100)) + b"\nno memory\n")
    assert host.tail(3) == ("loading", "99%", "no memory")
    host.close()
    output.close()


def test_a_folder_that_cannot_be_made_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateDirectoryError, match="file"):
        AttemptOutput(tmp_path / "file" / "logs")


def test_a_full_disk_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / host_log_name(0, 0)).symlink_to("/dev/full")
    output = AttemptOutput(tmp_path)
    host = output.open_host(0, 0)
    with pytest.raises(StateDirectoryError, match="No space left"):
        host.write(b"too much\n")
    host.close()
    output.close()


def test_states_of_a_line_that_is_written_over_are_read_while_it_is(tmp_path: Path) -> None:
    output = AttemptOutput(tmp_path)
    host, reader = output.open_host(0, 0), AttemptLogReader(tmp_path)
    shown: list[bytes] = []
    for data in (b"one\n\r10%", b"\r20%", b"", b" of it", b"\r100%", b"\nslowly", b" growing", b"\rlast"):
        host.write(data)
        shown += [piece.data for piece in reader.read()]
        shown += [piece.data for piece in reader.read_states()]
    assert shown == [b"one\n", b"20%", b"100%", b"100%\n", b"last"]
    host.close()
    assert [piece.data for piece in reader.read()] == [b"last"]
    output.close()
    reader.close()
