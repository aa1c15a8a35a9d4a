"""An operator serves the namespaces that it is told to, or all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.controller.conftest import SettingsFor
from tests.integration.controller.hands import Hands
from tests.integration.controller.operator_thread import run_operator


def live(hands: Hands) -> None:
    """Run a job to its good end."""
    hands.submit("train")
    jobset = hands.await_jobset("train-a1")
    (pod,) = hands.run_all(jobset)
    hands.await_phase("train", "Running")
    hands.exit(pod, 0)
    hands.complete(jobset)
    hands.await_phase("train", "Succeeded")


@pytest.mark.parametrize("scope", ["some", "all"])
def test_jobs_of_one_name_in_several_namespaces_are_kept_apart(
    scope: str, kubeconfig: Path, new_hands: Callable[[], Hands], settings_for: SettingsFor
) -> None:
    first, second = new_hands(), new_hands()
    namespaces = (first.namespace, second.namespace) if scope == "some" else ()
    with run_operator(kubeconfig, settings_for(first.namespace, namespaces=namespaces)):
        second.submit("train", suspend=True)
        live(first)
        second.await_phase("train", "Suspended")
        assert second.list(second.jobsets) == []


def test_other_namespaces_are_left_alone(
    kubeconfig: Path, new_hands: Callable[[], Hands], settings_for: SettingsFor
) -> None:
    served, other = new_hands(), new_hands()
    with run_operator(kubeconfig, settings_for(served.namespace)):
        other.submit("train")
        live(served)
    assert "status" not in other.job("train")
    assert other.list(other.jobsets) == []
