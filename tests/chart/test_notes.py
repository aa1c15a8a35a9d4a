"""What is printed after an installation: the next step, whatever is still missing."""

from __future__ import annotations

from pathlib import Path

from e2e.cluster.versions import part_named
from fray.vocabulary import API_VERSION, LABEL_JOB, ConditionType
from tests.chart.rendering import JOBSET_API, render_notes

SINGLE = {"scope": "namespace"}


def test_next_step_is_the_first_job_when_nothing_is_missing(tmp_path: Path) -> None:
    notes = render_notes(tmp_path, apis=(JOBSET_API,))
    assert "NEXT" not in notes
    assert "rollout status deployment/fray-operator" in notes
    assert f"apiVersion: {API_VERSION}" in notes
    assert f"--selector={LABEL_JOB}=hello" in notes
    assert f"--for=condition={ConditionType.FINISHED}" in notes
    assert "--namespace default apply" in notes


def test_jobset_that_is_missing_comes_first(tmp_path: Path) -> None:
    notes = render_notes(tmp_path)
    version = part_named("jobset").version.removeprefix("v")
    assert f"--version {version}" in notes
    assert notes.index("INSTALL JOBSET") < notes.index("Wait for the operator")
    assert "INSTALL JOBSET" not in render_notes(tmp_path, {"jobset": {"enabled": True}})


def test_single_namespace_says_who_installs_the_crds(tmp_path: Path) -> None:
    missing = render_notes(tmp_path, SINGLE, namespace="team", apis=(JOBSET_API,))
    assert "kubectl apply --server-side -f crds/" in missing
    assert "--namespace team apply" in missing
    assert "helm upgrade" not in missing


def test_single_namespace_with_crds_needs_nobody(tmp_path: Path) -> None:
    assert "NEXT" not in render_notes(tmp_path, SINGLE, namespace="team", apis=(JOBSET_API, API_VERSION))


def test_further_namespaces_are_added_to_those_there_are(tmp_path: Path) -> None:
    notes = render_notes(tmp_path, {"jobs": {"namespaces": ["ml", "research"]}}, apis=(JOBSET_API,))
    assert "--set 'jobs.namespaces={ml,research,NAMESPACE}'" in notes
    assert "--namespace ml apply" in notes


def test_rights_left_to_an_administrator_are_mentioned(tmp_path: Path) -> None:
    notes = render_notes(tmp_path, {"rbac": {"create": False}}, apis=(JOBSET_API,))
    assert "accounts fray-operator and fray-job need the\nrights" in notes


def test_accounts_that_the_chart_does_not_make_are_not_said_to_exist(tmp_path: Path) -> None:
    ours = render_notes(tmp_path, apis=(JOBSET_API,))
    assert "account fray-job, which exists in: default" in ours
    theirs = render_notes(tmp_path, {"jobs": {"serviceAccount": {"create": False}}}, apis=(JOBSET_API,))
    assert "account fray-job, which you have to make in: default" in theirs


def test_an_image_that_no_registry_has_is_mentioned(tmp_path: Path) -> None:
    words = "has to be on the nodes already"
    assert f"the image fray-operator:0.1.0 {words}" in render_notes(tmp_path)
    assert words not in render_notes(tmp_path, {"registry": "r.example/a"})
    assert words not in render_notes(tmp_path, {"image": {"repository": "r.example/op"}})
