"""Each reason has one row, each row is used, and the pages name them all."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from fray import actor_reasons
from fray.actor_reasons import ACTOR_REASONS, get_actor_row
from fray.kube.resources import JOBSETS
from fray.plan import reasons
from fray.plan.reasons import REASONS, EventType, get_row
from fray.vocabulary import ActorReason, ConditionType, Reason, VerdictKind
from tools.generate_docs import PAGE, render_page

ROOT = Path(__file__).parents[3]
TABLES = [Path(str(module.__file__)) for module in (reasons, actor_reasons)]
FAILURES = [reason for reason, row in REASONS.items() if row.charge is VerdictKind.FAILURE]
OF_WORKERS = (Reason.WORKERS_FAILED, Reason.WORKER_IMAGE_MISMATCH)
OF_HOSTS = [each for each in FAILURES if not REASONS[each].timeout and each not in OF_WORKERS]


def test_each_reason_has_a_row() -> None:
    assert set(REASONS) == set(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_each_row_is_used(reason: Reason) -> None:
    """Code gives the reason, or a host's exit code does."""
    name = re.compile(rf"\bReason\.{reason.name}\b")
    used = any(name.search(path.read_text(encoding="utf-8")) for path in list_sources())
    assert REASONS[reason].exit_codes or used


@pytest.mark.parametrize("reason", Reason)
def test_a_row_agrees_with_itself(reason: Reason) -> None:
    row = REASONS[reason]
    assert row.stands_on
    assert bool(row.meaning) == bool(row.remedy)
    assert bool(row.unrun) == bool(row.exit_codes)
    assert row.charge is not None or not (row.final or row.ends_by_itself or row.own_doing)
    assert row.certain or not row.final  # an end that is still to be judged can't be the job's
    assert row.lacks_nodes or not row.told_by_provider
    if row.refuses or row.lacks_nodes or row.event is EventType.NORMAL:
        assert ConditionType.RUNNING in row.stands_on


def test_each_reason_of_actors_has_a_row_and_is_used() -> None:
    assert set(ACTOR_REASONS) == set(ActorReason)
    for reason, row in ACTOR_REASONS.items():
        name = re.compile(rf"\bActorReason\.{reason.name}\b")
        assert any(name.search(path.read_text(encoding="utf-8")) for path in list_sources())
        assert (ConditionType.FINISHED in row.stands_on) is row.ends
        assert row.ends or not row.by_members
        assert row.meaning or not row.ends
    assert not get_actor_row(Reason.SUSPENDED).ends


def test_no_other_module_has_a_table_of_reasons() -> None:
    """What holds of some reasons is a field of their rows: to add one, one row is edited."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path in list_sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if lists_reasons(node)
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "A = frozenset({Reason.QUOTA_EXCEEDED, Reason.SUSPENDED})",
        "word in (Reason.QUOTA_EXCEEDED, None, 'Suspended')",
        "A = {'x': Reason.QUOTA_EXCEEDED, 'y': Reason.SUSPENDED}",
        "A = {vocabulary.Reason.QUOTA_EXCEEDED: 1, Reason.SUSPENDED: 2}",
        "match word:\n    case Reason.QUOTA_EXCEEDED | Reason.SUSPENDED: ...",
        "ENDING = (ActorReason.IDLE, ActorReason.MEMBERS_ENDED)",
    ],
)
def test_such_a_table_would_be_found(code: str) -> None:
    assert any(map(lists_reasons, ast.walk(ast.parse(code))))


def lists_reasons(node: ast.AST) -> bool:
    """Return whether an expression has two reasons or more beside each other."""
    match node:
        case ast.Set() | ast.List() | ast.Tuple():
            parts: list[ast.expr | None] = [*node.elts]
        case ast.Dict():
            parts = [*node.keys, *node.values]
        case ast.MatchOr():
            parts = [each.value for each in node.patterns if isinstance(each, ast.MatchValue)]
        case _:
            return False
    return sum(map(is_reason, parts)) > 1


def is_reason(node: ast.expr | None) -> bool:
    if isinstance(node, ast.Attribute):
        return ast.unparse(node.value).rpartition(".")[2] in (Reason.__name__, ActorReason.__name__)
    return isinstance(node, ast.Constant) and node.value in list(Reason)


def list_sources() -> list[Path]:
    """Return the modules of the library and the operator, but for the tables themselves."""
    paths = [path for folder in ("src", "operator") for path in (ROOT / folder).rglob("*.py")]
    return [path for path in paths if path not in TABLES]


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
