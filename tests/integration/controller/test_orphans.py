"""JobSets that nobody waits for go: whose owner reference was taken away, or whose creation came too late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.controller.conftest import SettingsFor
from tests.integration.controller.hands import Hands
from tests.integration.controller.operator_thread import run_operator
from tests.integration.controller.test_transitions import await_deletion


def run_job(hands: Hands) -> dict[str, Any]:
    hands.submit("train")
    jobset = hands.await_jobset("train-a1")
    hands.run_all(jobset)
    hands.await_phase("train", "Running")
    return jobset


def test_a_jobset_without_owner_is_deleted_with_its_job(
    kubeconfig: Path, hands: Hands, settings_for: SettingsFor
) -> None:
    with run_operator(kubeconfig, settings_for(hands.namespace)):
        hands.disown(run_job(hands))
        hands.delete_job("train")
        hands.finish_deletion(await_deletion(hands, "train-a1"))


def test_a_jobset_without_owner_is_deleted_when_an_operator_starts_after_its_job_was(
    kubeconfig: Path, hands: Hands, settings_for: SettingsFor
) -> None:
    with run_operator(kubeconfig, settings_for(hands.namespace)):
        jobset = run_job(hands)
    hands.disown(jobset)
    hands.delete_job("train")
    with run_operator(kubeconfig, settings_for(hands.namespace)):
        hands.finish_deletion(await_deletion(hands, "train-a1"))


def test_a_jobset_that_is_created_too_late_is_deleted(
    kubeconfig: Path, hands: Hands, settings_for: SettingsFor
) -> None:
    """The request to create it may be carried out when its job has ended: the server doesn't ask."""
    with run_operator(kubeconfig, settings_for(hands.namespace)):
        jobset = run_job(hands)
        hands.edit("train", stopped=True)
        hands.finish_deletion(await_deletion(hands, "train-a1"))
        hands.await_phase("train", "Stopped")
        again = hands.create_late(jobset)
        hands.run_all(again)
        late = await_deletion(hands, "train-a1")
        assert late["metadata"]["uid"] == again["metadata"]["uid"]
        hands.finish_deletion(late)
        hands.await_phase("train", "Stopped")
