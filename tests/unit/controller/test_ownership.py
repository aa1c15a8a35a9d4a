"""Whose a JobSet is: this very FrayJob's, or somebody else's, who is then named."""

from __future__ import annotations

from typing import Any

import pytest

from fray.vocabulary import LABEL_JOB_UID
from fray.wire.frayjob import FrayJob
from fray_operator.ownership import describe_foreign, is_owned

JOB = FrayJob.from_manifest(
    {"metadata": {"name": "train", "uid": "u-2"}, "spec": {"entrypoint": {"command": ["train"]}}}
)


def jobset(*owners: dict[str, Any], made_for: str | None = None) -> dict[str, Any]:
    labels = {} if made_for is None else {LABEL_JOB_UID: made_for}
    owned = {"ownerReferences": list(owners)} if owners else {}
    return {"metadata": {"name": "train-a1", "labels": labels, **owned}}


def owner(uid: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "FrayJob", "name": "train", "uid": uid, **fields}


def test_the_controller_owns() -> None:
    assert is_owned(jobset(owner("u-2", controller=True)), JOB)
    assert is_owned(jobset(owner("u-9"), owner("u-2", controller=True)), JOB)


@pytest.mark.parametrize(
    "owners",
    [(), (owner("u-1", controller=True),), (owner("u-2"),), (owner("u-2", controller=False),)],
    ids=["nobody", "predecessor of the same name", "no controller", "not the controller"],
)
def test_anybody_else_does_not(owners: tuple[dict[str, Any], ...]) -> None:
    assert not is_owned(jobset(*owners), JOB)


def test_what_was_made_for_it_is_its_own_while_nobody_else_controls_it() -> None:
    assert is_owned(jobset(made_for="u-2"), JOB)
    assert is_owned(jobset(owner("u-9"), made_for="u-2"), JOB)
    assert not is_owned(jobset(made_for="u-1"), JOB)
    assert not is_owned(jobset(owner("u-9", controller=True), made_for="u-2"), JOB)


def test_a_job_without_uid_owns_nothing() -> None:
    unstored = JOB.model_copy(update={"metadata": JOB.metadata.model_copy(update={"uid": None})})
    assert not is_owned(jobset(), unstored)


def test_the_owner_is_named() -> None:
    told = describe_foreign(jobset(owner("u-1", controller=True)), JOB)
    assert told.reason == "NameTaken"
    assert told.message.startswith("JobSet train-a1 exists and is owned by FrayJob train (another object")
    assert "is owned by nobody" in describe_foreign(jobset(), JOB).message
