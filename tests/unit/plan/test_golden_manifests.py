"""What FrayJobs become, shape by shape, is what was read and agreed on: `tests/golden/<shape>/`."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from fray.accelerators import TPU_RESOURCE
from fray.wire.status import FrayJobStatus
from fray.wire.validation import validate_manifest
from tests.unit.plan.golden import (
    BY_HAND,
    GOLDEN,
    actor_shapes,
    build_golden,
    read_job,
    render_actor,
    render_all,
    shapes,
)
from tests.unit.plan.jobset_rules import find_violations, main_container, pod_template


@pytest.mark.parametrize("shape", shapes())
def test_a_shape_becomes_the_manifests_beside_it(shape: str) -> None:
    files = [path for path in (GOLDEN / shape).iterdir() if path.name not in BY_HAND]
    assert render_all(shape) == {path.name: path.read_text(encoding="utf-8") for path in files}, (
        "if this change is meant: python -m tests.unit.plan.regenerate_golden, and read the difference"
    )


@pytest.mark.parametrize("shape", actor_shapes())
def test_a_member_on_several_hosts_becomes_the_jobset_beside_it(shape: str) -> None:
    files = [path for path in (GOLDEN / shape).iterdir() if path.name != "actor.yaml"]
    made = render_actor(shape)
    assert made == {path.name: path.read_text(encoding="utf-8") for path in files}, (
        "if this change is meant: python -m tests.unit.plan.regenerate_golden, and read the difference"
    )
    assert find_violations(yaml.safe_load(made["jobset.yaml"])) == []


@pytest.mark.parametrize("shape", shapes())
def test_a_golden_job_is_a_legal_one(shape: str) -> None:
    text = (GOLDEN / shape / "job.yaml").read_text(encoding="utf-8")
    job = read_job(shape)
    assert validate_manifest(yaml.safe_load(text)) == job.model_copy(update={"status": FrayJobStatus()})


@pytest.mark.parametrize("shape", shapes())
def test_a_golden_jobset_would_be_accepted_by_a_cluster(shape: str) -> None:
    assert find_violations(build_golden(shape).jobset) == []


@pytest.mark.parametrize("shape", shapes())
def test_each_fact_is_told_once_and_with_a_reason(shape: str) -> None:
    facts = build_golden(shape).facts
    subjects = [fact.subject for fact in facts]
    assert sorted(set(subjects)) == sorted(subjects)
    assert all(fact.value and fact.because for fact in facts)


@pytest.mark.parametrize("shape", shapes())
def test_what_is_explained_of_variables_and_selectors_stands_in_the_manifest(shape: str) -> None:
    plan = build_golden(shape)
    told = {fact.subject: fact.value for fact in plan.facts}
    variables = {f"env {entry['name']}": _printed(entry) for entry in main_container(plan.jobset)["env"]}
    assert variables.items() >= {k: v for k, v in told.items() if k.startswith("env ")}.items()
    selector = pod_template(plan.jobset)["spec"].get("nodeSelector", {})
    selected = {f"node selector {key}": value for key, value in selector.items()}
    assert selected.items() >= {k: v for k, v in told.items() if k.startswith("node selector ")}.items()


def _printed(entry: dict[str, Any]) -> str:
    if "valueFrom" in entry:
        path = entry["valueFrom"].get("fieldRef", {}).get("fieldPath", "")
        label = path.removeprefix("metadata.labels['").removesuffix("']")
        return f"({path})" if label == path else f"(label {label})"
    return entry.get("value") or '""'


def test_no_golden_file_is_left_over() -> None:
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted([*shapes(), *actor_shapes()])


@pytest.mark.parametrize(
    ("shape", "slices", "hosts", "chips", "label", "topology"),
    [
        # Source: GKE's page "Plan TPUs", and XPK's table of names (system_characteristics.py).
        ("tpu-single-slice", 1, 4, 4, "tpu-v5-lite-podslice", "4x4"),
        ("tpu-multislice", 2, 2, 4, "tpu-v5p-slice", "2x2x2"),
        ("tpu-single-host", 1, 1, 4, "tpu-v6e-slice", "2x2"),
        ("tpu-single-host-slices", 4, 1, 4, "tpu-v5-lite-podslice", "2x2"),
        ("tpu-v6e-8-one-host", 1, 1, 8, "tpu-v6e-slice", "2x4"),
        ("tpu-v6e-8-two-hosts", 1, 2, 4, "tpu-v6e-slice", "2x4"),
        ("tpu-v5e-8-two-hosts-multislice", 2, 2, 4, "tpu-v5-lite-podslice", "2x4"),
        ("tpu-v3", 1, 4, 4, "tpu-v3-slice", "4x4"),
        ("tpu-v4", 1, 4, 4, "tpu-v4-podslice", "2x2x4"),
        ("tpu-v4-lite", 1, 1, 4, "tpu-v4-lite-device", "2x2"),
        ("tpu-v5p-topology", 1, 64, 4, "tpu-v5p-slice", "4x4x16"),
        ("tpu-v6e-64", 1, 16, 4, "tpu-v6e-slice", "8x8"),
        ("tpu7x-multislice", 2, 2, 4, "tpu7x", "2x2x2"),
        ("tpu7x-single-host", 1, 1, 4, "tpu7x", "2x2x1"),
        ("tpu-huge-slice", 1, 1536, 4, "tpu-v5p-slice", "16x16x24"),
        ("long-name", 12, 32, 4, "tpu-v5p-slice", "4x4x8"),
    ],
)
def test_a_tpu_job_asks_for_the_nodes_that_gke_has(
    shape: str, slices: int, hosts: int, chips: int, label: str, topology: str
) -> None:
    jobset = build_golden(shape).jobset
    (replicated_job,) = jobset["spec"]["replicatedJobs"]
    job = replicated_job["template"]["spec"]
    assert (replicated_job["replicas"], job["completions"]) == (slices, hosts)
    assert main_container(jobset)["resources"]["limits"] == {TPU_RESOURCE: str(chips)}
    selector = job["template"]["spec"]["nodeSelector"]
    assert selector["cloud.google.com/gke-tpu-accelerator"] == label
    assert selector["cloud.google.com/gke-tpu-topology"] == topology
    count = {"2x4": str(chips)}.get(topology)
    assert selector.get("cloud.google.com/gke-accelerator-count") == count, "only 2x4 comes on two machines"
    exclusive = jobset["metadata"].get("annotations", {}).get("alpha.jobset.sigs.k8s.io/exclusive-topology")
    assert exclusive == ("cloud.google.com/gke-nodepool" if hosts > 1 else None)


@pytest.mark.parametrize(
    ("shape", "words"), [("tpu-multislice", "child Job per slice"), ("gpu-gang", "One Job")]
)
def test_it_is_explained_how_slices_become_jobs(shape: str, words: str) -> None:
    facts = {fact.subject: fact.because for fact in build_golden(shape).facts}
    assert words.lower() in facts["replicatedJobs[0].replicas"].lower()
