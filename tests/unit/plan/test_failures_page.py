"""docs/failures.md explains every reason once, and charges what the verdict charges."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fray.kube.resources import JOBSETS
from fray.plan.verdict import derive_charge
from fray.vocabulary import Reason, VerdictKind

PAGE = (Path(__file__).parents[3] / "docs" / "failures.md").read_text(encoding="utf-8")
WAITS = PAGE[PAGE.index("## The job waits") : PAGE.index("## An attempt, or the job, ended")]
ENDS = PAGE[PAGE.index("## An attempt, or the job, ended") :]
CHARGED = re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|", ENDS, flags=re.MULTILINE)
WORDS = {
    VerdictKind.SUCCESS: "nothing",
    VerdictKind.FAILURE: "failures",
    VerdictKind.PREEMPTION: "preemptions",
    VerdictKind.MISPLACEMENT: "nothing",
    VerdictKind.UNPLACED: "nothing",
    VerdictKind.SUSPENDED: "nothing",
    VerdictKind.STOPPED: "nothing",
}


def test_every_reason_is_explained_once_and_none_that_does_not_exist() -> None:
    rows = re.findall(r"^\| (`[A-Z].*?) \|", WAITS + ENDS, flags=re.MULTILINE)
    rest = PAGE.strip().splitlines()[-1]
    explained = re.findall(r"`([A-Z][A-Za-z]+)`", " ".join([*rows, rest]))
    assert sorted(explained) == sorted(reason.value for reason in Reason)


@pytest.mark.parametrize(("reason", "charged"), CHARGED)
def test_what_is_charged_is_what_the_verdict_charges(reason: str, charged: str) -> None:
    told = charged.partition(";")[0]
    if Reason(reason) is Reason.RUNNER_LOST:
        assert told == "-"  # said of a job by the local backend, and of no attempt
    else:
        assert told == WORDS[derive_charge(Reason(reason))]


def test_there_is_a_charge_for_each_end() -> None:
    assert len(CHARGED) >= 14


def test_words_of_the_operator_are_its_own() -> None:
    assert f"the cluster has no {JOBSETS}`" in PAGE
