"""Every legal FrayJob becomes a JobSet that JobSet's webhook, the API server and the kubelet accept."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fray.plan.jobset import build_attempt
from fray.plan.names import Ports, build_loopback_addresses
from fray.plan.settings import PlanSettings
from fray.testing import build_frayjob
from fray.wire.frayjob import FrayJob
from tests.unit.plan.frayjobs import any_job
from tests.unit.plan.golden import build_golden
from tests.unit.plan.jobset_rules import find_violations, main_container, pod_template

SETTINGS = PlanSettings()
ATTEMPTS = st.one_of(st.integers(1, 12), st.sampled_from([99, 100, 1000, 2_000_001]))


@settings(max_examples=100, derandomize=True)
@given(job=any_job(), attempt=ATTEMPTS)
def test_any_legal_job_becomes_an_acceptable_jobset(job: FrayJob, attempt: int) -> None:
    plan = build_attempt(job, attempt=attempt, settings=SETTINGS)
    assert find_violations(plan.jobset) == []
    assert json.loads(json.dumps(plan.jobset)) == plan.jobset, "it must survive being sent"


@settings(max_examples=60, derandomize=True)
@given(job=any_job(), attempt=ATTEMPTS)
def test_a_plan_depends_on_nothing_but_its_input(job: FrayJob, attempt: int) -> None:
    before = job.model_dump_json()
    first = build_attempt(job, attempt=attempt, settings=SETTINGS)
    pristine = copy.deepcopy(first.jobset)
    _spoil(first.jobset)
    assert job.model_dump_json() == before
    assert build_attempt(job, attempt=attempt, settings=SETTINGS).jobset == pristine


@settings(max_examples=60, derandomize=True)
@given(job=any_job())
def test_no_part_of_a_manifest_occurs_twice_so_that_yaml_needs_no_anchors(job: FrayJob) -> None:
    jobset = build_attempt(job, attempt=1, settings=SETTINGS).jobset
    parts = [id(part) for part in _containers_within(jobset)]
    assert len(set(parts)) == len(parts)


@settings(max_examples=60, derandomize=True)
@given(job=any_job())
def test_a_laptop_gets_the_same_manifest_but_for_addresses(job: FrayJob) -> None:
    on_gke = build_attempt(job, attempt=1, settings=SETTINGS)
    ports = Ports(coordinator=20001, megascale=20002, tpu_process=20003, torch=20004)
    local = build_attempt(
        job,
        attempt=1,
        settings=PlanSettings(metadata_server=False),
        addresses=build_loopback_addresses(ports),
    )
    here, there = main_container(local.jobset).pop("env"), main_container(on_gke.jobset).pop("env")
    assert local.jobset == on_gke.jobset
    text = json.dumps([entry for entry in here if not entry["name"].startswith(("MY_", "my.", "FRAY_OWN"))])
    assert on_gke.name + "-slice" not in text, "no cluster DNS name on a laptop"
    added = {"MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID", "MEGASCALE_COORDINATOR_ADDRESS"}
    assert {e["name"] for e in here} - {e["name"] for e in there} <= added


def _spoil(value: Any) -> None:
    """Change everything that can be changed within a manifest."""
    if isinstance(value, dict):
        for item in value.values():
            _spoil(item)
        value.clear()
    elif isinstance(value, list):
        for item in value:
            _spoil(item)
        value.clear()


def _containers_within(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [value, *(part for item in value.values() for part in _containers_within(item))]
    if isinstance(value, list):
        return [value, *(part for item in value for part in _containers_within(item))]
    return []


def test_a_plan_prints_as_plain_yaml() -> None:
    assert "&id" not in yaml.safe_dump(build_golden("overlay").jobset)


# --- the second opinion itself: each rule sees its own violation ---------------------------------------


def _jobset() -> dict[str, Any]:
    return copy.deepcopy(build_golden("tpu-multislice").jobset)


def _set(path: str, value: Any) -> dict[str, Any]:
    jobset = _jobset()
    *parents, last = path.split(".")
    target: Any = jobset
    for part in parents:
        target = target[int(part) if part.isdigit() else part]
    target[last] = value
    return jobset


JOB = "spec.replicatedJobs.0.template.spec"
POD = f"{JOB}.template.spec"


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("metadata.name", "1train", "no DNS-1035 label"),
        ("metadata.name", "train.a1", "no DNS-1035 label"),
        ("metadata.name", "t" * 48, "too long"),
        ("spec.network.subdomain", "other", "JobSet's name"),
        ("spec.successPolicy.targetReplicatedJobs", ["worker"], "targets"),
        ("spec.replicatedJobs.0.replicas", 2**31, "replicas"),
        (f"{JOB}.completions", 3, "at once"),
        (f"{JOB}.completionMode", "NonIndexed", "no index"),
        (f"{JOB}.backoffLimit", 6, "single hosts"),
        (f"{JOB}.podReplacementPolicy", "TerminatingOrFailed", "podReplacementPolicy"),
        (f"{JOB}.podFailurePolicy.rules", [{"action": "FailJob"}], "exit codes or conditions"),
        (f"{POD}.restartPolicy", "OnFailure", "restartPolicy"),
        (f"{POD}.nodeSelector", {"team": "no spaces"}, "label"),
        (f"{POD}.volumes", [], "unknown volume"),
        (f"{POD}.volumes", [{"name": "shm", "emptyDir": {}, "hostPath": {}}], "sources"),
        (f"{POD}.volumes", [{"name": "shm", "emptyDir": {}}] * 2, "twice"),
        (f"{POD}.containers.0.env", [{"name": "A", "value": "1"}] * 2, "twice"),
        (f"{POD}.containers.0.env", [{"name": "A", "value": "$(B)"}, {"name": "B"}], "defined later"),
        (f"{POD}.containers.0.env", [{"name": "A", "value": "x" * 131070}], "longer than Linux"),
        (f"{POD}.containers.0.env", [{"name": "A", "value": "x", "valueFrom": {}}], "a value and a source"),
        (f"{POD}.containers.0.ports", [{"name": "http--x", "containerPort": 1}], "port"),
        (f"{POD}.containers.0.resources", {"limits": {"a/b": "1"}, "requests": {"a/b": "2"}}, "differ"),
    ],
)
def test_the_second_opinion_sees(path: str, value: Any, complaint: str) -> None:
    violations = find_violations(_set(path, value))
    assert any(complaint in violation for violation in violations), violations


# --- rules that hold of every plan ---------------------------------------------------------------------


@settings(max_examples=80, derandomize=True)
@given(job=any_job(), attempt=ATTEMPTS)
def test_nothing_a_user_writes_takes_a_host_its_identity(job: FrayJob, attempt: int) -> None:
    jobset = build_attempt(job, attempt=attempt, settings=SETTINGS).jobset
    env = {entry["name"]: entry for entry in main_container(jobset)["env"]}
    assert env["FRAY_JOB_NAME"]["value"] == job.metadata.name
    number = env["FRAY_ATTEMPT"]
    if job.spec.queue is None:
        assert number["value"] == str(attempt)
    else:
        assert number["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['fray.dev/attempt']"
    host = env["FRAY_HOST"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert host == "metadata.labels['batch.kubernetes.io/job-completion-index']"
    labels = pod_template(jobset)["metadata"]["labels"]
    assert (labels["fray.dev/job"], labels["fray.dev/attempt"]) == (job.metadata.name, str(attempt))
    assert pod_template(jobset)["spec"]["restartPolicy"] == "Never"
    if job.spec.placement.spot == "Required":
        assert pod_template(jobset)["spec"]["terminationGracePeriodSeconds"] <= 15


def test_a_job_without_uid_and_namespace_has_no_owner() -> None:
    metadata = build_attempt(build_frayjob(), attempt=1, settings=SETTINGS).jobset["metadata"]
    assert "ownerReferences" not in metadata
    assert "namespace" not in metadata


def test_the_installation_decides_image_and_service_account_of_jobs_that_name_none() -> None:
    installed = PlanSettings(image="registry.example/runtime:9", service_account="jobs")
    jobset = build_attempt(build_frayjob(), attempt=1, settings=installed).jobset
    assert main_container(jobset)["image"] == "registry.example/runtime:9"
    assert pod_template(jobset)["spec"]["serviceAccountName"] == "jobs"
