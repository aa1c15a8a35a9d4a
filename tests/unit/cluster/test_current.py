"""Which cluster a process uses: the one that was set, the one of the environment, this machine."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fray.cluster import Cluster, LocalCluster, create_cluster, current_cluster, set_current_cluster
from fray.cluster.cluster_spec import LocalSpec
from fray.errors import ClusterSpecError, ClusterUnavailableError


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FRAY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("FRAY_CLUSTER_SPEC", raising=False)


def in_a_context(function: Callable[[], Cluster]) -> Cluster:
    return contextvars.Context().run(function)


def test_without_a_word_it_is_this_machine() -> None:
    cluster = in_a_context(current_cluster)
    assert isinstance(cluster, LocalCluster)
    assert cluster.spec == LocalSpec()


def test_the_environment_says_which_and_it_is_one_for_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAY_CLUSTER_SPEC", "local?mode=thread")
    found: list[Cluster] = []
    threads = [threading.Thread(target=lambda: found.append(current_cluster())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {str(cluster.spec) for cluster in found} == {"local?mode=thread"}
    assert len({id(cluster) for cluster in found}) == 1


def test_what_was_set_comes_first_until_it_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = LocalCluster()

    def use() -> Cluster:
        set_current_cluster(mine)
        assert current_cluster() is mine
        set_current_cluster(None)
        return current_cluster()

    monkeypatch.setenv("FRAY_CLUSTER_SPEC", "local?use_isolated_env=true")
    after = in_a_context(use)
    assert after is not mine
    assert str(after.spec) == "local?use_isolated_env=true"


def test_create_cluster_makes_a_new_one_each_time() -> None:
    assert create_cluster("local") is not create_cluster("local")
    assert create_cluster(LocalSpec(mode="thread")).spec == LocalSpec(mode="thread")


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ("lokal", ClusterSpecError),
        ("local?mode=fast", ClusterSpecError),
        ("ray?namespace=ml", ClusterUnavailableError),
        ("iris?controller=http://somewhere:1", ClusterUnavailableError),
    ],
)
def test_specs_that_are_no_clusters(
    monkeypatch: pytest.MonkeyPatch, spec: str, kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        create_cluster(spec)
    monkeypatch.setenv("FRAY_CLUSTER_SPEC", spec)
    with pytest.raises(kind):
        in_a_context(current_cluster)
