"""A member on this machine is started where no process runs it, and never twice."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from fray.kube.errors import NotFoundError
from fray.kube.resources import CONFIG_MAPS, FRAYACTORS, SECRETS
from fray.runtime import file_locks
from fray.runtime.actors import local_pod
from fray.runtime.actors.local_objects import FileApi
from fray.vocabulary import FRAYACTOR_KIND
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


def test_an_actor_whose_creator_died_before_its_payload_is_deleted(
    api: FileApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.delete(SECRETS, "payload")
    local_pod.start_members(api)
    assert len(api.list_all(FRAYACTORS)) == 1
    monkeypatch.setattr(local_pod, "PAYLOAD_SECONDS", -1.0)
    local_pod.start_members(api)
    assert api.list_all(FRAYACTORS) == []


def test_a_member_of_an_actor_that_was_deleted_leaves_nothing_behind(api: FileApi) -> None:
    owner = {
        "kind": FRAYACTOR_KIND,
        "name": "counter",
        "uid": api.get(FRAYACTORS, "counter")["metadata"]["uid"],
    }
    record = {"metadata": {"name": "counter-0", "ownerReferences": [owner]}, "data": {}}
    api.create(CONFIG_MAPS, record)
    api.delete(FRAYACTORS, "counter")
    with pytest.raises(NotFoundError, match="its owner, FrayActor 'counter', is gone"):
        api.create(CONFIG_MAPS, record)
    assert api.list_all(CONFIG_MAPS) == []
