"""Which actor is meant by a name: that of a FrayActor, what programs call it, or a member of a group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fray.cluster import create_cluster
from fray.cluster.local_cluster import LocalCluster
from fray.errors import ActorNotFoundError, AmbiguousActorError
from fray.kube.resources import FRAYACTORS
from fray.runtime.actors.local_objects import FileApi


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    monkeypatch.setenv("FRAY_STATE_DIR", str(tmp_path))
    api = FileApi(tmp_path)
    for name, label, replicas in (("same-1", "same", 1), ("same-2", "same", 1), ("crew-1a2b", "lab/crew", 2)):
        spec = {"name": label, "entrypoint": {"class": "app:Crew"}, "replicas": replicas}
        api.create(
            FRAYACTORS,
            {
                "apiVersion": "fray.dev/v1alpha1",
                "kind": "FrayActor",
                "metadata": {"name": name},
                "spec": spec,
            },
        )
    made = create_cluster("local")
    assert isinstance(made, LocalCluster)
    return made


def index_of(handle: Any) -> int:
    index: int = handle._actor.member.index
    return index


def test_an_actor_is_found_by_each_of_its_names_and_its_members_by_their_index(cluster: LocalCluster) -> None:
    for name in ("crew-1a2b", "lab/crew"):
        assert cluster.find_actor(name).metadata.name == "crew-1a2b"
    assert [index_of(cluster.get_actor(name)) for name in ("lab/crew", "lab/crew-1", "crew-1a2b-1")] == [
        0,
        1,
        1,
    ]


@pytest.mark.parametrize("name", ["nope", "nope-3", "lab/crew-2", "lab/crew-01", "-1"])
def test_a_name_that_is_none_is_told_as_it_was_given_with_those_that_there_are(
    cluster: LocalCluster, name: str
) -> None:
    with pytest.raises(ActorNotFoundError) as caught:
        cluster.get_actor(name)
    assert (caught.value.name, caught.value.known) == (name, ("lab/crew", "same"))


def test_a_name_that_several_have_is_told_with_what_tells_them_apart(cluster: LocalCluster) -> None:
    for name in ("same", "same-3"):  # a member of which of the two?
        with pytest.raises(AmbiguousActorError, match="'same': FrayActors same-1, same-2"):
            cluster.get_actor(name)
    assert cluster.find_actor("same-2").spec.name == "same"


def test_an_actor_says_whether_it_is_ready_and_since_when_it_is_there(cluster: LocalCluster) -> None:
    found = cluster.find_actor("lab/crew")
    assert found.metadata.creation_timestamp is not None
    (ready,) = found.status.conditions
    assert (ready.type, ready.status, ready.message) == ("Ready", "False", "0 of 2 members take calls")
