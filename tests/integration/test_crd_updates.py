"""A FrayJob's spec stands once it is created, but for the few fields that control it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from e2e.cluster.api import Api
from fray.plan.workers import derive_wanted
from fray.wire.frayactor import FRAYACTOR
from fray.wire.frayjob import FrayJob
from tests.integration.frayjobs import CRD_COLLECTION, Cause, FrayJobs, causes_of
from tests.manifests.corpus import good_manifests

GOOD = {case.name: case.manifest for case in good_manifests()}
IMMUTABLE = "Forbidden: is immutable: delete the object, or make another"

CHANGES: dict[str, dict[str, Any]] = {
    "spec.entrypoint": {"entrypoint": {"command": ["other"]}},
    "spec.replicas": {"replicas": 3},
    "spec.resources": {"resources": {"cpu": "9"}},
    "spec.placement": {"placement": {}},
    "spec.environment": {"environment": {}},
    "spec.serviceAccountName": {"serviceAccountName": "other"},
    "spec.ports": {"ports": []},
    "spec.parent": {"parent": None},
    "spec.queue": {"queue": None},
    "spec.queue.name": {"queue": {**GOOD["maximal"]["spec"]["queue"], "name": "other"}},
    "spec.podTemplate": {"podTemplate": None},
    "spec.workers.minReplicas": {"workers": {**GOOD["maximal"]["spec"]["workers"], "minReplicas": 2}},
    "spec.workers.maxReplicas": {"workers": {**GOOD["maximal"]["spec"]["workers"], "maxReplicas": 17}},
    "spec.workers.engine": {"workers": {**GOOD["maximal"]["spec"]["workers"], "engine": "ray"}},
    "spec.workers.resources": {"workers": {**GOOD["maximal"]["spec"]["workers"], "resources": {}}},
    "spec.workers.placement": {"workers": {**GOOD["maximal"]["spec"]["workers"], "placement": {}}},
    "spec.workers.environment": {"workers": {**GOOD["maximal"]["spec"]["workers"], "environment": {}}},
    "spec.workers.podTemplate": {"workers": {**GOOD["maximal"]["spec"]["workers"], "podTemplate": {}}},
}


def changed(job: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """A copy of a stored job with other top-level fields of its spec; None takes one away."""
    copied = copy.deepcopy(job)
    copied["spec"].update(change)
    copied["spec"] = {field: value for field, value in copied["spec"].items() if value is not None}
    return copied


@pytest.mark.parametrize("path", CHANGES)
def test_a_field_that_is_set_cannot_change(path: str, frayjobs: FrayJobs) -> None:
    stored = frayjobs.created({**GOOD["maximal"], "metadata": {"name": "job"}})
    new = changed(stored, CHANGES[path])
    assert causes_of(frayjobs.replace(new)) == [Cause(path, IMMUTABLE)]


def test_every_other_field_can_change(frayjobs: FrayJobs) -> None:
    stored = frayjobs.created({**GOOD["maximal"], "metadata": {"name": "job"}})
    workers = {**stored["spec"]["workers"], "replicas": 9}
    change = {
        "suspend": False,
        "ttlSecondsAfterFinished": None,
        "workers": workers,
        "retries": {"failures": 9},
        "timeouts": {"totalSeconds": 32400},
        "queue": {"name": stored["spec"]["queue"]["name"], "priorityClass": "other"},
    }
    new = changed(stored, change)
    response = frayjobs.replace(new)
    assert response.status == 200, response.body
    assert set(stored["spec"]) - {path.split(".")[1] for path in CHANGES} == {
        "suspend",
        "stopped",
        "ttlSecondsAfterFinished",
        "retries",
        "timeouts",
    }


@pytest.mark.parametrize(
    "field",
    ["serviceAccountName", "parent", "queue", "podTemplate"],
)
def test_a_field_that_is_unset_cannot_be_added(field: str, frayjobs: FrayJobs) -> None:
    stored = frayjobs.created(GOOD["minimal"])
    new = changed(stored, {field: GOOD["maximal"]["spec"][field]})
    assert causes_of(frayjobs.replace(new)) == [Cause(f"spec.{field}", IMMUTABLE)]


def test_stopped_never_goes_back(frayjobs: FrayJobs) -> None:
    stored = frayjobs.created(GOOD["minimal"])
    stopped = frayjobs.replace(changed(stored, {"stopped": True}))
    assert stopped.status == 200
    new = changed(stopped.body, {"stopped": False})
    text = "must stay true: what was stopped doesn't run again"
    assert causes_of(frayjobs.replace(new)) == [Cause("spec.stopped", f"Forbidden: {text}")]
    removed = changed(stopped.body, {"stopped": None})
    assert causes_of(frayjobs.replace(removed)) == [Cause("spec.stopped", f"Forbidden: {text}")]


ACTOR: dict[str, Any] = {
    "apiVersion": "fray.dev/v1alpha1",
    "kind": "FrayActor",
    "metadata": {"name": "actor"},
    "spec": {
        "name": "train/actor",
        "entrypoint": {"class": "app:Actor"},
        "lifetime": "job",
        "rootJob": "train",
        "maxConcurrency": 4,
        "maxRestarts": 3,
        "maxTaskRetries": 1,
        "idleSeconds": 60,
        "resources": {"cpu": "1"},
        "placement": {"preemptible": True},
        "environment": {"image": "example.org/one:1"},
        "serviceAccountName": "one",
    },
}
ACTOR_CHANGES: dict[str, Any] = {
    "name": "train/other",
    "entrypoint": {"class": "app:Other"},
    "rootJob": "other",
    "maxConcurrency": 5,
    "maxRestarts": 4,
    "maxTaskRetries": 0,
    "idleSeconds": 61,
    "resources": {"cpu": "2"},
    "placement": {"preemptible": False},
    "environment": {"image": "example.org/one:2"},
    "serviceAccountName": "other",
}
MUTABLE_ACTOR: dict[str, Any] = {
    "replicas": 3,
    "suspend": True,
    "stopped": True,
    "ttlSecondsAfterFinished": 60,
}


def test_a_frayactor_can_change_in_size_and_end_and_in_nothing_else(frayjobs: FrayJobs) -> None:
    fields = set(served_fields(frayjobs.api))
    # lifetime and rootJob name each other
    assert fields == {*ACTOR_CHANGES, *MUTABLE_ACTOR, "lifetime"}
    stored = frayjobs.created(
        {**ACTOR, "spec": {f: v for f, v in ACTOR["spec"].items() if f in fields}}, FRAYACTOR
    )
    for field, value in ACTOR_CHANGES.items():
        refused = frayjobs.replace(changed(stored, {field: value}), FRAYACTOR)
        assert causes_of(refused) == [Cause(f"spec.{field}", IMMUTABLE)], field
    # these two name each other
    detached = frayjobs.replace(changed(stored, {"lifetime": "detached", "rootJob": None}), FRAYACTOR)
    assert set(causes_of(detached)) == {Cause(f"spec.{each}", IMMUTABLE) for each in ("lifetime", "rootJob")}
    taken = frayjobs.replace(changed(stored, MUTABLE_ACTOR), FRAYACTOR)
    assert taken.status == 200, taken.body
    back = frayjobs.replace(changed(taken.body, {"stopped": False}), FRAYACTOR)
    text = "must stay true: what was stopped doesn't run again"
    assert causes_of(back) == [Cause("spec.stopped", f"Forbidden: {text}")]


def served_fields(api: Api) -> dict[str, Any]:
    """The fields of a FrayActor's spec, by the API server."""
    [version] = api.get(f"{CRD_COLLECTION}/frayactors.fray.dev").body["spec"]["versions"]
    fields: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return fields


