"""Copies of a job, as `make scale` writes them by the thousand, are as the operator would have left them."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.scale.copies import Original
from e2e.scale.population import empty, populate
from tests.integration.controller.conftest import SettingsFor
from tests.integration.controller.hands import Hands, eventually
from tests.integration.controller.operator_thread import run_operator

NAMES = [f"copy-{number}" for number in range(6)]


def run_original(hands: Hands, *, finished: bool) -> None:
    hands.submit("original", replicas=2)
    jobset = hands.await_jobset("original-a1")
    pods = hands.run_all(jobset)
    hands.await_phase("original", "Running")
    if finished:
        for pod in pods:
            hands.exit(pod, 0)
        hands.complete(jobset)
        hands.await_phase("original", "Succeeded")


@pytest.mark.parametrize("finished", [False, True], ids=["live", "finished"])
def test_an_operator_that_starts_over_copies_writes_nothing(
    kubeconfig: Path, hands: Hands, settings_for: SettingsFor, *, finished: bool
) -> None:
    with run_operator(kubeconfig, settings_for(hands.namespace)):
        run_original(hands, finished=finished)
    jobset = hands.await_jobset("original-a1")
    original = Original(hands.job("original"), jobset, hands.pods_of(jobset))
    populate(hands.api, original, NAMES, nodes=["fake-0", "fake-1"])
    before = hands.list(hands.jobs)
    assert {job["status"]["phase"] for job in before} == {"Succeeded" if finished else "Running"}
    assert len(before) == len(hands.list(hands.jobsets)) == len(NAMES) + 1

    with run_operator(kubeconfig, settings_for(hands.namespace)) as restarted:
        if finished:
            # kopf tells of jobs by name: of this one after all others.
            hands.submit("zz-last")
            hands.await_jobset("zz-last-a1")
        else:
            eventually(lambda: restarted.passes() >= len(before), told=restarted.passes)
            assert not restarted.writes()
    assert hands.list(hands.jobs)[: len(before)] == before
    assert len(hands.list(hands.jobsets)) == len(before) + finished


def test_a_namespace_is_emptied(hands: Hands) -> None:
    for number in range(3):
        hands.submit(f"job-{number}")
    empty(hands.api, hands.jobs)
    assert hands.list(hands.jobs) == []
