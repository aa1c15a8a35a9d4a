"""Which jobs end with their parent, and in which words that is told."""

from __future__ import annotations

from typing import Any

import pytest

from fray.plan.raw_jobs import derive_parents_end, get_parent_name, read_parent

MADE = "2026-01-31T11:00:00Z"


def child(*owners: str, made: str = MADE, parent: str = "train") -> dict[str, Any]:
    references = [{"kind": "FrayJob", "name": parent, "uid": uid} for uid in owners]
    metadata = {"name": "child", "creationTimestamp": made, "ownerReferences": references}
    return {"metadata": metadata, "spec": {"parent": {"name": parent, "root": "root"}}}


def parent(*held: str, made: str = MADE, **metadata: str) -> dict[str, Any]:
    conditions = [{"type": kind, "status": "True"} for kind in held]
    conditions += [{"type": kind, "status": "False"} for kind in ("Finished", "Running") if kind not in held]
    status = {"conditions": conditions} if held else {}
    return {"metadata": {"uid": "1", "creationTimestamp": made, **metadata}, "status": status}


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (parent(), None),
        (parent("Running"), None),
        (parent("Finished", "Succeeded"), None),
        (parent("Finished", "Failed"), "its parent train failed"),
        (parent("Finished", "Stopped"), "its parent train was stopped"),
        # Only what has ended for good counts, and nothing is guessed about words of other versions.
        (parent("Failed"), None),
        (parent("Finished", "Merged"), None),
        (parent(deletionTimestamp=MADE), "its parent train is being deleted"),
        (parent("Finished", "Succeeded", deletionTimestamp=MADE), "its parent train is being deleted"),
        (parent("Finished", "Failed", deletionTimestamp=MADE), "its parent train is being deleted"),
    ],
)
def test_a_job_ends_with_a_parent_that_did_not_succeed(state: dict[str, Any], told: str | None) -> None:
    assert derive_parents_end(child(), read_parent(state)) == told


def test_a_job_ends_with_a_parent_that_is_gone() -> None:
    assert derive_parents_end(child(), None) == "its parent train was deleted"


@pytest.mark.parametrize("body", [{"spec": {}}, {}, {"spec": {"parent": None}}])
def test_a_job_that_nobody_launched_has_no_parent(body: dict[str, Any]) -> None:
    assert get_parent_name(body) is None
    assert derive_parents_end(body, None) is None


@pytest.mark.parametrize(
    ("job", "state", "is_parent"),
    [
        (child(made="2026-01-31T11:00:00Z"), parent(made="2026-01-31T10:00:00Z"), True),
        # Two API servers whose clocks differ.
        (child(made="2026-01-31T11:00:00Z"), parent(made="2026-01-31T11:00:04Z"), True),
        # A successor of the same name: the child's own parent is gone.
        (child(made="2026-01-31T11:00:00Z"), parent(made="2026-01-31T11:00:06Z"), False),
        # An owner reference tells it exactly.
        (child("1", made="2026-01-31T11:00:00Z"), parent(made="2026-01-31T11:00:06Z"), True),
        (child("2", made="2026-01-31T11:00:00Z"), parent(made="2026-01-31T10:00:00Z"), False),
        (child("2", "1"), parent(), True),
    ],
)
def test_a_parent_is_there_before_its_child(
    job: dict[str, Any], state: dict[str, Any], is_parent: bool
) -> None:
    assert derive_parents_end(job, read_parent(state)) == (
        None if is_parent else "its parent train was deleted"
    )


def test_owners_that_are_not_the_parent_tell_nothing_about_it() -> None:
    job = child()
    job["metadata"]["ownerReferences"] = [
        {"kind": "Sweep", "name": "train", "uid": "7"},
        {"kind": "FrayJob", "name": "other", "uid": "8"},
    ]
    assert derive_parents_end(job, read_parent(parent())) is None
