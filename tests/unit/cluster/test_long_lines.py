"""Lines without an end come in parts: the same ones, in whatever pieces they were read."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fray.cluster.arguments import LogChoice
from fray.cluster.kubernetes.log_cursor import split_timed_line
from fray.cluster.local import log_lines
from fray.cluster.local.log_lines import LineReader
from fray.cluster.local.output import AttemptOutput, HostOutput
from fray.cluster.local.store import JobFolder
from fray.cluster.long_lines import LONGEST_LINE, split_long_line
from fray.types import JobId
from fray.wire.frayjob import FrayJob
from tests.unit.cluster.local_jobs import frayjob

STAMP = b"2026-01-31T12:00:00.000000001Z "


@given(st.binary(max_size=80), st.integers(4, 20))
def test_nothing_is_lost_or_empty_and_no_part_is_too_long(line: bytes, longest: int) -> None:
    parts = split_long_line(line, longest=longest)
    assert b"".join(parts) == line
    assert all(0 < len(part) <= longest for part in parts) or parts == [b""]


@given(st.text(max_size=40), st.integers(4, 20))
def test_no_character_is_cut(text: str, longest: int) -> None:
    line = text.encode(errors="replace")
    assert "".join(part.decode() for part in split_long_line(line, longest=longest)) == line.decode()


@given(st.binary(max_size=200).filter(lambda line: b"\n" not in line), st.lists(st.integers(1, 60)))
def test_the_parts_are_those_of_the_line_in_whatever_pieces_it_comes(line: bytes, sizes: list[int]) -> None:
    found: list[bytes] = []
    rest, left = b"", STAMP + line
    for size in [*sizes, len(left)]:
        piece, left = left[:size], left[size:]
        *parts, rest = split_timed_line(rest + piece, longest=40)
        found += parts
    assert [*found, rest] == split_timed_line(STAMP + line, longest=40)
    assert all(part.startswith(STAMP) for part in [*found, rest])


class Watch:
    def __init__(self, job: FrayJob) -> None:
        self._job = job

    def look(self) -> tuple[FrayJob, bool]:
        return self._job, True

    def pause(self, seconds: float | None = None) -> None: ...


def test_a_local_line_without_an_end_comes_in_parts(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    output = AttemptOutput(folder.attempt_logs(1))
    host = output.open_host(0, 0)
    line = b"x" * (2 * LONGEST_LINE + 100)
    for begin in range(0, len(line), 1000):
        host.write(line[begin : begin + 1000])
    host.write(b"\nlast")
    host.close()
    output.close()
    job = frayjob()
    job = job.model_copy(update={"status": job.status.model_copy(update={"attempt": 1})})
    lines = list(LineReader(JobId("job"), folder).read(Watch(job)))
    assert [len(each.text) for each in lines] == [LONGEST_LINE, LONGEST_LINE, 100, 4]


class BusyWatch:
    """A job that prints over its line 100 times a second, for a minute of a clock of its own."""

    def __init__(self, job: FrayJob, host: HostOutput) -> None:
        self._job, self._host = job, host
        self.now = 0.0

    def look(self) -> tuple[FrayJob, bool]:
        return self._job, self.now > 60

    def pause(self, seconds: float | None = None) -> None:
        del seconds
        self.now += 0.01
        self._host.write(b"\r%.2f" % self.now)


def test_states_of_a_local_line_come_at_most_twice_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = JobFolder(tmp_path)
    output = AttemptOutput(folder.attempt_logs(1))
    job = frayjob()
    job = job.model_copy(update={"status": job.status.model_copy(update={"attempt": 1})})
    watch = BusyWatch(job, output.open_host(0, 0))
    monkeypatch.setattr(log_lines.time, "monotonic", lambda: watch.now)
    reader = LineReader(JobId("job"), folder, LogChoice(follow=True, unfinished=True))
    times = [watch.now for line in reader.read(watch) if line.unfinished]
    output.close()
    assert len(times) > 100
    assert min(later - earlier for earlier, later in pairwise(times)) > 0.499
