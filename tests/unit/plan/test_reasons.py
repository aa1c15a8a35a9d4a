"""Each reason has one row, each row is used, and docs/failures.md names them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fray.kube.resources import JOBSETS
from fray.plan import reasons
from fray.plan.reasons import REASONS, EventType, get_row
from fray.vocabulary import ConditionType, Reason, VerdictKind
from tools.generate_docs import PAGE, render_page

ROOT = Path(__file__).parents[3]
FAILURES = [reason for reason, row in REASONS.items() if row.charge is VerdictKind.FAILURE]
OF_HOSTS = [each for each in FAILURES if not REASONS[each].timeout and each is not Reason.WORKERS_FAILED]


def test_each_reason_has_a_row() -> None:
    assert set(REASONS) == set(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_each_row_is_used(reason: Reason) -> None:
    """Code gives the reason, or a host's exit code does."""
    name = re.compile(rf"\bReason\.{reason.name}\b")
    files = [
        path
        for folder in ("src", "operator")
        for path in (ROOT / folder).rglob("*.py")
        if path != Path(str(reasons.__file__))
    ]
    assert REASONS[reason].exit_codes or any(name.search(path.read_text(encoding="utf-8")) for path in files)


@pytest.mark.parametrize("reason", Reason)
def test_a_row_agrees_with_itself(reason: Reason) -> None:
    row = REASONS[reason]
    assert row.stands_on
    assert bool(row.meaning) == bool(row.remedy)
    assert bool(row.unrun) == bool(row.exit_codes)
    assert row.charge is not None or not (row.final or row.ends_by_itself or row.own_doing)
    assert row.certain or not row.final  # an end that is still to be judged can't be the job's
    if row.refuses or row.event is EventType.NORMAL:
        assert ConditionType.RUNNING in row.stands_on


def test_an_exit_code_says_one_thing() -> None:
    codes = [code for row in REASONS.values() for code in row.exit_codes]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("reason", OF_HOSTS)
def test_what_a_host_failed_of_leaves_its_jobset_with_its_logs(reason: Reason) -> None:
    assert REASONS[reason].ends_by_itself


def test_a_word_of_another_version_has_an_empty_row() -> None:
    row = get_row("SolarFlare")
    assert row == get_row(None)
    assert row.certain
    assert not row.meaning


def test_the_page_names_every_reason() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for reason in Reason:
        assert f"`{reason}`" in page


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="waits"):
        render_page("# When a job waits", "rows.py", {"waits": ""})


def test_words_of_the_operator_are_its_own() -> None:
    assert f"the cluster has no {JOBSETS}`" in PAGE.read_text(encoding="utf-8")
