"""Callables by value: whatever a program may hold in its hands, and what can't be sent."""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from fray import current_identity
from fray.cluster import Cluster, Entrypoint, JobRequest, ResourceConfig
from fray.errors import CallArgumentsError, FrayError, InvalidOptionError, SerializationError
from fray.payload.outcome import RankValue
from tests.conformance.backends import Backend
from tests.conformance.jobs import PATIENCE, launch, run


@dataclass
class Shard:
    values: list[int]

    def total(self, offset: int) -> int:
        return sum(self.values) + offset


class Doubler:
    def __call__(self, value: int) -> int:
        return 2 * value


def make_closure() -> Callable[[], int]:
    held = {"answer": 42}
    return lambda: held["answer"]


CALLABLES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "closure": (make_closure(), (), 42),
    "lambda": (lambda x: x + 1, (41,), 42),
    "partial": (functools.partial(pow, 2), (5,), 32),
    "bound method": (Shard([1, 2]).total, (39,), 42),
    "object": (Doubler(), (21,), 42),
    "class": (Shard, ([1],), Shard([1])),
    "built-in": (sum, ([40, 2],), 42),
    "wrapped": (functools.lru_cache(maxsize=2)(make_closure()), (), 42),
}


@pytest.mark.parametrize("kind", CALLABLES)
def test_callables_of_every_kind(cluster: Cluster, name: str, kind: str) -> None:
    function, args, expected = CALLABLES[kind]
    assert run(cluster, name, function, *args) == expected


def test_keyword_arguments(cluster: Cluster, name: str) -> None:
    entrypoint = Entrypoint.from_callable(sorted, [[3, 1, 2]], {"reverse": True})
    job = cluster.launch(JobRequest(name, entrypoint))
    cluster.wait(job, raise_on_failure=True)
    outcome = cluster.outcome(job)
    assert outcome is not None
    assert outcome.result() == [3, 2, 1]


def test_a_closure_of_5_mb(cluster: Cluster, name: str) -> None:
    data = os.urandom(5_000_000)
    digest = hashlib.sha256(data).hexdigest()
    assert run(cluster, name, lambda: hashlib.sha256(data).hexdigest()) == digest


def test_text_of_every_alphabet(cluster: Cluster, name: str) -> None:
    text = "Zürich 東京 🚀 \u202e \x00 \udcff"
    assert run(cluster, name, lambda: text) == text


def yields() -> Any:
    yield 1


def test_what_cannot_be_called(cluster: Cluster, backend: Backend, name: str) -> None:
    before = [info.job_id for info in cluster.list_jobs()]
    refused: list[tuple[type[FrayError], Callable[..., Any], tuple[Any, ...]]] = [
        (CallArgumentsError, make_closure(), (1,)),
        (CallArgumentsError, Shard([1]).total, ()),
        (InvalidOptionError, yields, ()),
    ]
    if backend.own_processes:
        refused.append((SerializationError, id, (threading.Lock(),)))
    for kind, function, args in refused:
        with pytest.raises(kind):
            launch(cluster, name, function, *args)
    assert [info.job_id for info in cluster.list_jobs()] == before


def test_each_rank_may_return_a_value_of_its_own(cluster: Cluster, name: str) -> None:
    gang = ResourceConfig(replicas=2)
    job = launch(cluster, name, lambda: RankValue([current_identity().rank]), resources=gang)
    cluster.wait(job, raise_on_failure=True, timeout=PATIENCE)
    assert [outcome.result() for outcome in cluster.outcomes(job)] == [[0], [1]]
    first = cluster.outcome(job)
    assert first is not None
    assert first.result() == [0]