OVERLAY_CHANGES: dict[str, dict[str, Any]] = {
    "another key of the pod's spec": {"spec": {"affinity": {"x": "y"}}},
    "another key inside a field": {"spec": {"nodeSelector": {"b": "y"}}},
    "another key inside an item": {"spec": {"containers": [{"name": "main", "image": "i"}]}},
    "metadata for spec": {"metadata": {"labels": {"x": "y"}}},
}


@pytest.mark.parametrize("case", OVERLAY_CHANGES)
def test_an_overlay_with_as_many_but_other_keys_is_another_one(case: str, frayjobs: FrayJobs) -> None:
    # The API server's CEL takes objects of undeclared fields for equal if their common keys are.
    before = {
        "another key of the pod's spec": {"spec": {"nodeSelector": {"x": "y"}}},
        "another key inside a field": {"spec": {"nodeSelector": {"a": "y"}}},
        "another key inside an item": {"spec": {"containers": [{"name": "main", "tty": True}]}},
        "metadata for spec": {"spec": {"nodeSelector": {"x": "y"}}},
    }[case]
    manifest = copy.deepcopy(GOOD["minimal"])
    manifest["spec"]["podTemplate"] = before
    stored = frayjobs.created(manifest)
    new = changed(stored, {"podTemplate": OVERLAY_CHANGES[case]})
    assert causes_of(frayjobs.replace(new)) == [Cause("spec.podTemplate", IMMUTABLE)]


