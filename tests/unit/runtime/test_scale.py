"""Workers are asked for at once and given back after a while, and only of the job that asks."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fray.kube.errors import ConflictError, NotFoundError
from fray.kube.objects import Manifest
from fray.runtime.api import scale as module
from fray.runtime.api.client import ApiClient
from fray.runtime.api.scale import Demand, set_replicas

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


class Server:
    """A job's scale, which `others` change before each of the next patches."""

    namespace = "ml"

    def __init__(self, uid: str = "u", others: int = 0) -> None:
        self.uid, self.others, self.version, self.replicas = uid, others, 1, 0
        self.patches: list[Manifest] = []

    def get(self, _: Any, name: str, *, namespace: str, subresource: str) -> Manifest:
        assert (name, namespace, subresource) == ("train", "ml", "scale")
        metadata = {"name": name, "uid": self.uid, "resourceVersion": str(self.version)}
        return {
            "kind": "Scale",
            "metadata": metadata,
            "spec": {"replicas": self.replicas} if self.replicas else {},
        }

    def patch(self, _: Any, name: str, changes: Manifest, *, namespace: str, subresource: str) -> Manifest:
        assert (name, namespace, subresource) == ("train", "ml", "scale")
        self.patches.append(changes)
        if self.others:
            self.others, self.version = self.others - 1, self.version + 1
        if changes["metadata"]["resourceVersion"] != str(self.version):
            raise ConflictError("PATCH", 409, "Conflict", "the object has been modified")
        self.replicas = changes["spec"]["replicas"]
        return {}


def change(server: Server, replicas: int) -> bool:
    return set_replicas(cast("ApiClient", server), "train", "u", replicas)


def test_what_is_so_already_is_not_written() -> None:
    server = Server()
    assert change(server, 3)
    assert not change(server, 3)
    assert len(server.patches) == 1


def test_others_who_write_the_job_are_no_obstacle() -> None:
    server = Server(others=2)
    assert change(server, 3)
    assert (server.replicas, len(server.patches)) == (3, 3)
    hopeless = Server(others=100)
    with pytest.raises(ConflictError):
        change(hopeless, 3)
    assert len(hopeless.patches) == module.TRIES


def test_another_job_of_that_name_is_left_alone() -> None:
    server = Server(uid="another")
    with pytest.raises(NotFoundError, match="another one now"):
        change(server, 3)
    assert server.patches == []
