"""The objects of an attempt: each says its role, and its row how long it stays."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fray.plan.children import ROLES, build_children, find_removed, read_role
from fray.plan.manifests import Manifest
from fray.plan.settings import PlanSettings
from fray.testing import build_frayjob
from fray.vocabulary import LABEL_ROLE, Reason, Role
from tests.unit.plan.golden import read_job, shapes

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("shape", shapes())
def test_a_child_is_of_the_kind_of_its_role_and_says_so(shape: str) -> None:
    made = build_children(read_job(shape), attempt=1, settings=PlanSettings())
    assert [child.role for child in made if child.role is Role.HOST] == [Role.HOST]
    for child in made:
        assert child.manifest["kind"] == child.row.kind
        assert read_role(child.manifest) is child.role
    assert len({(child.row.kind, child.name) for child in made}) == len(made)


def test_each_role_has_a_row() -> None:
    assert set(ROLES) == set(Role)


@pytest.mark.parametrize("labels", [None, {}, {LABEL_ROLE: "of a later version"}])
def test_what_says_no_role_that_is_known_is_of_the_gang(labels: dict[str, str] | None) -> None:
    assert read_role({"metadata": {"labels": labels}}) is Role.HOST


def test_an_attempt_that_ends_leaves_what_the_next_one_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    (child,) = build_children(build_frayjob(), attempt=1, settings=PlanSettings())

    def removed() -> list[Manifest]:
        return find_removed(Reason.STOP_REQUESTED, [child.manifest], None, now=NOW)

    assert removed() == [child.manifest]
    row = replace(ROLES[Role.HOST], outlives_attempt=True)
    monkeypatch.setattr("fray.plan.children.ROLES", {Role.HOST: row})
    assert removed() == []
