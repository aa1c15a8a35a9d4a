"""Objects that the API server takes, and that somebody made to harm: the jobs of others go on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.controlplane import ControlPlane
from fray.vocabulary import LABEL_JOB
from tests.integration.controller.hands import Hands
from tests.integration.controller.operator_subprocess import OperatorSubprocess

DEPTH = 5_000
"""Of an object; the API server takes up to 10,000, and Python reads 1,000 unless it is told otherwise."""


@pytest.fixture
def deep_reader() -> Iterator[None]:
    """Lets the test itself read what it has written."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(3 * DEPTH)
    yield
    sys.setrecursionlimit(usual)


@pytest.fixture
def swept(hands: Hands, deep_reader: None) -> Iterator[Hands]:
    """Controllers of a namespace whose jobs end with the test: other operators read all that there is."""
    yield hands
    for collection in (hands.jobs, hands.jobsets):
        assert hands.api.delete(collection).ok
        assert hands.list(collection) == []


def test_a_process_outlives_objects_that_are_made_to_end_it(
    control_plane: ControlPlane, swept: Hands, tmp_path: Path, new_port: Callable[[], int]
) -> None:
    hands = swept
    deep: dict[str, Any] = {}
    for _ in range(DEPTH):
        deep = {"k": deep}
    empty = {"metadata": {"name": "nobodys", "labels": {LABEL_JOB: ""}}}
    pod = {**empty, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    assert hands.api.post(f"{hands.core}/pods", pod).status == 201
    hands.submit("deep", podTemplate={"spec": {"affinity": deep}})
    operator = OperatorSubprocess(
        control_plane.kubeconfig,
        tmp_path,
        name="first",
        port=new_port(),
        FRAY_NAMESPACES=hands.namespace,
        FRAY_LEASE_NAMESPACE=hands.namespace,
    )
    with operator:
        hands.submit("train")  # listed, or watched
        hands.await_jobset("train-a1")
        hands.submit("deeper", podTemplate={"spec": {"affinity": deep}})
        hands.submit("second")
        hands.await_jobset("second-a1")
        assert operator.process.poll() is None, operator.log
