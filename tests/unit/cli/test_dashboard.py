"""`fray dashboard`: where it is, what it asks for, and why it can't be reached."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest

from fray.cli.streams import OutputStream
from fray.cli.top import show_dashboard
from fray.cluster.answers import Dashboard
from fray.cluster.base import Cluster
from fray.types import JobId


class Jobs:
    """What `fray dashboard` asks a cluster: a dashboard whose connections fail one after another."""

    def __init__(self, *problems: Exception | None) -> None:
        self.problems = list(problems)
        self.closed = False

    def open_dashboard(self, job_id: JobId) -> Dashboard:
        assert job_id == "words"
        return Dashboard("http://127.0.0.1:4", "It asks for more", lambda: self.problems.pop(0), self.close)

    def close(self) -> None:
        self.closed = True

    def pause(self, _: float) -> None:
        """End as Ctrl-C does, once all that failed was looked at."""
        if not self.problems:
            raise KeyboardInterrupt


def test_it_is_there_until_ctrl_c_and_each_problem_is_told_once(tmp_path: Path) -> None:
    refused, lost = OSError("refused"), OSError("lost")
    jobs = Jobs(None, refused, refused, None, lost)
    places = [os.open(tmp_path / name, os.O_CREAT | os.O_WRONLY) for name in ("output", "notes")]
    output, notes = (OutputStream(place, environ={}) for place in places)
    cluster = cast("Cluster", jobs)
    with pytest.raises(KeyboardInterrupt):
        show_dashboard(JobId("words"), cluster=cluster, output=output, notes=notes, sleep=jobs.pause)
    for place in places:
        os.close(place)
    assert (tmp_path / "output").read_text() == "http://127.0.0.1:4\n"
    assert (tmp_path / "notes").read_text() == "It asks for more\nrefused\nlost\n"
    assert jobs.closed
