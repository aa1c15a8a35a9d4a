"""Workers are asked for at once and given back after a while, and only of the job that asks."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fray.kube.errors import ConflictError, NotFoundError, UnreachableError
from fray.kube.resources import FRAYJOBS
from fray.runtime.api import scale as module
from fray.runtime.api.client import ApiClient
from fray.runtime.api.scale import Demand, get_replicas, set_replicas
from fray.testing import Call, FakeCluster
from tests.fake_pods import client_of_pod

IDLE = 60.0


def asked_for(*noted: tuple[float, int], now: float, least: int = 0, most: int = 100) -> int:
    demand = Demand()
    for at, workers in noted:
        demand = demand.note(workers, now=at)
    return demand.derive_replicas(now=now, idle_seconds=IDLE, least=least, most=most)[1]


@pytest.mark.parametrize(
    ("noted", "now", "expected"),
    [
        ([], 0.0, 0),
        ([(0.0, 4)], 0.0, 4),
        ([(0.0, 1), (1.0, 4)], 1.0, 4),
        ([(0.0, 4), (1.0, 0)], 1.0, 4),
        ([(0.0, 4), (50.0, 0)], 109.9, 4),
        ([(0.0, 4), (50.0, 0)], 110.0, 0),
        ([(0.0, 4), (1.0, 2), (2.0, 0)], 61.5, 2),
        ([(0.0, 4), (1.0, 2), (2.0, 0)], 62.0, 0),
        ([(0.0, 4), (1.0, 0), (30.0, 4), (31.0, 0)], 90.9, 4),
        ([(0.0, 4)], 1000.0, 4),
    ],
)
def test_more_is_asked_for_at_once_and_less_after_a_while(
    noted: list[tuple[float, int]], now: float, expected: int
) -> None:
    assert asked_for(*noted, now=now) == expected


def test_limits_hold() -> None:
    assert asked_for((0.0, 9), now=0.0, most=3) == 3
    assert asked_for((0.0, 0), now=0.0, least=2) == 2


STEPS = st.lists(st.tuples(st.floats(0.0, 30.0), st.integers(0, 8)), min_size=1, max_size=40)


@given(STEPS)
def test_it_is_the_highest_number_of_the_last_while_and_little_is_kept(
    steps: list[tuple[float, int]],
) -> None:
    demand, now, noted = Demand(), 0.0, []
    for pause, workers in steps:
        now += pause
        noted.append((now, workers))
        demand, replicas = demand.note(workers, now=now).derive_replicas(
            now=now, idle_seconds=IDLE, least=0, most=100
        )
        ends = [at for at, _ in noted[1:]] + [now]
        lately = [number for end, (_, number) in zip(ends, noted, strict=True) if now - end < IDLE]
        assert replicas == max(lately)
        assert len(demand.numbers) <= 9, "one entry for each number at most"


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as made:
        yield made


def add_job(cluster: FakeCluster) -> str:
    job = cluster.store(FRAYJOBS, {"metadata": {"name": "train"}, "spec": {"workers": {}}})
    return str(job["metadata"]["uid"])


def let_others_write(cluster: FakeCluster, times: int) -> None:
    """Have somebody change the job before each of the next patches."""
    left = iter(range(times))

    def write(call: Call) -> None:
        if call.method == "PATCH" and next(left, None) is not None:
            cluster.set_status("train", phase="Running")

    cluster.fault = write


def patches(cluster: FakeCluster) -> int:
    return sum(call.method == "PATCH" for call in cluster.calls)


def replicas(cluster: FakeCluster) -> int:
    (job,) = cluster.all()
    return int(job["spec"]["workers"]["replicas"])


def test_what_is_so_already_is_not_written(cluster: FakeCluster) -> None:
    client, uid = client_of_pod(cluster), add_job(cluster)
    assert set_replicas(client, "train", uid, 3)
    assert not set_replicas(client, "train", uid, 3)
    assert patches(cluster) == 1


def test_others_who_write_the_job_are_no_obstacle(cluster: FakeCluster) -> None:
    client, uid = client_of_pod(cluster), add_job(cluster)
    let_others_write(cluster, 2)
    assert set_replicas(client, "train", uid, 3)
    assert (replicas(cluster), patches(cluster)) == (3, 3)
    let_others_write(cluster, 100)
    with pytest.raises(ConflictError):
        set_replicas(client, "train", uid, 4)
    assert patches(cluster) == 3 + module.TRIES


def test_another_job_of_that_name_is_left_alone(cluster: FakeCluster) -> None:
    add_job(cluster)
    with pytest.raises(NotFoundError, match="another one now"):
        set_replicas(client_of_pod(cluster), "train", "another", 3)
    assert patches(cluster) == 0


@pytest.mark.parametrize("replicas", ["many", None, {}])
def test_an_answer_that_is_no_number_is_an_error_as_others(replicas: object) -> None:
    """Who reads the scale of a job ends nothing for it."""
    scale = {"metadata": {"uid": "uid"}, "spec": {"replicas": replicas}}
    client = cast("ApiClient", SimpleNamespace(namespace="ml", get=lambda *_, **__: scale))
    with pytest.raises(UnreachableError, match="replicas is"):
        get_replicas(client, "train", "uid")
    scale.pop("metadata")
    with pytest.raises(NotFoundError):
        get_replicas(client, "train", "uid")
