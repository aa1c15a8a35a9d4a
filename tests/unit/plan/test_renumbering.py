"""A JobSet that Kueue holds gets the number of another attempt; nothing else about it changes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fray.plan.jobset import build_attempt
from fray.plan.kueue import build_renumbered, is_misnumbered, trim_number
from fray.plan.settings import PlanSettings
from fray.testing import build_frayjob
from tests.unit.plan.jobset_rules import main_container, pod_template

ENDED = {"conditions": [{"type": "Failed", "status": "True"}], "terminalState": "Failed"}


def held(*, queue: dict[str, str] | None, **rest: Any) -> dict[str, Any]:
    spec = {} if queue is None else {"queue": queue}
    jobset = build_attempt(build_frayjob(**spec), attempt=1, settings=PlanSettings()).jobset
    jobset["spec"]["suspend"] = True
    return {**jobset, **rest}


def test_the_number_changes_where_the_program_and_the_operator_read_it_and_nothing_else() -> None:
    jobset = held(queue={"name": "team"})
    before = copy.deepcopy(jobset)
    renumbered = build_renumbered(jobset, 2)
    assert jobset == before
    assert renumbered is not None
    fields = [each["metadata"]["labels"] for each in (renumbered, pod_template(renumbered))]
    assert [labels["fray.dev/attempt"] for labels in fields] == ["2", "2"]
    env = {entry["name"]: entry for entry in main_container(renumbered)["env"]}
    path = env["FRAY_ATTEMPT"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert path == "metadata.labels['fray.dev/attempt']"
    assert is_misnumbered(jobset, 2)
    assert not is_misnumbered(renumbered, 2)
    for labels in fields:
        labels["fray.dev/attempt"] = "1"
    assert renumbered == before


def test_what_is_kept_of_a_jobset_says_as_well_whether_its_number_is_right() -> None:
    jobset = held(queue={"name": "team"})
    kept = {"spec": {"replicatedJobs": trim_number(jobset)}}
    assert "containers" not in str(kept)
    assert (is_misnumbered(kept, 1), is_misnumbered(kept, 2)) == (False, True)
    assert not is_misnumbered({"spec": {}}, 2), "nothing tells of a number"
    pod_template(jobset)["metadata"]["labels"]["fray.dev/attempt"] = "1" * 1_000_000
    jobset["spec"]["replicatedJobs"] *= 100
    assert len(str(trim_number(jobset))) < 200
    assert trim_number({"spec": {"replicatedJobs": [{}, {"template": {}}]}}) == []


@pytest.mark.parametrize(
    "jobset",
    [
        held(queue={"name": "team"}, status=ENDED),
        held(queue={"name": "team"}) | {"spec": {**held(queue={"name": "team"})["spec"], "suspend": False}},
        held(queue=None),
    ],
    ids=["ended", "resumed", "number-written-out"],
)
def test_a_jobset_that_can_not_take_a_number_is_left_alone(jobset: dict[str, Any]) -> None:
    assert build_renumbered(jobset, 2) is None


def test_pods_that_a_suspension_kills_do_not_fail_the_job_of_a_queued_gang() -> None:
    def rules(jobset: dict[str, Any]) -> list[list[str]]:
        (replicated,) = jobset["spec"]["replicatedJobs"]
        return [sorted(rule) for rule in replicated["template"]["spec"]["podFailurePolicy"]["rules"]]

    assert rules(held(queue={"name": "team"})) == [["action", "onPodConditions"]]
    assert rules(held(queue=None)) == [["action", "onPodConditions"], ["action", "onExitCodes"]]
