"""A user's podTemplate is merged over Fray's by identity, and never takes away what a gang needs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fray.errors import InvalidJobError
from fray.plan.jobset import AttemptPlan, build_attempt
from fray.plan.overlay import APPENDED, IDENTITY_KEYS, merge_overlay
from fray.plan.settings import PlanSettings
from fray.testing import build_frayjob
from tests.unit.plan.jobset_rules import find_violations, main_container, pod_template

BASE: dict[str, Any] = {
    "priority": 1,
    "nodeSelector": {"a": "1", "b": "2"},
    "tolerations": [{"key": "tpu"}],
    "containers": [
        {
            "name": "main",
            "image": "i:1",
            "command": ["python", "train.py"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}],
            "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
        }
    ],
    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
}


def merge_main(overlay: dict[str, Any]) -> dict[str, Any]:
    """Merge into the container `main` and return it."""
    (container,) = merge_overlay(BASE, {"containers": [{"name": "main", **overlay}]})["containers"]
    assert isinstance(container, dict)
    return container


# --- the merge: one row, one rule ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overlay", "field", "expected"),
    [
        ({"priority": 2}, "priority", 2),
        ({"hostNetwork": True}, "hostNetwork", True),
        # maps merge key by key, null removes
        ({"nodeSelector": {"b": "3", "c": "4"}}, "nodeSelector", {"a": "1", "b": "3", "c": "4"}),
        ({"nodeSelector": {"a": None}}, "nodeSelector", {"b": "2"}),
        ({"securityContext": {"fsGroup": 1, "runAsUser": None}}, "securityContext", {"fsGroup": 1}),
        # a scalar gives way to a map and the other way round
        ({"priority": {"x": 1}}, "priority", {"x": 1}),
        ({"nodeSelector": "none"}, "nodeSelector", "none"),
        # tolerations have no identity: they add up
        ({"tolerations": [{"key": "x"}]}, "tolerations", [{"key": "tpu"}, {"key": "x"}]),
        ({"tolerations": [{"key": "tpu"}]}, "tolerations", [{"key": "tpu"}]),
        ({"tolerations": []}, "tolerations", [{"key": "tpu"}]),
        # volumes: one source each
        (
            {"volumes": [{"name": "shm", "emptyDir": {"sizeLimit": "1Gi"}}]},
            "volumes",
            [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
        ),
        (
            {"volumes": [{"name": "shm", "hostPath": {"path": "/s"}}]},
            "volumes",
            [{"name": "shm", "hostPath": {"path": "/s"}}],
        ),
        (
            {"volumes": [{"name": "shm", "emptyDir": None, "hostPath": {"path": "/s"}}]},
            "volumes",
            [{"name": "shm", "hostPath": {"path": "/s"}}],
        ),
        ({"volumes": [{"name": "shm"}]}, "volumes", [{"name": "shm", "emptyDir": {"medium": "Memory"}}]),
        (
            {"volumes": [{"name": "data", "emptyDir": {}}]},
            "volumes",
            [{"name": "shm", "emptyDir": {"medium": "Memory"}}, {"name": "data", "emptyDir": {}}],
        ),
        ({"volumes": []}, "volumes", BASE["volumes"]),
        ({"imagePullSecrets": [{"name": "hub"}]}, "imagePullSecrets", [{"name": "hub"}]),
    ],
)
def test_pods_fields(overlay: dict[str, Any], field: str, expected: object) -> None:
    assert merge_overlay(BASE, overlay)[field] == expected


@pytest.mark.parametrize(
    "field", ["priority", "nodeSelector", "tolerations", "volumes", "containers", "absent"]
)
def test_null_removes_a_field(field: str) -> None:
    assert field not in merge_overlay(BASE, {field: None})


@pytest.mark.parametrize(
    ("overlay", "field", "expected"),
    [
        ({"image": "i:2"}, "image", "i:2"),
        # a list without identity is replaced
        ({"command": ["sh"]}, "command", ["sh"]),
        ({"command": []}, "command", []),
        # a variable keeps its place, and is a value or a reference, never both
        (
            {"env": [{"name": "B", "value": "3"}]},
            "env",
            [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}],
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
            "env",
            [
                {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "B", "value": "2"},
            ],
        ),
        ({"env": [{"name": "A", "value": None}]}, "env", [{"name": "A"}, {"name": "B", "value": "2"}]),
        (
            {"env": [{"name": "C", "value": "$(A)"}]},
            "env",
            [*BASE["containers"][0]["env"], {"name": "C", "value": "$(A)"}],
        ),
        # ports are identified by number and protocol, which is TCP where it isn't written
        (
            {"ports": [{"containerPort": 80, "name": "web"}]},
            "ports",
            [{"name": "web", "containerPort": 80, "protocol": "TCP"}],
        ),
        (
            {"ports": [{"containerPort": 80, "protocol": "UDP"}]},
            "ports",
            [*BASE["containers"][0]["ports"], {"containerPort": 80, "protocol": "UDP"}],
        ),
        # mounts are identified by their path
        (
            {"volumeMounts": [{"name": "data", "mountPath": "/dev/shm"}]},
            "volumeMounts",
            [{"name": "data", "mountPath": "/dev/shm"}],
        ),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, "envFrom", [{"secretRef": {"name": "s"}}]),
    ],
)
def test_containers_fields(overlay: dict[str, Any], field: str, expected: object) -> None:
    assert merge_main(overlay)[field] == expected


def test_containers_are_met_by_name_in_any_order_and_new_ones_follow() -> None:
    overlay = {"containers": [{"name": "sidecar", "image": "s"}, {"name": "main", "image": "i:2"}]}
    merged = merge_overlay(BASE, overlay)["containers"]
    assert [container["name"] for container in merged] == ["main", "sidecar"]
    assert merged[0]["image"] == "i:2"
    assert merged[0]["command"] == ["python", "train.py"]


# --- the merge: what holds of any overlay --------------------------------------------------------------

_SCALARS = st.sampled_from([None, 0, 1, "a", "b", True])
_NAMED = st.fixed_dictionaries(
    {"name": st.sampled_from(["main", "shm", "A", "B", "new"])},
    optional={
        "value": _SCALARS,
        "image": _SCALARS,
        "emptyDir": st.just({}),
        "hostPath": st.just({"path": "/x"}),
        "env": st.lists(
            st.fixed_dictionaries({"name": st.sampled_from(["A", "C"]), "value": _SCALARS}), max_size=3
        ),
        "mountPath": st.sampled_from(["/dev/shm", "/x"]),
        "containerPort": st.sampled_from([80, 81]),
    },
)
_OVERLAYS = st.dictionaries(
    st.sampled_from([*sorted(BASE), *sorted(IDENTITY_KEYS), *sorted(APPENDED), "priority", "labels"]),
    st.one_of(
        _SCALARS,
        st.dictionaries(
            st.sampled_from(["a", "b", "env", "containers"]), _SCALARS | st.just({"x": None}), max_size=3
        ),
        st.lists(_NAMED | _SCALARS, max_size=4),
        st.lists(_NAMED, max_size=4),
    ),
    max_size=6,
)


@settings(max_examples=200, derandomize=True)
@given(overlay=_OVERLAYS)
def test_merging_twice_is_merging_once(overlay: dict[str, Any]) -> None:
    once = merge_overlay(BASE, overlay)
    assert merge_overlay(once, overlay) == once


@settings(max_examples=200, derandomize=True)
@given(overlay=_OVERLAYS)
def test_neither_side_is_changed(overlay: dict[str, Any]) -> None:
    base, before = copy.deepcopy(BASE), copy.deepcopy(overlay)
    merge_overlay(base, overlay)
    assert base == BASE
    assert overlay == before


@settings(max_examples=200, derandomize=True)
@given(overlay=_OVERLAYS)
def test_fields_that_the_overlay_does_not_name_stay(overlay: dict[str, Any]) -> None:
    merged = merge_overlay(BASE, overlay)
    assert {k: v for k, v in merged.items() if k not in overlay} == {
        k: v for k, v in BASE.items() if k not in overlay
    }


def test_an_empty_overlay_changes_nothing() -> None:
    assert merge_overlay(BASE, {}) == BASE


# --- in a pod: what a gang can't do without ------------------------------------------------------------


def plan_with(overlay: dict[str, Any], **spec: Any) -> AttemptPlan:
    return build_attempt(build_frayjob(podTemplate=overlay, **spec), attempt=1, settings=PlanSettings())


def test_no_overlay_takes_labels_restart_policy_or_identity() -> None:
    plan = plan_with(
        {
            "metadata": {"labels": {"fray.dev/job": "x", "fray.dev/attempt": None, "team": "y"}},
            "spec": {"restartPolicy": None, "containers": [{"name": "main", "env": None}]},
        }
    )
    template = pod_template(plan.jobset)
    assert template["metadata"]["labels"] == {
        "fray.dev/job": "train",
        "fray.dev/attempt": "1",
        "fray.dev/role": "host",
        "app.kubernetes.io/managed-by": "fray",
        "team": "y",
    }
    assert template["spec"]["restartPolicy"] == "Never"
    kept = [entry["name"] for entry in main_container(plan.jobset)["env"]]
    assert kept == [
        "FRAY_JOB_NAME",
        "FRAY_ROOT_JOB",
        "FRAY_ATTEMPT",
        "FRAY_SLICE",
        "FRAY_NUM_SLICES",
        "FRAY_HOST",
        "FRAY_HOSTS_PER_SLICE",
        "FRAY_RANK",
        "FRAY_REPLICA_ID",
        "FRAY_WORLD_SIZE",
        "FRAY_REPLICA_COUNT",
        "FRAY_COORDINATOR_ADDRESS",
    ]
    assert find_violations(plan.jobset) == []


def test_all_labels_can_be_dropped_but_frays_own() -> None:
    labels = pod_template(plan_with({"metadata": {"labels": None}}).jobset)["metadata"]["labels"]
    assert labels["fray.dev/job"] == "train"


def test_a_sidecar_may_have_variables_of_any_name() -> None:
    overlay = {
        "spec": {
            "containers": [{"name": "proxy", "image": "p", "env": [{"name": "FRAY_HOST", "value": "x"}]}]
        }
    }
    plan = plan_with(overlay)
    (proxy,) = (c for c in pod_template(plan.jobset)["spec"]["initContainers"] if c["name"] == "proxy")
    assert proxy["env"] == [{"name": "FRAY_HOST", "value": "x"}]
    assert plan.notices == ()


@pytest.mark.parametrize(("asked", "got"), [(600, 15), (16, 15), (15, 15), (3, 3), (0, 0), (None, 15)])
def test_spot_nodes_wait_no_longer_than_they_can(asked: int | None, got: int) -> None:
    plan = plan_with({"spec": {"terminationGracePeriodSeconds": asked}}, placement={"spot": "Required"})
    assert pod_template(plan.jobset)["spec"]["terminationGracePeriodSeconds"] == got
    assert len(plan.notices) == (1 if asked is not None and asked > 15 else 0)


def test_other_nodes_wait_as_long_as_they_are_told() -> None:
    plan = plan_with({"spec": {"terminationGracePeriodSeconds": 600}})
    assert pod_template(plan.jobset)["spec"]["terminationGracePeriodSeconds"] == 600


def test_an_overlay_that_repeats_frays_own_value_is_no_cause_for_a_notice() -> None:
    overlay = {"spec": {"containers": [{"name": "main", "env": [{"name": "FRAY_ATTEMPT", "value": "1"}]}]}}
    assert plan_with(overlay).notices == ()


# --- overlays that can't be merged: a typed error that names the field ---------------------------------


@pytest.mark.parametrize(
    ("overlay", "path"),
    [
        ({"metadata": None}, "spec.podTemplate.metadata"),
        ({"spec": None}, "spec.podTemplate.spec"),
        ({"spec": [1]}, "spec.podTemplate.spec"),
        ({"spec": {"containers": None}}, "spec.podTemplate.spec.containers"),
        ({"spec": {"containers": "main"}}, "spec.podTemplate.spec.containers"),
        ({"spec": {"containers": {"main": {}}}}, "spec.podTemplate.spec.containers"),
        ({"spec": {"containers": ["main"]}}, "spec.podTemplate.spec.containers[0]"),
        ({"spec": {"containers": [None]}}, "spec.podTemplate.spec.containers[0]"),
        ({"spec": {"containers": [{"image": "i"}]}}, "spec.podTemplate.spec.containers[0].name"),
        (
            {"spec": {"containers": [{"name": "main"}, {"name": ""}]}},
            "spec.podTemplate.spec.containers[1].name",
        ),
        ({"spec": {"containers": [{"name": 7}]}}, "spec.podTemplate.spec.containers[0].name"),
        ({"spec": {"initContainers": [{"image": "i"}]}}, "spec.podTemplate.spec.initContainers[0].name"),
        ({"spec": {"volumes": [{"emptyDir": {}}]}}, "spec.podTemplate.spec.volumes[0].name"),
        (
            {"spec": {"containers": [{"name": "main", "env": {"A": "1"}}]}},
            "spec.podTemplate.spec.containers[0].env",
        ),
        (
            {"spec": {"containers": [{"name": "main", "env": [{"name": "A"}, {"value": "1"}]}]}},
            "spec.podTemplate.spec.containers[0].env[1].name",
        ),
        (
            {"spec": {"terminationGracePeriodSeconds": "30s"}},
            "spec.podTemplate.spec.terminationGracePeriodSeconds",
        ),
        (
            {"spec": {"terminationGracePeriodSeconds": True}},
            "spec.podTemplate.spec.terminationGracePeriodSeconds",
        ),
        (
            {"spec": {"terminationGracePeriodSeconds": -1}},
            "spec.podTemplate.spec.terminationGracePeriodSeconds",
        ),
    ],
)
@pytest.mark.parametrize("spot", ["Allowed", "Required"])
def test_an_overlay_that_cannot_be_merged_is_refused_by_field(
    overlay: dict[str, Any], path: str, spot: str
) -> None:
    with pytest.raises(InvalidJobError) as error:
        plan_with(overlay, placement={"spot": spot})
    assert [problem.path for problem in error.value.problems] == [path]
    assert error.value.name == "train"


def test_all_problems_of_an_overlay_are_told_at_once() -> None:
    overlay = {"metadata": 1, "spec": {"volumes": [{}], "containers": [{"env": [{}]}]}}
    with pytest.raises(InvalidJobError) as error:
        plan_with(overlay)
    assert len(error.value.problems) == 4


_JUNK = st.recursive(
    st.sampled_from([None, True, -1, 3, "x", "main", 1.5]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "env", "value", "main", "ports"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=200, derandomize=True)
@given(
    spec=st.dictionaries(
        st.sampled_from(
            ["containers", "initContainers", "volumes", "terminationGracePeriodSeconds", "affinity"]
        ),
        _JUNK,
        max_size=4,
    ),
    spot=st.sampled_from(["Allowed", "Required"]),
)
def test_junk_in_an_overlay_is_refused_or_passed_on_but_never_an_accident(
    spec: dict[str, Any], spot: str
) -> None:
    try:
        plan = plan_with({"spec": spec}, placement={"spot": spot})
    except InvalidJobError:
        return
    assert main_container(plan.jobset)["env"][0]["name"] == "FRAY_JOB_NAME"


@pytest.mark.parametrize(
    "container",
    [
        {"ports": [{"containerPort": {}}]},
        {"ports": [{"containerPort": 1, "protocol": []}]},
        {"volumeMounts": [{"mountPath": []}]},
    ],
)
def test_items_whose_identity_is_no_word_are_passed_on_for_the_api_server_to_refuse(
    container: dict[str, Any],
) -> None:
    plan = plan_with({"spec": {"containers": [{"name": "main", **container}]}})
    assert container.items() <= main_container(plan.jobset).items()


def test_an_overlaid_node_affinity_does_not_lose_the_placement() -> None:
    term = {"matchExpressions": [{"key": "team", "operator": "In", "values": ["blue"]}]}
    other = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term, other]}}
    overlay = {"spec": {"affinity": {"nodeAffinity": required}}}
    spec = pod_template(plan_with(overlay, placement={"preemptible": False}).jobset)["spec"]
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    off_spot = {"key": "cloud.google.com/gke-spot", "operator": "NotIn", "values": ["true"]}
    assert terms["nodeSelectorTerms"] == [
        {"matchExpressions": [*term["matchExpressions"], off_spot]},
        {**other, "matchExpressions": [off_spot]},
    ]


@pytest.mark.parametrize("spec", [{}, {"replicas": 3}, {"resources": {"gpu": {"type": "nvidia-l4"}}}])
def test_scale_down_leaves_the_pods_of_every_gang_alone(spec: dict[str, Any]) -> None:
    annotation = "cluster-autoscaler.kubernetes.io/safe-to-evict"
    plan = plan_with({}, **spec)
    assert pod_template(plan.jobset)["metadata"]["annotations"] == {annotation: "false"}
    assert f"annotation {annotation}" in {fact.subject for fact in plan.facts}
    plan = plan_with({"metadata": {"annotations": {annotation: "true"}}}, **spec)
    assert pod_template(plan.jobset)["metadata"]["annotations"] == {annotation: "true"}
    assert f"annotation {annotation}" not in {fact.subject for fact in plan.facts}
