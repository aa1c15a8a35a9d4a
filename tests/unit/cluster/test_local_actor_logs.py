"""What actors on this machine printed, as it is read from their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from fray.cluster.local.actor_logs import read_actor_logs
from fray.kube.resources import FRAYACTORS
from fray.runtime.actors.identity import Member
from fray.runtime.actors.local_objects import FileApi
from fray.runtime.actors.local_pod import _begin_log
from fray.types import LogLine
from fray.wire.frayactor import FrayActor


@pytest.fixture
def api(tmp_path: Path) -> FileApi:
    return FileApi(tmp_path)


def create(api: FileApi, *printed: bytes) -> FrayActor:
    """Create an actor whose members have printed this."""
    spec = {"name": "crew", "entrypoint": {"class": "app:Crew"}, "replicas": len(printed)}
    body = {
        "apiVersion": "fray.dev/v1alpha1",
        "kind": "FrayActor",
        "metadata": {"name": "crew"},
        "spec": spec,
    }
    actor = FrayActor.from_manifest(api.create(FRAYACTORS, body))
    for index, data in enumerate(printed):
        folder = api.directory / "pods" / f"crew-{index}"
        folder.mkdir(parents=True, exist_ok=True)
        _begin_log(folder, Member("crew", "crew", actor.metadata.uid or "", index))
        add(api, index, data)
    return actor


def add(api: FileApi, index: int, data: bytes) -> None:
    with (api.directory / "pods" / f"crew-{index}" / "log").open("ab") as file:
        file.write(data)


def shown(lines: list[LogLine]) -> list[tuple[int, str]]:
    return [(line.slice_index, line.text) for line in lines]


def test_lines_of_members_are_read_whole_and_the_last_ones_where_these_are_asked_for(api: FileApi) -> None:
    actor = create(api, b"a\r\nb\nc", "ä\n".encode())
    every = read_actor_logs(api, actor, follow=False, member=None, tail=None)
    assert shown(list(every)) == [(0, "a"), (0, "b"), (0, "c"), (1, "ä")]
    assert shown(list(read_actor_logs(api, actor, follow=False, member=1, tail=5))) == [(1, "ä")]
    assert shown(list(read_actor_logs(api, actor, follow=False, member=0, tail=1))) == [(0, "c")]


def test_what_comes_is_followed_until_the_actor_is_deleted(api: FileApi) -> None:
    actor = create(api, b"a\nhal")
    lines = read_actor_logs(api, actor, follow=True, member=None, tail=None)
    assert next(lines).text == "a"
    add(api, 0, b"f\n")
    assert next(lines).text == "half"
    add(api, 0, b"end")
    api.delete(FRAYACTORS, "crew")
    assert [line.text for line in lines] == ["end"]


def test_the_next_actor_of_a_name_has_nothing_of_the_earlier_one(api: FileApi) -> None:
    first = create(api, b"old\n")
    following = read_actor_logs(api, first, follow=True, member=None, tail=None)
    assert next(following).text == "old"
    api.delete(FRAYACTORS, "crew")
    second = create(api, b"new\n")
    assert [line.text for line in following] == []
    assert [line.text for line in read_actor_logs(api, second, follow=False, member=None, tail=None)] == [
        "new"
    ]
    assert list(read_actor_logs(api, first, follow=False, member=None, tail=None)) == []