def test_another_source_of_a_variable_is_another_environment(frayjobs: FrayJobs) -> None:
    manifest = copy.deepcopy(GOOD["minimal"])
    reference = {"name": "s", "key": "k"}
    manifest["spec"]["environment"] = {"env": [{"name": "A", "valueFrom": {"secretKeyRef": reference}}]}
    stored = frayjobs.created(manifest)
    other = {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": reference}}]}
    new = changed(stored, {"environment": {**stored["spec"]["environment"], **other}})
    assert causes_of(frayjobs.replace(new)) == [Cause("spec.environment", IMMUTABLE)]


def test_the_order_of_variables_and_ports_is_no_change(frayjobs: FrayJobs) -> None:
    manifest = copy.deepcopy(GOOD["ports"])
    manifest["spec"]["environment"] = {"env": [{"name": "A", "value": "a"}, {"name": "B", "value": "b"}]}
    stored = frayjobs.created(manifest)
    new = copy.deepcopy(stored)
    new["spec"]["ports"].reverse()
    new["spec"]["environment"]["env"].reverse()
    assert frayjobs.replace(new).status == 200


# --- scale -------------------------------------------------------------------------------------------


def test_workers_scale_to_any_number_of_which_their_range_lets_so_many_be(frayjobs: FrayJobs) -> None:
    frayjobs.created(GOOD["workers"])
    scale = frayjobs.path("workers", "scale")
    assert frayjobs.api.get(scale).body["spec"]["replicas"] == 4
    assert frayjobs.api.merge(scale, {"spec": {"replicas": 16}}).status == 200
    assert frayjobs.api.get(frayjobs.path("workers")).body["spec"]["workers"]["replicas"] == 16
    object_ = frayjobs.api.get(scale).body
    object_["spec"] = {"replicas": 0}
    assert frayjobs.api.put(scale, object_).status == 200
    assert frayjobs.api.merge(scale, {"spec": {"replicas": 17}}).status == 200
    refused = frayjobs.api.merge(scale, {"spec": {"replicas": -1}})
    assert refused.status == 422


def test_scale_shows_the_workers_that_there_are(frayjobs: FrayJobs) -> None:
    stored = frayjobs.created(GOOD["workers"])
    status = {"workers": {"replicas": 3, "selector": "fray.dev/job=workers"}}
    assert frayjobs.api.put(frayjobs.path("workers", "status"), {**stored, "status": status}).status == 200
    shown = frayjobs.api.get(frayjobs.path("workers", "scale")).body["status"]
    assert shown == {"replicas": 3, "selector": "fray.dev/job=workers"}


def test_a_job_without_workers_can_be_scaled_and_gets_none(frayjobs: FrayJobs) -> None:
    frayjobs.created(GOOD["minimal"])
    scale = frayjobs.path("minimal", "scale")
    asked = frayjobs.api.get(scale)
    assert (asked.status, asked.body["spec"]) == (200, {}), "0 isn't written"
    assert frayjobs.api.merge(scale, {"spec": {"replicas": 3}}).status == 200
    job = FrayJob.from_manifest(frayjobs.api.get(frayjobs.path("minimal")).body)
    assert (job.spec.workers.replicas, derive_wanted(job.spec)) == (3, 0)


def test_workers_cannot_be_added_or_removed(frayjobs: FrayJobs) -> None:
    for name, workers in (("minimal", {"replicas": 1}), ("workers", None)):
        stored = frayjobs.created(GOOD[name])
        new = changed(stored, {"workers": workers})
        assert Cause("spec.workers.maxReplicas", IMMUTABLE) in causes_of(frayjobs.replace(new))
