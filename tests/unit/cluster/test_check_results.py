"""What an examination makes of single observations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fray.cli.doctor import describe_check_results
from fray.cluster.answers import CheckResult, Mark
from fray.cluster.kubernetes.check_results import (
    NEEDED,
    find_default_image,
    find_image_tags,
    find_served_namespaces,
    judge_clock,
    judge_leases,
    judge_nodes,
    judge_rights,
    judge_versions,
)

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ahead", "mark", "told"),
    [
        (0, Mark.OK, "within 1 s"),
        (-59, Mark.OK, "within 59 s"),
        (61, Mark.WRONG, "61 s ahead of"),
        (-3600, Mark.WRONG, "3600 s behind"),
    ],
)
def test_clocks(ahead: int, mark: Mark, told: str) -> None:
    result = judge_clock(NOW + timedelta(seconds=ahead), NOW)
    assert (result.mark, told in result.seen) == (mark, True)


def lease(holder: str, age: float, namespace: str = "fray-system") -> dict[str, Any]:
    renewed = (NOW - timedelta(seconds=age)).isoformat().replace("+00:00", "Z")
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}
    return {"metadata": {"name": "fray-operator", "namespace": namespace}, "spec": spec}


@pytest.mark.parametrize(
    ("leases", "mark", "told"),
    [
        ([], Mark.WRONG, "no operator has ever"),
        ([{"metadata": {"namespace": "x"}}], Mark.WRONG, "the last one has ended"),
        ([lease("", 1)], Mark.WRONG, "the last one has ended"),
        ([lease("fray-1_ab", 46)], Mark.WRONG, "silent for 46 s: fray-1 in namespace fray-system"),
        ([lease("fray-1_ab", 44)], Mark.OK, "fray-1 in namespace fray-system leads"),
        ([lease("old_1", 9999), lease("new_1", 2, "ml")], Mark.OK, "new in namespace ml leads"),
    ],
)
def test_operators(leases: list[dict[str, Any]], mark: Mark, told: str) -> None:
    result = judge_leases(leases, now=NOW)
    assert (result.mark, told in result.seen) == (mark, True), result
    assert bool(result.next_step) == (mark is Mark.WRONG)


def test_rights_are_told_by_resource() -> None:
    answers = {right: right.verb != "create" for right in NEEDED}
    found = {each.subject: each for each in judge_rights(answers, account="me", namespace="ml", server="s")}
    assert found["may use pods"] == CheckResult("may use pods", Mark.OK, "list, watch")
    jobs = found["may use frayjobs.fray.dev"]
    assert (jobs.mark, jobs.seen) == (Mark.WRONG, "me may not create in namespace ml")
    assert "kubectl create rolebinding" in jobs.next_step
    assert found["may use secrets"].mark is Mark.WRONG


def labelled(image: str, **labels: str) -> dict[str, Any]:
    template = {"spec": {"containers": [{"image": image}, {"image": "other:v1"}]}}
    return {"metadata": {"labels": labels}, "spec": {"template": template}}


def test_versions_are_told_by_image_and_by_label() -> None:
    tag, digest, bare = "host:5000/jobset:v0.12.0", "host/jobset:v0.13.0@sha256:ab", "host:5000/jobset"
    assert find_image_tags(map(labelled, (tag, digest, bare))) == ("v0.12.0", "v0.13.0")
    label = {"app.kubernetes.io/version": "0.2.0"}
    assert judge_versions([labelled("x")], ours="0.1.0") == []
    (same,) = judge_versions([labelled("x", **label)], ours="0.2.0")
    assert (same.mark, same.seen) == (Mark.OK, "0.2.0 here, 0.2.0 of the operator")
    (other,) = judge_versions([labelled("x", **label)], ours="0.1.0")
    assert (other.mark, "upgrade Fray here" in other.next_step) == (Mark.WRONG, True)


def node(labels: dict[str, str], **allocatable: str) -> dict[str, Any]:
    return {"metadata": {"labels": labels}, "status": {"allocatable": allocatable}}


def test_accelerators_are_counted_by_kind() -> None:
    tpu = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice",
        "cloud.google.com/gke-tpu-topology": "2x2x1",
    }
    gpu = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    nodes = [
        node(tpu, **{"google.com/tpu": "4"}),
        node(tpu, **{"google.com/tpu": "4"}),
        node(gpu, **{"nvidia.com/gpu": "2"}),
        node({}, **{"nvidia.com/gpu": "1"}),
        node({}, cpu="4"),
        {"metadata": {}},
    ]
    told = judge_nodes(nodes).seen
    assert told == "GPUs (1 GPUs): 1 node; nvidia-l4 (2 GPUs): 1 node; tpu-v5p-slice 2x2x1 (4 chips): 2 nodes"
    assert judge_nodes([node({})]).mark is Mark.OK


def deployment(**variables: str) -> dict[str, Any]:
    env = [{"name": name, "value": value} for name, value in variables.items()]
    env.append({"name": "FRAY_POD_NAME", "valueFrom": {}})  # type: ignore[dict-item]
    return {"spec": {"template": {"spec": {"containers": [{"env": env}, {}]}}}}


def test_what_the_operators_deployment_tells() -> None:
    told = deployment(FRAY_RUNTIME_IMAGE="r/runtime:1", FRAY_SERVICE_ACCOUNT="job", FRAY_NAMESPACES="a, b")
    assert find_default_image([told]) == ("r/runtime:1", "job")
    assert find_served_namespaces([told]) == ("a", "b")
    assert find_served_namespaces([told, deployment(FRAY_NAMESPACES="")]) == ()
    assert find_served_namespaces([]) is None
    assert find_default_image([]) == (None, None)


def test_each_line_that_is_not_in_order_says_the_next_step() -> None:
    results = [
        CheckResult("clock", Mark.OK, "right"),
        CheckResult("JobSet", Mark.WRONG, "not there", "Install it."),
        CheckResult("nodes", Mark.UNKNOWN, "may not be seen", "Ask."),
    ]
    lines = [line.text for line in describe_check_results(results)]
    assert lines[0] == "ok        clock    right"
    assert (lines[1].split()[0], lines[2].strip()) == ("wrong", "Install it.")
    assert lines[-1] == "1 wrong, 1 can't be seen"
