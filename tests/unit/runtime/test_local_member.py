"""A member on this machine is started where no process runs it, and never twice."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from fray.kube.resources import FRAYACTORS, SECRETS
from fray.runtime import file_locks
from fray.runtime.actors import local_pod
from fray.runtime.actors.local_objects import FileApi
from tests.pool.hosts.pools import wait_until


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileApi:
    """The objects of one actor, whose process only tells that it has begun, and ends."""
    program = "import sys, pathlib; pathlib.Path(sys.argv[2], 'began').touch()"
    monkeypatch.setattr(local_pod, "PROGRAM", program)
    found = FileApi(tmp_path)
    payload = {"secretName": "payload", "sha256": "0", "python": "3"}
    actor = {
        "metadata": {"name": "counter"},
        "spec": {"name": "counter", "entrypoint": {"callable": payload}},
    }
    found.create(FRAYACTORS, actor)
    found.create(SECRETS, {"metadata": {"name": "payload"}, "data": {}})
    return found


def open_lock(api: FileApi) -> int:
    folder = api.directory / "pods" / "counter-0"
    folder.mkdir(parents=True)
    return os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)


def test_who_looks_whether_a_member_runs_keeps_nobody_from_starting_it(
    api: FileApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = open_lock(api)
    fcntl.flock(reader, fcntl.LOCK_SH)
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: os.close(reader))
    monkeypatch.setattr(file_locks, "time", clock)
    local_pod.start_members(api)
    wait_until((api.state / "began").exists)


def test_a_member_whose_lock_is_held_is_not_started(api: FileApi, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = open_lock(api)
    # Taken by another process after the look.
    monkeypatch.setattr(local_pod, "is_locked", lambda _: fcntl.flock(holder, fcntl.LOCK_EX))
    local_pod.start_members(api)
    assert not (api.directory / "pods" / "counter-0" / "log").exists()
    os.close(holder)
