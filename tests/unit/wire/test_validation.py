"""A manifest is judged as the API server judges it: corpus, metadata, hostile input."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fray.errors import FieldError, InvalidJobError
from fray.wire.frayactor import FRAYACTOR
from fray.wire.frayjob import FrayJob
from fray.wire.model import CustomKind
from fray.wire.schema import FRAYJOB
from fray.wire.validation import validate_manifest, validate_object
from tests.manifests.corpus import (
    BadManifest,
    GoodManifest,
    bad_actors,
    bad_manifests,
    good_actors,
    good_manifests,
)

GOOD = {case.name: case.manifest for case in good_manifests()}


def problems_of(manifest: dict[str, Any], custom: CustomKind[Any] = FRAYJOB) -> tuple[FieldError, ...]:
    try:
        validate_object(manifest, custom)
    except InvalidJobError as error:
        return error.problems
    return ()


@pytest.mark.parametrize("bad", bad_manifests(), ids=lambda case: case.name)
def test_a_bad_manifest_is_refused_for_what_is_wrong(bad: BadManifest) -> None:
    found = problems_of(bad.manifest)
    assert len(found) == len(bad.refusals)
    for refusal in bad.refusals:
        assert any(p.path == refusal.path and refusal.is_said_by(p.message) for p in found), found


@pytest.mark.parametrize("bad", bad_actors(), ids=lambda case: case.name)
def test_a_bad_actor_is_refused_for_what_is_wrong(bad: BadManifest) -> None:
    (refusal,) = bad.refusals
    (found,) = problems_of(bad.manifest, FRAYACTOR)
    assert found.path == refusal.path
    assert refusal.is_said_by(found.message)


@pytest.mark.parametrize("good", good_actors(), ids=lambda case: case.name)
def test_a_good_manifest_is_the_actor_that_it_says(good: GoodManifest) -> None:
    assert validate_object(good.manifest, FRAYACTOR).to_manifest() == good.manifest


@pytest.mark.parametrize("good", good_manifests(), ids=lambda case: case.name)
def test_a_good_manifest_is_the_job_that_it_says(good: GoodManifest) -> None:
    before = copy.deepcopy(good.manifest)
    job = validate_manifest(good.manifest)
    assert good.manifest == before
    assert job == FrayJob.from_manifest(good.manifest)
    assert job.to_manifest() == good.manifest


def test_all_problems_are_told_at_once() -> None:
    manifest = copy.deepcopy(GOOD["minimal"])
    manifest["kind"] = "Job"
    manifest["spec"] |= {"replicas": 0, "workrs": {}, "ports": [{"name": "A", "port": "x"}]}
    assert [problem.path for problem in problems_of(manifest)] == [
        "kind",
        "spec.replicas",
        "spec.workrs",
        "spec.ports[0].name",
        "spec.ports[0].port",
    ]


def test_rules_wait_for_a_right_structure() -> None:
    manifest = copy.deepcopy(GOOD["minimal"])
    manifest["spec"] |= {"entrypoint": {}, "replicas": "two"}
    assert [problem.path for problem in problems_of(manifest)] == ["spec.replicas"]


@pytest.mark.parametrize("field", ["spec", "metadata", "apiVersion", "kind"])
def test_what_every_object_has_is_required(field: str) -> None:
    manifest = {key: value for key, value in GOOD["minimal"].items() if key != field}
    assert problems_of(manifest)[0].path == {"metadata": "metadata.name"}.get(field, field)


def test_a_null_is_a_forgotten_value() -> None:
    manifest = copy.deepcopy(GOOD["minimal"])
    manifest["spec"] |= {"replicas": None, "resources": {"cpu": None}}
    text = "has no value: give it one or remove the key"
    assert problems_of(manifest) == (
        FieldError("spec.replicas", text),
        FieldError("spec.resources.cpu", text),
    )


def test_a_status_is_ignored() -> None:
    job = validate_manifest({**GOOD["minimal"], "status": {"phase": 7, "unknown": 1}})
    assert job.status.phase is None


def test_values_that_may_be_secret_are_not_repeated() -> None:
    manifest = copy.deepcopy(GOOD["minimal"])
    manifest["spec"]["environment"] = {"env": [{"name": "PIN", "value": 271828}]}
    (problem,) = problems_of(manifest)
    assert problem == FieldError(
        "spec.environment.env[0].value", "must be a string, not a number: put it into quotes"
    )


def test_stored_metadata_is_known() -> None:
    metadata = {
        "name": "a",
        "namespace": "default",
        "uid": "u",
        "generation": 1,
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [],
        "managedFields": [],
        "finalizers": [],
    }
    assert validate_manifest({**GOOD["minimal"], "metadata": metadata}).metadata.uid == "u"


def test_metadata_of_another_type_is_told() -> None:
    wrong: tuple[Any, ...] = (
        [],
        "x",
        {"name": 7},
        {"name": "a", "labels": []},
        {"name": "a", "namespace": 7},
    )
    for metadata in wrong:
        assert problems_of({**GOOD["minimal"], "metadata": metadata}), metadata


# --- hostile input -----------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The way to each value below a value of JSON."""
    steps = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    return [found for step, below in steps for found in [(*path, step), *places(below, (*path, step))]]


@settings(max_examples=300)
@given(st.data())
def test_any_value_in_any_place_is_taken_or_refused_by_name(data: st.DataObject) -> None:
    manifest = copy.deepcopy(GOOD["maximal"])
    *way, last = data.draw(st.sampled_from(places(manifest)))
    parent: Any = manifest
    for step in way:
        parent = parent[step]
    parent[last] = data.draw(JSON)
    for problem in problems_of(manifest):
        assert problem.message
        assert problem.path or last in ("apiVersion", "kind")


@settings(max_examples=50)
@given(st.dictionaries(st.text(max_size=8), JSON, max_size=4))
def test_any_map_is_judged(manifest: dict[str, Any]) -> None:
    assert problems_of(manifest)
